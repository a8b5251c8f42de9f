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
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
WITHIN_S = 60
AGAIN = "\nfrom aerobee.blocking import *\n"
"""A page may use the async names in between."""


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_every_example_of_a_page_runs(page: Path, start_broker: StartBroker) -> None:
    blocks = BLOCK.findall(page.read_text())
    assert blocks
    address = start_broker().namesrv_address
    namesrv = f"namesrv = {address!r}\n"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", namesrv + AGAIN.join(blocks)],
        capture_output=True,
        text=True,
        check=False,
        timeout=WITHIN_S,
        env={**os.environ, "NAMESRV_ADDR": address},
    )
    assert done.returncode == 0, done.stderr
