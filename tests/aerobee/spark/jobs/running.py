"""Jobs as their users run them, but in this process and in the session that is there."""

import json
from dataclasses import dataclass
from typing import Any

import click
import pytest


@dataclass(frozen=True, slots=True)
class Done:
    """What a job answered: its exit code, the rows of `--json`, what it said beside them."""

    code: int
    rows: list[dict[str, Any]]
    said: str


def run_job(command: click.Command, *arguments: str, capsys: pytest.CaptureFixture[str]) -> Done:
    """Run a job with `--json`. Raises: whatever it raises."""
    capsys.readouterr()
    code = command.main([*arguments, "--json"], standalone_mode=False)
    told = capsys.readouterr()
    rows = [json.loads(line) for line in told.out.splitlines()]
    return Done(code if isinstance(code, int) else 0, rows, told.err)
