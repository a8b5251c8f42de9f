"""The time of a segment's first record, from its file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aerobee.store.files.disk import Disk
from aerobee.store.format.record import encode
from aerobee.store.log.segment_head import first_store_time
from tests.kit.store_model import HOST, draft

if TYPE_CHECKING:
    from pathlib import Path

HOST6 = bytes(16) + (10911).to_bytes(4, "big")


def segment(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "segment"
    path.write_bytes(data.ljust(4_096, b"\0"))
    return path


@pytest.mark.parametrize("born", [HOST, HOST6])
def test_it_is_found_for_both_address_families(tmp_path: Path, born: bytes) -> None:
    message = draft()
    message.born_host = born
    path = segment(tmp_path, encode(message, 0, 8_192, 1_700_000_000_123))
    assert first_store_time(Disk(), path, 8_192) == 1_700_000_000_123
    assert first_store_time(Disk(), path, 4_096) == -1, "a record of another place"


def test_an_empty_or_short_segment_has_none(tmp_path: Path) -> None:
    assert first_store_time(Disk(), segment(tmp_path, b""), 0) == -1
    (tmp_path / "short").write_bytes(b"abc")
    assert first_store_time(Disk(), tmp_path / "short", 0) == -1
