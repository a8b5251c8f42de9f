"""Message queries: by key and by id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.core.feature import Feature
from aerobee.broker.query.query import QueryProcessor
from aerobee.remoting.server.routes import Route
from aerobee.remoting.wire.headers import query as headers

if TYPE_CHECKING:
    from aerobee.broker.core.core import Core

__all__ = ["QueryFeature"]


class QueryFeature(Feature):
    """The requests that look messages up."""

    def __init__(self, core: Core) -> None:
        requests = QueryProcessor(store=core.store, guarded=core.config.auth.enabled)
        self.routes = (
            Route(headers.QueryMessage, requests.by_key, "query"),
            Route(headers.ViewMessageById, requests.by_id, "query"),
        )
