"""docs/services.md is true: these services, these events, and an error of the disk ends none."""

from __future__ import annotations

import errno
import re
from pathlib import Path

import pytest

from tests.faults.services import names_of_services, outage, run_names

PAGE = Path(__file__).parents[2] / "docs" / "services.md"
EVENTS = PAGE.with_name("events.md")


def rows(title: str) -> dict[str, str]:
    """Service → what its row says, from the table below such a title."""
    part = PAGE.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("| ")][1:]
    return {line.split("|")[1].strip(" `"): line for line in lines}


def test_the_page_has_every_service_of_a_broker_and_no_other(tmp_path: Path) -> None:
    assert sorted(rows("Of a broker")) == sorted(run_names(tmp_path))


def test_each_event_that_the_page_names_exists() -> None:
    told = set(re.findall(r"^\| `([a-z_]+\.[a-z_]+)`", EVENTS.read_text(), re.MULTILINE))
    for line in [*rows("Of a broker").values(), *rows("Beside them").values()]:
        named = set(re.findall(r"`([a-z_]+\.[a-z_]+)`", line.rsplit("|", 2)[1]))
        assert named <= told, (line, named - told)


@pytest.mark.trio
async def test_the_services_are_named_in_the_order_of_their_start(tmp_path: Path) -> None:
    assert names_of_services(tmp_path)[0] == "MessageStore"


def test_an_error_of_a_close_ends_nothing(tmp_path: Path) -> None:
    """It ended the process: the unmapping of old segments closes their descriptors."""
    life = outage(tmp_path / "d", "MessageStore", errno.EIO)
    assert life.disk.refused["close"]
    assert life.acked
