"""All candidates of a walk through the index, in small steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aerobee.store.index.index_walk import IndexWalk


def candidates(walk: IndexWalk, step: int = 3) -> list[int]:
    """Physical offsets, newest first."""
    found: list[int] = []
    while not walk.ended:
        before = walk.looked
        walk.step(step)
        moved = walk.looked > before or walk.ended
        assert moved, "a step that does nothing"
        found += walk.found
        walk.found.clear()
    return found
