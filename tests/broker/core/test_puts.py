"""What the broker itself puts: hooks, settled places, and knowing that it is on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aerobee.broker.core.drafts import draft_again
from aerobee.broker.errors import Refusal
from aerobee.store.format.properties import decode
from aerobee.store.format.record import MessageDraft, read
from aerobee.store.results import PutStatus
from tests.broker.desk import BORN_MS, open_desk

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.store.message_store import MessageStore
    from aerobee.store.results import PutResult

HOST = bytes([127, 0, 0, 1, 0, 0, 195, 80])


def draft(topic: str = "t", **changes: object) -> MessageDraft:
    made = MessageDraft(topic, 0, b"hello", b"", HOST, HOST, born_timestamp=BORN_MS)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def stored(store: MessageStore, result: PutResult) -> tuple[str, dict[str, str]]:
    view = store.read(result.physical_offset)
    assert view is not None
    record = read(view, 0)
    return record.topic, decode(record.properties)


@pytest.mark.trio
async def test_hooks_turn_a_message_in_their_order_and_know_its_store_time(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        puts, times = desk.puts, []

        def aside(
            draft: MessageDraft, properties: dict[str, str], now_ms: int, accepted: bool
        ) -> None:
            times.append(now_ms)
            properties["REAL_TOPIC"] = draft.topic
            draft.topic = "aside"

        def last(
            draft: MessageDraft, properties: dict[str, str], now_ms: int, accepted: bool
        ) -> None:
            properties["SEEN"] = draft.topic

        puts.hooks = [aside, last]
        result = puts.put(draft(), {"TAGS": "a"})
        assert stored(desk.store, result) == (
            "aside",
            {"TAGS": "a", "REAL_TOPIC": "t", "SEEN": "aside"},
        )
        assert times == [result.store_timestamp]


@pytest.mark.trio
async def test_what_a_hook_refuses_is_not_stored(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:

        def no(
            draft: MessageDraft, properties: dict[str, str], now_ms: int, accepted: bool
        ) -> None:
            raise Refusal(13, "no")

        desk.puts.hooks = [no]
        with pytest.raises(Refusal):
            desk.puts.put(draft(), {})
        assert desk.store.commit_log.max_offset == 0


@pytest.mark.trio
async def test_a_message_put_again_elsewhere_keeps_body_times_and_hosts(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        puts, store = desk.puts, desk.store
        first = puts.put(draft(flag=5, reconsume_times=2), {"TAGS": "a"})
        view = store.read(first.physical_offset)
        assert view is not None
        before = read(view, 0)
        again = puts.put_as_is(draft_again(before, "u", 3, before.properties))
        assert again.status is PutStatus.PUT_OK
        view = store.read(again.physical_offset)
        assert view is not None
        after = read(view, 0)
        assert (after.topic, after.queue_id, after.queue_offset) == ("u", 3, 0)
        kept = ("flag", "born_timestamp", "born_host", "store_host", "reconsume_times")
        assert [getattr(after, name) for name in kept] == [getattr(before, name) for name in kept]
        assert bytes(after.body) == b"hello"
        assert after.properties == before.properties


@pytest.mark.trio
async def test_durable_waits_for_the_disk(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        result = desk.puts.put(draft(), {})
        await desk.puts.durable()
        assert desk.store.commit_log.flushed >= result.end_offset
