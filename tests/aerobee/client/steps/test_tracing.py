"""The messages that carry traces."""

from __future__ import annotations

from aerobee.client.steps.tracing import KEYS_BYTES, RECORDS_MAX, keys_within
from aerobee.store.format.properties import PROPERTIES_BYTES_MAX


def test_a_trace_has_as_many_keys_as_its_properties_hold() -> None:
    """A batch of a thousand messages has a thousand ids: its trace was refused for them."""
    ids = [f"{number:032X}" for number in range(1_000 * RECORDS_MAX)]
    kept = keys_within(KEYS_BYTES, ids)
    assert kept == tuple(ids[: KEYS_BYTES // 33])
    assert len(" ".join(kept).encode()) <= KEYS_BYTES < PROPERTIES_BYTES_MAX
    assert keys_within(KEYS_BYTES, ["a", "b", "a"]) == ("a", "b")
    assert keys_within(3, ["é", "a"]) == ("é",)
    assert keys_within(2, ["é", "a"]) == ()
