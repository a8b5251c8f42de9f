"""Messages of a real broker, and of the directory it leaves, as one Arrow table."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import aerobee
from aerobee.errors import (
    ConfigurationError,
    DataLossError,
    RecordDamagedError,
    RouteNotFoundError,
)
from aerobee.spark.rows.columns import DEFAULT, arrow_schema
from tests.aerobee.spark.filling import bodies, expire, fill, make_topic

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import AnyBroker, StartBroker

COUNT = 300
TOPIC = "arrows"
OTHER = "bows"
FAR_OFF = datetime(2040, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def filled(start_broker: StartBroker) -> AnyBroker:
    """Two topics: one with messages of two tags in each of two queues, one with a few."""
    broker = start_broker()
    make_topic(broker, TOPIC, queues=2)
    make_topic(broker, OTHER)
    for queue_id in (0, 1):
        fill(broker, TOPIC, bodies(COUNT), queue_id=queue_id, TAGS="Aa", KEYS=f"k{queue_id}")
        fill(broker, TOPIC, bodies(COUNT), queue_id=queue_id, TAGS="BB")
    fill(broker, OTHER, bodies(5))
    return broker


def by_queue(table: pa.Table) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for row in table.select(["queueId", "queueOffset"]).to_pylist():
        found.setdefault(row["queueId"], []).append(row["queueOffset"])
    return found


def test_a_topic_of_a_cluster_as_a_table(filled: AnyBroker) -> None:
    table = aerobee.arrow(TOPIC, namesrv=filled.namesrv_address)
    assert table.schema.equals(arrow_schema(DEFAULT))
    assert by_queue(table) == {0: list(range(2 * COUNT)), 1: list(range(2 * COUNT))}
    assert table.column("body").to_pylist() == [*bodies(COUNT), *bodies(COUNT)] * 2
    first = table.slice(0, 1).to_pylist(maps_as_pydicts="strict")[0]
    assert first["topic"] == TOPIC
    assert (first["tags"], first["keys"]) == ("Aa", "k0")
    assert first["properties"]["TAGS"] == "Aa"
    assert first["brokerName"] is not None


def test_several_topics_chosen_columns_and_tags(filled: AnyBroker) -> None:
    names = ("topic", "tags")
    table = aerobee.arrow([TOPIC, OTHER], namesrv=filled.namesrv_address, columns=names)
    assert table.column_names == list(names)
    assert Counter(table.column("topic").to_pylist()) == {TOPIC: 4 * COUNT, OTHER: 5}
    # Both tags have the same hash; the broker lets both through.
    table = aerobee.arrow(
        TOPIC, namesrv=filled.namesrv_address, tags="Aa", columns="tags,queueOffset"
    )
    assert table.column("tags").to_pylist() == ["Aa"] * 2 * COUNT


def test_the_same_messages_from_the_directory_of_the_store(filled: AnyBroker) -> None:
    names = ("topic", "queueId", "queueOffset", "body", "properties", "msgId", "offsetMsgId")
    from_store = aerobee.arrow(TOPIC, store=filled.data, columns=names)
    from_broker = aerobee.arrow(TOPIC, namesrv=filled.namesrv_address, columns=names)
    order = [("queueId", "ascending"), ("queueOffset", "ascending")]
    assert from_store.sort_by(order).to_pylist() == from_broker.sort_by(order).to_pylist()
    few = aerobee.arrow([OTHER], store=str(filled.data), options={"brokerName": "b"})
    assert few.column("brokerName").to_pylist() == ["b"] * 5


@pytest.mark.parametrize("place", ["namesrv", "store"])
def test_only_messages_of_a_time(filled: AnyBroker, place: str) -> None:
    address = filled.namesrv_address if place == "namesrv" else str(filled.data)
    where: dict[str, Any] = {place: address}
    instants = aerobee.arrow(TOPIC, **where, columns="storeTimestamp").column(0)
    middle = sorted(instants.to_pylist())[COUNT]
    later = pc.sum(pc.greater_equal(instants, pa.scalar(middle, instants.type))).as_py()

    def rows(**asked: Any) -> int:
        count: int = aerobee.arrow(TOPIC, **where, **asked, columns="queueOffset").num_rows
        return count

    assert 0 < later <= 4 * COUNT
    assert rows(since=middle) == later
    assert rows(until=middle) == 4 * COUNT - later
    assert rows(since=round(middle.timestamp() * 1000)) == later
    assert rows(since=middle, until=middle) == 0
    assert rows(since=timedelta(hours=1)) == 4 * COUNT
    assert rows(until=timedelta(hours=1)) == 0
    assert rows(since=FAR_OFF) == 0
    if place == "namesrv":
        name = "startingoffsetsbytimestampstrategy"
        assert rows(since=FAR_OFF, options={name: "latest"}) == 0
        with pytest.raises(ConfigurationError, match="no message is as new"):
            rows(since=FAR_OFF, options={name: "error"})
    assert rows(since=middle.astimezone().replace(tzinfo=None)) == later


def test_batch_by_batch(filled: AnyBroker) -> None:
    reader = aerobee.arrow_reader(
        TOPIC,
        namesrv=filled.namesrv_address,
        columns="body",
        options={"batchRows": 100, "failOnDataLoss": True},
    )
    assert reader.schema.names == ["body"]
    sizes = [batch.num_rows for batch in reader]
    assert sum(sizes) == 4 * COUNT
    assert max(sizes) <= 100


def test_a_topic_without_messages_is_a_table_without_rows(filled: AnyBroker) -> None:
    make_topic(filled, "empty")
    for table in (
        aerobee.arrow("empty", namesrv=filled.namesrv_address),
        aerobee.arrow("empty", store=filled.data),
    ):
        assert table.num_rows == 0
        assert table.column_names == list(DEFAULT)


def test_the_presets_of_other_sources(filled: AnyBroker) -> None:
    options = {"schemaPreset": "kafka"}
    table = aerobee.arrow(OTHER, namesrv=filled.namesrv_address, options=options)
    assert table.column_names[:2] == ["key", "value"]
    assert table.column("offset").to_pylist() == list(range(5))


def test_a_missing_topic_is_an_error(filled: AnyBroker) -> None:
    with pytest.raises(RouteNotFoundError, match="nowhere"):
        aerobee.arrow("nowhere", namesrv=filled.namesrv_address)


def test_what_is_gone_is_told_unless_it_may_be(start_broker: StartBroker) -> None:
    broker = start_broker()
    make_topic(broker, TOPIC)
    fill(broker, TOPIC, bodies(1_000, 6_000))
    assert len(list((broker.data / "commitlog").iterdir())) > 1
    name = aerobee.arrow(
        TOPIC, namesrv=broker.namesrv_address, columns="brokerName", until=timedelta(0)
    )
    [broker_name] = set(name.column(0).to_pylist())
    whole = f'{{"{TOPIC}":{{"{broker_name}":{{"0":0}}}}}}'
    expire(broker, 1)
    where: dict[str, Any] = {"namesrv": broker.namesrv_address, "columns": "queueOffset"}
    with pytest.raises(DataLossError, match=TOPIC):
        aerobee.arrow(TOPIC, **where, options={"startingOffsets": whole})
    lax = {"startingOffsets": whole, "failOnDataLoss": "false"}
    left = aerobee.arrow(TOPIC, **where, options=lax).column(0).to_pylist()
    assert left == list(range(left[0], 1_000))
    assert left[0] > 0
    # Without offsets to begin at, a read takes what is there.
    assert aerobee.arrow(TOPIC, **where).num_rows == len(left)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"namesrv": "a:1", "store": "/tmp"}, "either namesrv or store"),
        ({"store": "/tmp", "tags": "A"}, "tags is for a cluster"),
        ({"store": "/no/such/place"}, "/no/such/place"),
        ({"store": "/tmp", "options": {"mode": "audit"}}, "'audit' needs Spark"),
        ({"namesrv": "a:1", "since": "yesterday"}, "since is a datetime, a timedelta"),
        ({"namesrv": "a:1", "since": True}, "since is a datetime, a timedelta"),
        ({"namesrv": "a:1", "until": -1}, "until -1 lies before 1970"),
        ({"namesrv": "a:1", "since": 2, "until": 1}, "since 2 is after until 1"),
        ({"namesrv": "a:1", "columns": ()}, "columns names nothing"),
        ({"namesrv": "a:1", "columns": "bdy"}, "did you mean 'body'"),
        ({"namesrv": "a:1", "options": {"failOnDataLos": "x"}}, "failOnDataLoss"),
        ({"namesrv": "a:1", "options": {"Subscribe": "x"}}, "option Subscribe: an argument says"),
        ({"namesrv": "a:1", "options": {"nameServer": "b:1"}}, "option nameServer: an argument"),
        ({"store": "/tmp", "options": {"path": "/"}}, "option path: an argument says that"),
        ({"namesrv": "a:b:c"}, "a:b:c"),
        ({}, "nameServer"),
    ],
)
def test_wrong_arguments_are_refused_at_once(
    arguments: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(ConfigurationError) as caught:
        aerobee.arrow(TOPIC, **arguments)
    assert message in str(caught.value)
    with pytest.raises(ConfigurationError, match="subscribe names nothing"):
        aerobee.arrow([], namesrv="a:1")


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_missing_package_is_named_with_what_to_install() -> None:
    code = (
        "import sys; sys.modules['pyarrow'] = None\nimport aerobee\n"
        "try: aerobee.arrow('t', namesrv='a:1')\n"
        "except aerobee.errors.ConfigurationError as error: print(error)"
    )
    told = run(code.replace("import aerobee\n", "import aerobee, aerobee.errors\n"))
    assert told.endswith("needs pyarrow, which is not installed: pip install 'aerobee[spark]'")


def test_reading_needs_no_spark(filled: AnyBroker) -> None:
    """Nor pandas, which pyarrow imports where it is installed: as in a place without both."""
    code = (
        "import sys\n"
        "class Without:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name in ('pandas', 'pyspark'): raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Without())\n"
        "import aerobee\n"
        f"one = aerobee.arrow({OTHER!r}, namesrv={filled.namesrv_address!r})\n"
        f"two = aerobee.arrow({OTHER!r}, store={str(filled.data)!r})\n"
        "print(one.num_rows, two.num_rows)"
    )
    assert run(code) == "5 5"


def test_a_store_that_no_broker_runs_on(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = start_broker()
    make_topic(broker, TOPIC)
    fill(broker, TOPIC, bodies(COUNT))
    assert broker.stop() == 0
    before = {path: path.stat().st_mtime_ns for path in broker.data.rglob("*")}
    table = aerobee.arrow(TOPIC, store=broker.data, columns="body")
    assert table.column(0).to_pylist() == bodies(COUNT)
    assert {path: path.stat().st_mtime_ns for path in broker.data.rglob("*")} == before
    [segment] = (broker.data / "commitlog").iterdir()
    content = bytearray(segment.read_bytes())
    # The magic of a record in the middle, with whole records behind it.
    content[content.index(b"\xda\xa3\x20\xa7", len(bodies(COUNT)) * 100)] = 0
    segment.write_bytes(content)
    with pytest.raises(RecordDamagedError, match=segment.name):
        aerobee.arrow(TOPIC, store=broker.data)
    with pytest.raises(ConfigurationError, match=str(tmp_path)):
        aerobee.arrow(TOPIC, store=tmp_path)
