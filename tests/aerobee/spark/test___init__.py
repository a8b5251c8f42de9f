"""The package as docs/spark and README show it: their Python, SQL and commands run as they stand.

A section of a page (what is below one `##`) is copied from top to bottom into a session that has
`spark` and nothing else. Only addresses and directories are those of the test.
"""

from __future__ import annotations

import re
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession

from aerobee.cli.main import main
from aerobee.store.format.system_names import TRACE_TOPIC
from tests.aerobee.spark.conftest import unavailable
from tests.aerobee.spark.filling import bodies, fill, make_topic
from tests.aerobee.spark.groups import commit
from tests.aerobee.spark.jobs.lakes import SEGMENT_BYTES
from tests.aerobee.spark.test_trace import after, before, pub
from tests.kit.raw_client import RawConnection, properties_text, send_fields

if TYPE_CHECKING:
    from tests.conftest import AnyBroker, StartBroker

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[3]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs" / "spark").glob("*.md")))
SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
MADE = re.compile(r"^CREATE (?:TEMPORARY )?(TABLE|VIEW) (\w+)", re.MULTILINE)
CRON = "0 3 * * *  "
DATA = ("json", "yaml")
"""Blocks that nobody runs."""
NOT_RUN = {
    "aerobee spark JOB [options]": "JOB is any of six; tests/aerobee/cli/test_spark.py has each",
    "--format delta --conf": "options alone; their jars: tests/aerobee/spark/jobs/test_tables.py",
    "spark-submit --master spark://m:7077": "a cluster: tests/interop/test_spark_cluster.py",
}
"""The first words of blocks that need more than this machine, and why."""
EMPTY = {"faults"}
"""Tables of the pages that have no rows where nothing is wrong."""
LIBRARIES = ("duckdb", "pandas", "polars")
"""Those of pages that Aerobee itself does not need."""
SEND, CREATE_GROUP = 310, 200
ORDERS = 600


class Section(NamedTuple):
    """What one section of a page shows, in its order."""

    name: str
    blocks: list[tuple[str, str]]
    """Language and text."""


def sections() -> list[Section]:
    """Those with anything to run."""
    found = []
    for page in PAGES:
        _, *parts = SECTION.split(page.read_text("utf-8"))
        for head, text in zip(parts[::2], parts[1::2], strict=True):
            blocks = [(kind, text) for kind, text in BLOCK.findall(text) if runs(page, kind, text)]
            name = f"{page.stem}-{head.lower().replace(' ', '-')}"
            found += [Section(name, blocks)] if blocks else []
    return found


def runs(page: Path, kind: str, text: str) -> bool:
    """Whether a block is run here; README's others are by tests/test_snippets.py."""
    if page.name == "README.md":
        return kind == "python" and "spark." in text
    return kind not in DATA and not text.startswith(tuple(NOT_RUN))


@pytest.fixture(scope="module")
def broker(start_broker: StartBroker) -> AnyBroker:
    """One with what the pages speak of. As in a young topic, not every queue has messages."""
    broker = start_broker(traceTopicEnable=True, mappedFileSizeCommitLog=SEGMENT_BYTES)
    for topic in ("orders", "returns", "TopicTest"):
        make_topic(broker, topic, 4)
    for number, tag in enumerate(("EU", "US", "EU")):
        part = bodies(ORDERS, 300)[number::3]
        fill(broker, "orders", part, queue_id=number, TAGS=tag, KEYS=f"k{number}")
    fill(broker, "returns", bodies(3))
    fill(broker, "TopicTest", bodies(3), TAGS="TagA")
    traced = (pub("id0"), before("R0", "id0", 20), after("R0", "id0", 27, 1))
    fill(broker, TRACE_TOPIC, [text.encode() for text in traced])
    make_topic(broker, "%DLQ%billing")
    make_topic(broker, "%RETRY%billing")
    with RawConnection(broker.address) as connection:
        assert connection.call(CREATE_GROUP, {}, b'{"groupName":"billing"}').code == 0
        commit(connection, "billing", "orders", 0, 7)
        dead = send_fields("%DLQ%billing", 0, j=5, i=properties_text(TAGS="EU"))
        assert connection.call(SEND, dead, b"dead").code == 0
    return broker


@pytest.mark.parametrize("section", sections(), ids=lambda section: section.name)
def test_a_section_runs_from_top_to_bottom(
    section: Section,
    spark: SparkSession,
    broker: AnyBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for module in LIBRARIES:
        if find_spec(module) is None and any(module in text for _, text in section.blocks):
            unavailable(f"{module} is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NAMESRV_ADDR", broker.namesrv_address)
    names: dict[str, Any] = {"spark": spark}
    for kind, text in section.blocks:
        here = re.sub(r"\b(?:broker-1|localhost|127\.0\.0\.1):9876", broker.namesrv_address, text)
        here = re.sub(r"/data/store|/srv/rocketmq|/var/lib/aerobee", str(broker.data), here)
        here = here.replace("/lake", f"{tmp_path}/lake")
        match kind:
            case "python":
                exec(here, names)
            case "sql":
                run_statements(here, spark)
            case "sh":
                run_commands(here, capsys)
            case _:
                pytest.fail(f"what is this? It has no language: {text}")
    for name, value in names.items():
        if isinstance(value, DataFrame) and not value.isStreaming:
            assert bool(value.take(1)) == (name not in EMPTY), name


def run_statements(text: str, spark: SparkSession) -> None:
    try:
        for statement in filter(str.strip, text.split(";")):
            spark.sql(statement).collect()
    finally:
        for kind, name in MADE.findall(text):
            spark.sql(f"DROP {kind} IF EXISTS {name}")


def run_commands(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in text.replace("\\\n", " ").splitlines():
        name, *words = shlex.split(command.removeprefix(CRON))
        assert name == "aerobee"
        with pytest.raises(SystemExit) as ended:
            main(words)
        told = capsys.readouterr()
        assert not ended.value.code, (command, told.err)
        assert not re.search("^(no rows|nothing)", told.out + told.err, re.MULTILINE), command


def test_the_blocks_that_are_not_run_are_on_the_pages() -> None:
    shown = [text for page in PAGES for _, text in BLOCK.findall(page.read_text("utf-8"))]
    for words in NOT_RUN:
        assert any(text.startswith(words) for text in shown), words
