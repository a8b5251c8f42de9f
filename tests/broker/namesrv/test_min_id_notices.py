"""Brokers of one name are told which of them has the smallest id."""

from __future__ import annotations

import json
import struct
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio

from aerobee.broker.namesrv.min_id_notices import MinIdNotices
from aerobee.broker.namesrv.registrations import MinIdChange
from aerobee.remoting.client.link import PLAIN
from tests.kit.ports import HOST, free_port

if TYPE_CHECKING:
    from tests.kit.logged import Logged

WITHIN_S = 10.0


@pytest.mark.trio
async def test_all_who_can_be_reached_are_told_once_and_one_way(logged: Logged) -> None:
    heard: list[bytes] = []
    over = trio.Event()

    async def hear(stream: trio.SocketStream) -> None:
        heard.append(b"".join([bytes(data) async for data in stream]))
        if len(heard) == 2:
            over.set()

    notices = MinIdNotices(lambda: PLAIN)
    with trio.fail_after(WITHIN_S):
        async with trio.open_nursery() as nursery:
            serve = partial(trio.serve_tcp, hear, 0, host=HOST)
            [listener] = await nursery.start(serve)
            here = f"{HOST}:{listener.socket.getsockname()[1]}"
            nowhere = f"{HOST}:{free_port()}"
            await nursery.start(notices.run)
            notices.tell(MinIdChange({1: nowhere, 2: here}, (nowhere, here), offline="x:1"))
            notices.tell(MinIdChange({0: "y:1", 2: here}, (here,), ha_address="y:2"))
            await over.wait()
            nursery.cancel_scope.cancel()
    fields = [header_of(frame) for frame in heard]
    assert fields == [
        {"minBrokerId": "1", "minBrokerAddr": nowhere, "offlineBrokerAddr": "x:1"},
        {"minBrokerId": "0", "minBrokerAddr": "y:1", "haBrokerAddr": "y:2"},
    ]
    [unheard] = [line for line in logged if line["event"] == "namesrv.min_id_unheard"]
    assert unheard["address"] == nowhere


def header_of(frame: bytes) -> object:
    length = struct.unpack_from(">i", frame, 4)[0] & 0xFFFFFF
    header = json.loads(frame[8 : 8 + length])
    assert (header["code"], header["flag"]) == (905, 2)
    return header["extFields"]
