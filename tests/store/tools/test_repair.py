from pathlib import Path

import pytest
import trio

from aerobee.store.errors import StoreLocked
from aerobee.store.files.disk import Disk
from aerobee.store.tools.repair import plan, repair
from aerobee.store.tools.verify import verify
from tests.kit.store_model import LOG_BYTES, log_records, open_store
from tests.store.tools.stores import MESSAGES, filled, flip, stopped

NOW_MS = 1_700_000_000_000


def restarted(root: Path) -> None:
    store, _ = open_store(root, Disk())
    assert trio.run(store.close)


def test_a_cut_loses_what_it_says_and_keeps_a_copy(tmp_path: Path) -> None:
    root = stopped(tmp_path / "store")
    at, _ = log_records(root)[30]
    name = f"{at - at % LOG_BYTES:020d}"
    flip(root / "commitlog" / name, at % LOG_BYTES + 90)
    damaged = (root / "commitlog" / name).read_bytes()
    wanted = plan(root)
    assert wanted.cut_at == at
    assert wanted.cut_messages == MESSAGES - 30
    kept = repair(root, wanted, NOW_MS)
    assert (kept / "commitlog" / name).read_bytes() == damaged
    restarted(root)
    found = verify(root)
    assert found.sound, found
    assert found.messages == 30


def test_queues_are_built_again_and_no_message_is_lost(tmp_path: Path) -> None:
    root = stopped(tmp_path / "store")
    flip(root / "consumequeue" / "T0" / "0" / f"{0:020d}", 26)
    wanted = plan(root)
    assert wanted.cut_at is None
    repair(root, wanted, NOW_MS)
    restarted(root)
    found = verify(root)
    assert found.sound, found
    assert found.messages == MESSAGES


def test_a_sound_directory_needs_nothing_and_a_live_one_is_refused(tmp_path: Path) -> None:
    store = filled(tmp_path / "store")
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr("aerobee.store.tools.repair.verify")
        with pytest.raises(StoreLocked, match="is in use"):
            plan(store.root)
    assert trio.run(store.close)
    assert not plan(store.root).needed
