"""Message queries: by key and by id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.core.feature import Feature
from aerobee.broker.query.key_queries import KeyQueries
from aerobee.broker.query.query import QueryProcessor
from aerobee.remoting.server.routes import Route
from aerobee.remoting.wire.headers import query as headers

if TYPE_CHECKING:
    from aerobee.broker.core.core import Core
    from aerobee.remoting.server.caller import Caller


class QueryFeature(Feature):
    """The requests that look messages up."""

    def __init__(self, core: Core) -> None:
        requests = QueryProcessor(store=core.store, guarded=core.config.auth.enabled)
        self._queries = KeyQueries(core.store, core.rounds.reactor.flush)
        self.services = (self._queries,)
        self.routes = (
            Route(headers.QueryMessage, self._queries.by_key, "query"),
            Route(headers.ViewMessageById, requests.by_id, "query"),
        )

    def connection_closed(self, connection: Caller) -> None:
        """End its queries."""
        self._queries.closed(connection)

    async def leave(self) -> None:
        """Answer all queries: a search does not hold up the stop."""
        self._queries.stop()
