"""The Python end of `tests/interop/python5/program.py`: many clients of the official SDK."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.kit.process import Child
from tests.kit.python_client import VERSION, interpreter

PROGRAM = Path(__file__).parents[1] / "interop" / "python5" / "program.py"
START_WITHIN_S = 60.0
ANSWER_WITHIN_S = 60.0
"""Longer than any wait of the SDK."""


class SdkError(Exception):
    """What the SDK raised: the name of its class, and its text."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


class Python5:
    """One process, in which clients have names."""

    def __init__(self, home: Path, endpoints: str, *, version: str = VERSION) -> None:
        """The SDK writes its log below `home`."""
        self._connection = {"endpoints": endpoints}
        env = {**os.environ, "HOME": str(home)}
        command = [str(interpreter(version)), str(PROGRAM)]
        self.child = Child(command, log=home / f"python-{version}.log", env=env)
        self.child.read_until("ready", within_s=START_WITHIN_S)

    def call(self, do: str, **values: Any) -> Any:
        """What one command answers. Raises: SdkError; DidNotStart when the process is gone."""
        self.child.write_line(json.dumps({"do": do, **values}))
        answer = json.loads(self.child.read_line(within_s=ANSWER_WITHIN_S))
        if "error" in answer:
            raise SdkError(answer["error"], answer["text"])
        return answer["answer"]

    def start(self, kind: str, name: str, **values: Any) -> None:
        """Start a client: a producer, or a simple or push consumer."""
        self.call(kind, name=name, **{**self._connection, **values})
