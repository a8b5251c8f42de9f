"""Handles damage and deleted segments in the read of a store.

Rows are never dropped silently: there is an error that names file and offset, or, where the user
asked for it, a warning and a count.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from aerobee.errors import DataLossError, RecordDamagedError
from aerobee.store.format.faults import CRC

if TYPE_CHECKING:
    from aerobee.spark.options import StoreOptions
    from aerobee.store.format.faults import Fault

log = logging.getLogger("aerobee.spark.store")


def data_lost(options: StoreOptions, text: str) -> None:
    """Report lost messages: an error, or a warning with `failOnDataLoss` false.

    Raises: DataLossError.
    """
    if options.fail_on_data_loss:
        raise DataLossError(f"{text}; failOnDataLoss=false reads what is there")
    log.warning("%s; reading what is there", text)


def removed(options: StoreOptions, path: str) -> None:
    """Report a segment that has been deleted. Raises: DataLossError, as `data_lost`."""
    data_lost(options, f"{path} was deleted while it was to be read")


class Damage:
    """Raises for the first damage, or skips, logs and counts all of it, as `onCorrupt` says."""

    def __init__(self, options: StoreOptions, place: str) -> None:
        """`place` is the file or queue that is read."""
        self._drop = options.on_corrupt == "drop"
        self._place = place
        self.count = 0

    def report(self, fault: Fault, following: int | None) -> None:
        """Report damage of a segment, and the position of the next whole record.

        Raises: RecordDamagedError.
        """
        lost = "nothing follows" if following is None else f"reading goes on at {following}"
        if fault.kind == CRC:
            lost = "this message is left out"
        self.report_fault(fault, lost)

    def report_fault(self, fault: Fault, lost: str = "this message is left out") -> None:
        """Report damage, with its effect on the reader. Raises: RecordDamagedError."""
        kind, position, detail = fault
        text = f"{self._place}: damaged at physical offset {position} ({kind}: {detail})"
        if not self._drop:
            raise RecordDamagedError(
                f"{text}; restore the file from a copy, or leave out what is damaged with "
                "onCorrupt=drop; mode=audit lists all of it"
            )
        self.count += 1
        log.warning("%s; %s", text, lost)

    def summed_up(self) -> None:
        """Log how much was left out."""
        if self.count:
            log.warning("%s: %d damaged places were left out", self._place, self.count)
