"""The end of a `with` block that failed by itself, and whose end fails as well."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aerobee.errors import AerobeeError

__all__ = ["note_failed_close"]

log = logging.getLogger("aerobee.client")


def note_failed_close(raised: BaseException, failure: AerobeeError) -> None:
    """Add the failure of a close to the block's own exception, which is the one that is raised.

    Cancellations and exits are not shown to anybody, so the failure is logged then.
    """
    raised.add_note(f"and closing failed: {type(failure).__name__}: {failure}")
    if not isinstance(raised, Exception):
        log.error("closing failed: %s", failure)
