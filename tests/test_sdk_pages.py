"""Every program on the pages about the SDK runs, against a real broker, in their order."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import StartBroker

ROOT = Path(__file__).parents[1]
PAGES = ("start", "errors")
PROGRAM = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
WITHIN_S = 60


@pytest.mark.service
def test_every_program_runs(start_broker: StartBroker) -> None:
    broker = start_broker()
    environment = os.environ | {"NAMESRV_ADDR": broker.namesrv_address}
    programs = [
        program
        for page in PAGES
        for program in PROGRAM.findall((ROOT / "docs" / "sdk" / f"{page}.md").read_text())
    ]
    assert len(programs) >= 5
    for program in programs:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            env=environment,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
        assert not done.returncode, f"{program}\n{done.stderr}"
        assert done.stdout
