"""What an earlier build has written opens here; with load, and back again: U1 to U3."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.broker.config.load import load_config
from tests.kit import older

if TYPE_CHECKING:
    from pathlib import Path

MACHINE: dict[str, Any] = {
    "environ": {"HOME": "/h"},
    "cpu_count": 3,
    "host_addresses": [],
    "host_name": "b",
}


@pytest.mark.parametrize("age", ["oldest", "newest"])
def test_every_setting_of_an_earlier_build_opens(age: str, tmp_path: Path) -> None:
    """All keys, each with the default of its day."""
    build = older.builds()[0 if age == "oldest" else -1]
    every = older.text(build, "conf/broker.yaml")
    file = tmp_path / "broker.yaml"
    file.write_text(re.sub(r"(?m)^  #(?=\w)", "  ", every), "utf-8")
    config = load_config(file, **MACHINE)
    assert len(config.sources) > 100
    assert config.warnings == ()
