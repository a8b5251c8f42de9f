"""Lines of the log in Spark's processes: when, how grave, of which query."""

from __future__ import annotations

import logging
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

from pyspark import TaskContext

from aerobee.spark import logs

if TYPE_CHECKING:
    import pytest

PROPERTIES = {"sql.streaming.queryId": "5f0c2a1b-1111", "streaming.sql.batchId": "7"}


def test_a_line_says_which_task_it_is_of(monkeypatch: pytest.MonkeyPatch) -> None:
    task = SimpleNamespace(
        getLocalProperty=PROPERTIES.get, stageId=lambda: 9, partitionId=lambda: 0
    )
    monkeypatch.setattr(TaskContext, "get", lambda: task)
    assert logs.of_query() == " [query 5f0c2a1b, batch 7, stage 9, partition 0]"
    monkeypatch.setattr(TaskContext, "get", lambda: None)
    assert logs.of_query() == ""


def test_what_is_set_up_already_stays() -> None:
    assert logging.getLogger().handlers, "pytest's"
    before = list(logging.getLogger("aerobee").handlers)
    logs.set_up()
    assert logging.getLogger("aerobee").handlers == before


def test_a_process_without_logging_says_when_and_how_grave_once() -> None:
    code = (
        "from aerobee.spark.logs import set_up; import logging; set_up(); set_up();"
        "logging.getLogger('aerobee.spark').warning('gone: %d', 3)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    [line] = done.stderr.splitlines()
    assert line[:2] == "20"
    assert line.endswith(" WARNING aerobee.spark: gone: 3")
