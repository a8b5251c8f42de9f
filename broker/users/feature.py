"""Users and policies of the broker: their tables, and the requests about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.core.feature import Feature
from aerobee.broker.users.directory import UserDirectory

if TYPE_CHECKING:
    from aerobee.broker.core.core import Core

__all__ = ["UsersFeature"]


class UsersFeature(Feature):
    """The users and their rights, for the broker and its name server."""

    def __init__(self, core: Core) -> None:
        self.directory = UserDirectory(core.config.auth, core.tables, core.rounds.reactor.cut_off)
        self.routes = self.directory.routes
        self.saved = self.directory.saved

    def load(self) -> None:
        """Read the tables."""
        self.directory.load()
