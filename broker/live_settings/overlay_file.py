"""The overlay file of changes made while running: YAML, one line for each setting.

It is replaced as a whole, and its previous content stays beside it as `.bak`. Lines that this
version does not know are kept, for the version that wrote them. Source: configuration §4.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aerobee.broker.config.files.entries import ConfigurationError
from aerobee.broker.config.load import overlay_entries, overlay_mistakes
from aerobee.broker.config.report import overlay_lines

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from aerobee.broker.config.layers import Setting
    from aerobee.store.files.disk import Disk

HEAD: Final = """\
# Settings that were changed while the broker ran. They win over the file and the environment, and
# the command line wins over them. Take a line out to undo a change: at the next start, or SIGHUP.
"""


class OverlayFile:
    """The file at `path`; its directory is created by the first write."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self.path = path
        self.disk = disk

    def check(self) -> None:
        """Look for mistakes of an operator who edited it. Blocking. Raises: ConfigurationError."""
        mistakes = overlay_mistakes(self.path)
        if mistakes:
            raise ConfigurationError(mistakes)

    def add(self, settings: Mapping[str, Setting]) -> None:
        """Add or replace these settings, by canonical name, durably. Blocking.

        Raises: OSError.
        """
        entries, unreadable = overlay_entries(self.path)
        text = HEAD + "".join(f"{line}\n" for line in overlay_lines(entries, settings))
        self.disk.mkdir(self.path.parent)
        if self.disk.exists(self.path) and not unreadable:
            # A copy, not a rename: the file itself exists at every moment. A file that cannot be
            # read is no backup: what stands in for it is the one that is there.
            backup = self.path.with_name(f"{self.path.name}.bak")
            self.disk.write_atomically(backup, self.disk.read(self.path), backup=False)
        self.disk.write_atomically(self.path, text.encode(), backup=False)
