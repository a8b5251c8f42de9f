"""A desk whose timers, pops and revival run, and a consumer that pops from it; time is virtual."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import trio
import trio.testing

from aerobee.broker.pop.pop_records import Receipt, receipt_of
from aerobee.remoting.wire.bodies.pop import BatchAck, BatchAckRequest, bit_set
from aerobee.remoting.wire.headers import pop as headers
from aerobee.store.format.properties import decode, encode
from aerobee.store.format.record import Record, records
from tests.broker.desk import Desk, body_of, open_desk, said

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path

    from aerobee.remoting.wire.answer import Answer
    from aerobee.store.clock import Clock
    from aerobee.store.files.disk import Disk

BROKER = "desk"


class Popped(NamedTuple):
    """A message as a client has it: what was sent, and the handle to answer with."""

    record: Record
    receipt: Receipt
    properties: dict[str, str]

    @property
    def body(self) -> bytes:
        return bytes(self.record.body)


class Pops:
    """What a test does."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.count = 0

    async def send(
        self, *bodies: bytes, topic: str = "t", queue_id: int = 0, tag: str = ""
    ) -> None:
        for body in bodies:
            self.count += 1
            properties = encode({"UNIQ_KEY": f"K{self.count}", "TAGS": tag})
            answer = await self.desk.send(topic, body, queue_id=queue_id, properties=properties)
            assert answer.code == 0, answer

    def header(self, **fields: Any) -> headers.PopMessage:
        given = {
            "consumer_group": "g",
            "topic": "t",
            "queue_id": -1,
            "max_msg_nums": 32,
            "invisible_time": 60_000,
            "poll_time": 0,
            "born_time": self.desk.now_ms(),
            "init_mode": 0,
            **fields,
        }
        return headers.PopMessage(**given)

    async def pop(self, **fields: Any) -> list[Popped]:
        """What a pop that need not wait brings."""
        answer = await self.desk.ask(self.header(**fields))
        assert answer.code in (0, 210), answer
        return popped_of(answer, fields.get("topic", "t"))

    async def bodies(self, **fields: Any) -> list[bytes]:
        """Their bodies, sorted."""
        return sorted(one.body for one in await self.pop(**fields))

    async def ack(self, message: Popped, *, group: str = "g", topic: str = "t") -> Answer:
        receipt = message.receipt
        return await self.desk.ask(
            headers.AckMessage(
                group,
                real_topic(topic, group, receipt),
                receipt.queue_id,
                receipt.text(),
                receipt.offset,
            )
        )

    async def ack_all(self, messages: Iterable[Popped], *, group: str = "g") -> Answer:
        """In one request."""
        by_pop: dict[Receipt, list[int]] = {}
        for message in messages:
            key = message.receipt._replace(offset=-1)
            by_pop.setdefault(key, []).append(message.receipt.offset)
        acks = [
            batch_ack(receipt, group, bit_set(offsets, receipt.start_offset))
            for receipt, offsets in by_pop.items()
        ]
        body = BatchAckRequest(acks=acks, broker_name=BROKER).to_bytes()
        return await self.desk.ask(headers.BatchAckMessage(), body)

    async def hide(self, message: Popped, invisible_ms: int, *, group: str = "g") -> Answer:
        receipt = message.receipt
        return await self.desk.ask(
            headers.ChangeInvisibleTime(
                group,
                real_topic("t", group, receipt),
                receipt.queue_id,
                receipt.text(),
                receipt.offset,
                invisible_ms,
            )
        )

    async def hidden(self, message: Popped, invisible_ms: int) -> Popped:
        """The message under its new receipt."""
        answer = await self.hide(message, invisible_ms)
        assert answer.code == 0, answer
        now = said(answer)
        receipt = message.receipt._replace(
            start_offset=message.receipt.offset,
            pop_time=int(now["popTime"]),
            invisible_time=int(now["invisibleTime"]),
            revive_qid=int(now["reviveQid"]),
        )
        return message._replace(receipt=receipt)

    def open_check_points(self) -> int:
        return sum(len(queue.open) for queue in self.desk.revive.queues)

    async def stop(self) -> None:
        """As the controller does before its nursery ends."""
        assert await self.desk.broker.close()


def real_topic(topic: str, group: str, receipt: Receipt) -> str:
    return {"0": topic, "1": f"%RETRY%{group}_{topic}", "2": f"%RETRY%{group}+{topic}"}[
        receipt.retry
    ]


def popped_of(answer: Answer, topic: str = "t") -> list[Popped]:
    """The messages of an answer with their receipts, made as the Java client makes them."""
    if answer.code:
        return []
    header = said(answer)
    starts = {tuple(entry.split()[:2]): int(entry.split()[2]) for entry in infos(header, "start")}
    places = {
        (entry.split()[0], entry.split()[1], int(offset))
        for entry in infos(header, "msg")
        for offset in entry.split()[2].split(",")
    }
    assert len(starts) == len(infos(header, "start")), "a second entry makes the client throw"
    found = []
    for record in records([body_of(answer)]):
        assert record.topic == topic
        properties = decode(record.properties)
        if "POP_CK" in properties:
            receipt = receipt_of(properties["POP_CK"])
        else:
            receipt = Receipt(
                starts["0", str(record.queue_id)],
                int(header["popTime"]),
                int(header["invisibleTime"]),
                int(header["reviveQid"]),
                "0",
                BROKER,
                record.queue_id,
                record.queue_offset,
            )
        places.remove((receipt.retry, str(receipt.queue_id), receipt.offset))
        found.append(Popped(record, receipt, properties))
    assert not places, "every offset that is told has its message"
    return found


def infos(header: dict[str, str], kind: str) -> list[str]:
    text = header.get(f"{kind}OffsetInfo", "")
    return text.split(";") if text else []


@asynccontextmanager
async def open_pops(
    root: Path,
    disk: Disk | None = None,
    *,
    wall: Clock | None = None,
    **changes: Any,
) -> AsyncIterator[Pops]:
    """A topic `t` with one queue, a group `g`; everything that pops need runs."""
    async with open_desk(root, disk, clock=wall, **changes) as desk, trio.open_nursery() as nursery:
        if desk.topics.get("t") is None:
            desk.topic("t", read_queue_nums=1, write_queue_nums=1)
        assert desk.timers is not None
        await nursery.start(desk.timers.run)
        await nursery.start(desk.revive.run)
        await nursery.start(desk.pop_hold.run)
        yield Pops(desk)
        nursery.cancel_scope.cancel()


def batch_ack(receipt: Receipt, group: str, bits: str) -> BatchAck:
    """The entry of a batch acknowledgement for a pop of topic `t`."""
    return BatchAck(
        bits=bits,
        group=group,
        invisible_time=receipt.invisible_time,
        pop_time=receipt.pop_time,
        queue_id=receipt.queue_id,
        retry=receipt.retry,
        revive_qid=receipt.revive_qid,
        start_offset=receipt.start_offset,
        topic="t",
    )
