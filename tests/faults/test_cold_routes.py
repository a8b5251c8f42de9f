"""Every request, where nothing can be read without waiting: it has its effect once."""

from __future__ import annotations

import inspect
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import trio

from aerobee.broker.errors import Refusal
from aerobee.remoting.errors import RemotingError
from aerobee.remoting.server.routes import PendingAnswer, finished, is_steps
from aerobee.store.errors import StoreError
from tests.broker.desk import answered, open_desk, said
from tests.kit.cold_disk import ColdDisk
from tests.kit.store_model import Sent, batch_body

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.remoting.wire.header import Header
    from tests.broker.desk import Desk

pytestmark = pytest.mark.trio

DEDUPED = "t=KEYS@60s"
PROPERTIES = "UNIQ_KEY\x01A1\x02KEYS\x01k\x02"
HALF = f"{PROPERTIES}TRAN_MSG\x01true\x02PGROUP\x01g\x02"
NUMBERS = {"max_msg_nums": 8, "max_num": 8, "count": 1, "invisible_time": 10_000, "timestamp": 0}
TEXTS = {"topic": "t", "lite_topic": "t", "exp_type": "TAG", "exp": "*", "subscription": "*"}


def header_of(cls: type[Any], physical_offset: int, half: dict[str, Any]) -> Any:
    """A request about the first message of queue 0 of `t`, as group `g`."""
    values: dict[str, Any] = {}
    for info in msgspec.structs.fields(cls):
        name, kind = info.name, str(info.type)
        if name in half:
            values[name] = half[name]
        elif name == "offset":
            values[name] = physical_offset
        elif name == "properties":
            values[name] = PROPERTIES
        elif not info.required and "group" not in name and name != "topic":
            continue
        elif "bool" in kind:
            values[name] = False
        elif "int" in kind:
            values[name] = NUMBERS.get(name, 0)
        else:
            values[name] = TEXTS.get(name, "g" if "group" in name else "x")
    return cls(**values)


async def serve(desk: Desk, header: Header, body: bytes) -> None:
    """One request to its end, or until it is held; what it refuses it refuses."""
    with suppress(Refusal, StoreError, RemotingError):
        outcome = desk.begin(header, body)
        if is_steps(steps := outcome):
            outcome = answered(lambda: finished(steps))
        desk.after_round()
        if isinstance(outcome, PendingAnswer):
            outcome = outcome.work
        if inspect.isawaitable(outcome):
            with trio.move_on_after(5):
                await outcome
    desk.after_round()


async def prepared(desk: Desk) -> tuple[int, dict[str, Any]]:
    """A message, and an open half: the places of both."""
    await desk.dedupe.run()
    desk.topic("t", read_queue_nums=1, write_queue_nums=1)
    first = said(await desk.send("t", properties="UNIQ_KEY\x01A0\x02"))
    half = said(await desk.send("t", properties=HALF))
    place = {
        "commit_log_offset": int(half["msgId"][16:], 16),
        "tran_state_table_offset": int(half["queueOffset"]),
        "commit_or_rollback": 8,
        "producer_group": "g",
    }
    return int(first["msgId"][16:], 16), place


TWICE = batch_body([Sent(b"one", b"KEYS\x01b\x02"), Sent(b"two", b"KEYS\x01b\x02")])
BODIES = {"SendMessage": b"hello", "SendMessageV2": b"hello", "SendBatchMessage": TWICE}


async def effects(root: Path, disk: ColdDisk, *, cold: bool) -> dict[str, int]:
    """How many messages each request of the route table has stored."""
    stored: dict[str, int] = {}
    changes: dict[str, Any] = {"access_message_in_memory_max_ratio_percent": 0}
    async with open_desk(root, disk, dedupe=DEDUPED, **changes) as desk:
        physical_offset, half = await prepared(desk)
        disk.cold = cold
        desk.store.commit_log.mapped_from = desk.store.commit_log.max_offset
        for route in desk.broker.routes:
            if route.pool == "admin":
                # They would delete what the others are about.
                continue
            before = desk.store.stats.messages_put
            try:
                header = header_of(route.header, physical_offset, half)
            except TypeError:
                continue
            await serve(desk, header, BODIES.get(route.header.__name__, b"{}"))
            stored[route.header.__name__] = desk.store.stats.messages_put - before
        disk.cold = False
    return stored


async def test_a_request_stores_as_much_where_each_read_has_to_wait(tmp_path: Path) -> None:
    """A call that reads may be made again; none has an effect before its last read."""
    warm = await effects(tmp_path / "warm", ColdDisk(cold=False), cold=False)
    cold = await effects(tmp_path / "cold", ColdDisk(cold=False), cold=True)
    assert cold == warm
    assert (warm["SendMessage"], warm["SendMessageV2"]) == (1, 0), "the second repeats the first"
    stores = {name for name, count in warm.items() if count}
    assert stores >= {"SendBatchMessage", "ConsumerSendMsgBack", "EndTransaction"}
    assert "PopMessage" in stores
