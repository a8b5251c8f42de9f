"""The store of a test dispatches all that it has, however slow the machine is."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING

import pytest

from aerobee.store.files.disk import Disk
from tests.kit.running_store import running_store
from tests.kit.store_model import draft

if TYPE_CHECKING:
    from pathlib import Path


def stand_still(_request: object) -> None:
    Event().wait(0.01)


@pytest.mark.trio
async def test_one_dispatch_is_enough_on_a_machine_that_stands_still_in_it(tmp_path: Path) -> None:
    async with running_store(tmp_path, Disk()) as store:
        store.dispatcher.followers.append(stand_still)
        for _ in range(20):
            store.put(draft())
        store.dispatch()
        assert store.max_offset("T", 0) == 20
