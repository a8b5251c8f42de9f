"""A border: what is inside may fail with any error, and nothing outside fails with it.

    with Border() as border:
        serve(request)
    if border.error is not None:
        answer(request, failure_of(border.error))

Servers draw it around a request, so that it ends alone, and the client around the code of its user.
An error that is no `Exception` passes: the cancellation of a task, the end of the process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self


class Border:
    """A border that is passed once."""

    __slots__ = ("error",)

    def __init__(self) -> None:
        self.error: Exception | None = None
        """The error that was raised inside, if any was."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if isinstance(error, Exception):
            self.error = error
        return self.error is not None
