"""Objects that only a search for cycles would free."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def no_searches(*kinds: type) -> Iterator[Callable[[], int]]:
    """Keep the interpreter from searching; the function counts the objects of these kinds that were
    made since. Those of tests before may live on.
    """
    gc.collect()
    before = [one for one in gc.get_objects() if type(one) in kinds]
    gc.disable()
    try:
        yield lambda: sum(type(one) in kinds for one in gc.get_objects()) - len(before)
    finally:
        gc.enable()


async def until_freed(made: Callable[[], int]) -> None:
    """Wait until no object that `made` counts is left. Raises: trio.TooSlowError."""
    with trio.fail_after(60):
        while made():  # noqa: ASYNC110  (nothing tells of it)
            await trio.sleep(0.01)
