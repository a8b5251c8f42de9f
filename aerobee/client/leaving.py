"""Handling of a close that fails after the `with` block has raised an exception."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aerobee.errors import AerobeeError

log = logging.getLogger("aerobee.client")


def note_failed_close(raised: BaseException, failure: AerobeeError) -> None:
    """Add the failure of a close as a note to the block's own exception, which is raised.

    Cancellations and exits are not printed, so the failure is logged then.
    """
    raised.add_note(f"and closing failed: {type(failure).__name__}: {failure}")
    if not isinstance(raised, Exception):
        log.error("closing failed: %s", failure)
