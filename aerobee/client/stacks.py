"""The stacks of all threads and tasks of this process, as text."""

from __future__ import annotations

import sys
import threading
import traceback
from types import CoroutineType, FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def stacks() -> str:
    """The stacks: one paragraph for each thread, then for each task of the running event loop."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        lines = traceback.format_stack(frame)
        parts.append(f"thread {names.get(ident, ident)}\n{''.join(lines)}")
    for name, frames in tasks():
        lines = traceback.format_list(traceback.StackSummary.extract(walk(frames)))
        parts.append(f"task {name}\n{''.join(lines)}")
    return "\n".join(parts)


def tasks() -> Iterator[tuple[str, list[FrameType]]]:
    """The tasks of the loop that runs in this thread, asyncio's or trio's, and their frames."""
    # A program that runs one of them has imported it; others need not import it.
    asyncio = sys.modules.get("asyncio")
    try:
        running = asyncio.all_tasks() if asyncio is not None else ()
    except RuntimeError:
        running = ()
    for task in running:
        yield task.get_name(), frames_of(task.get_coro())
    trio = sys.modules.get("trio")
    if trio is None or not trio.lowlevel.in_trio_run():
        return
    waiting = [trio.lowlevel.current_root_task()]
    while waiting:
        child = waiting.pop()
        yield child.name, frames_of(child.coro)
        for nursery in child.child_nurseries:
            waiting += nursery.child_tasks


def frames_of(awaited: object) -> list[FrameType]:
    """The frames of a coroutine and of what it awaits, the outermost first."""
    frames = []
    while isinstance(awaited, CoroutineType) and awaited.cr_frame is not None:
        frames.append(awaited.cr_frame)
        awaited = awaited.cr_await
    return frames


def walk(frames: list[FrameType]) -> Iterator[tuple[FrameType, int]]:
    """The frames with line numbers, as `traceback` takes them."""
    return ((frame, frame.f_lineno) for frame in frames)
