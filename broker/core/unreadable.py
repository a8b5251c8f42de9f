"""Messages that the disk cannot read, as of a bad sector: told once, and others go on."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from aerobee.store.errors import Unreadable
from aerobee.store.format.tags import TagFilter

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.broker.filters.subscription import Filter
    from aerobee.store.message_store import MessageStore
    from aerobee.store.results import Location

T = TypeVar("T")


async def read_or_tell(
    store: MessageStore, service: str, call: Callable[[int], T], most: int, first: Location
) -> T | None:
    """As `MessageStore.complete_some`; None where the disk cannot read the first message, which is
    told. Raises: as that, but Unreadable.
    """
    try:
        return await store.complete_some(call, most)
    except Unreadable as error:
        store.aside.unreadable(service, first, error)
        return None


async def tell_first_wanted(
    store: MessageStore,
    service: str,
    begin: Location,
    matches: Filter | None,
    error: Unreadable,
) -> Location:
    """Tell of the message that a read cannot pass, and return where it is: the first from `begin`
    on that a filter by tags lets pass. Raises: OSError.
    """
    where = begin
    if isinstance(matches, TagFilter):
        first = partial(
            store.first_wanted, begin.topic, begin.queue_id, begin.queue_offset, matches
        )
        where = begin._replace(queue_offset=await store.complete(first))
    store.aside.unreadable(service, where, error)
    return where
