"""Every Python example of the SDK's pages runs, top to bottom, against a broker of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import StartBroker

pytestmark = pytest.mark.service

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs" / "sdk").glob("*.md"))
TESTING = "testing"
"""Its examples are tests."""
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NAMESRV = "In the examples `namesrv` is the address of a name server"
"""On the pages of which the reader gives the examples this name."""
WITHIN_S = 60


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.stem != TESTING], ids=lambda path: path.stem
)
def test_every_example_of_a_page_runs(page: Path, start_broker: StartBroker) -> None:
    text = page.read_text()
    blocks = BLOCK.findall(text)
    assert blocks
    address = start_broker().namesrv_address
    namesrv = f"namesrv = {address!r}\n" if NAMESRV in text else ""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", namesrv + "".join(blocks)],
        capture_output=True,
        text=True,
        check=False,
        timeout=WITHIN_S,
        env={**os.environ, "NAMESRV_ADDR": address},
    )
    assert done.returncode == 0, done.stderr


def test_the_examples_of_testing_are_tests_that_pass(tmp_path: Path) -> None:
    blocks = BLOCK.findall((ROOT / "docs" / "sdk" / f"{TESTING}.md").read_text())
    for number, block in enumerate(blocks):
        name = "conftest.py" if block.startswith("# conftest.py") else f"test_{number}.py"
        (tmp_path / name).write_text(block)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"],
        capture_output=True,
        text=True,
        check=False,
        timeout=WITHIN_S,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout
    assert f"{len(blocks) - 1} passed" in done.stdout
