"""The syncs that threads wait for at this moment."""

from __future__ import annotations

from contextlib import contextmanager
from threading import get_ident
from typing import TYPE_CHECKING

from aerobee.store.errors import SyncFailed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Syncs:
    """Threads register themselves here while they sync. True while one does."""

    def __init__(self) -> None:
        self._threads: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._threads)

    @contextmanager
    def one(self, path: Path) -> Iterator[None]:
        """Around the sync of a file or directory. Raises: SyncFailed for an OSError."""
        thread = get_ident()
        self._threads.add(thread)
        try:
            yield
        except OSError as error:
            raise SyncFailed(error.errno, error.strerror, str(path)) from error
        finally:
            self._threads.discard(thread)
