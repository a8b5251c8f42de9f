"""Splits messages into batches of one request each. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.client.message import Message

BATCH_BYTES = 1 << 20
"""The encoded size at which `send_batch` begins another request."""


def split(messages: Sequence[Message], limit_bytes: int) -> list[list[int]]:
    """Split messages into batches, given as indexes in the list.

    A batch has the same topic, wait_store_ok and ordering key; at most `limit_bytes` unless one
    message alone is larger. A delayed message is alone: brokers refuse them in batches.
    """
    chunks: list[list[int]] = []
    open_chunks: dict[tuple[str, bool, str | None], tuple[list[int], int]] = {}
    for index, message in enumerate(messages):
        if message.delayed:
            chunks.append([index])
            continue
        kind = (message.topic, message.wait_store_ok, message.ordering_key)
        size = _batch_size(message)
        chunk, used = open_chunks.get(kind, ([], 0))
        if not chunk or used + size > limit_bytes:
            chunk, used = [], 0
            chunks.append(chunk)
        chunk.append(index)
        open_chunks[kind] = (chunk, used + size)
    return chunks


def _batch_size(message: Message) -> int:
    """The size of one message in a batch, or a little more."""
    named = sum(len(name) + len(value) + 2 for name, value in message.properties.items())
    keys = sum(len(key) + 1 for key in message.keys)
    return len(message.body) + 3 * (named + keys + len(message.tag or "")) + 128
