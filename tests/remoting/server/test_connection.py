"""One connection: what its first request may say, and what that must not break."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from remoting.wire.codes import ResponseCode
from tests.kit.raw_client import request_frame
from tests.remoting.server.test_reactor import MAX_OFFSET, call, in_thread, running

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.trio

MANY = {f"field{number}": "x" for number in range(200)}


@pytest.mark.parametrize(
    "ext", [b"[1]", b"5", b'"aeroSer"', b'{"aeroSer":[[2]]}'], ids=lambda ext: ext.decode()
)
async def test_a_first_request_with_odd_fields_disturbs_nobody(ext: bytes) -> None:
    header = b'{"code":%d,"flag":0,"opaque":1,"extFields":%b}' % (MAX_OFFSET, ext)
    frame = b"".join(
        (
            (4 + len(header)).to_bytes(4, "big"),
            len(header).to_bytes(4, "big"),
            header,
        )
    )
    async with running(portable=False) as server:
        with await server.client() as client, await server.client() as other:
            client.send_bytes(frame)
            assert (await in_thread(client.hear)).code == ResponseCode.SYSTEM_ERROR
            assert (await call(other)).code == 0


@pytest.mark.parametrize(
    "fields", [{"aeroSer": "2"}, {"aeroSer": 2}, MANY], ids=["2", "two", "many"]
)
async def test_the_offer_of_msgpack_is_granted_once(fields: Mapping[str, object]) -> None:
    asked = {"topic": "t", "queueId": 1, **fields}
    async with running(portable=False) as server:
        with await server.client() as client:
            for opaque, granted in ((1, "2" if "aeroSer" in fields else None), (2, None)):
                client.send_bytes(request_frame(MAX_OFFSET, opaque, asked))
                answer = await in_thread(client.hear)
                assert (answer.code, answer.ext.get("aeroSer")) == (0, granted)
