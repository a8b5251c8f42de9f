"""The routes of the topics that a delivery sends to: asked for once, again after a failure.

A route that was known stays until there is another one, so that a broker that is away for a while
is found again where it was.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Protocol

from aerobee.errors import (
    AerobeeError,
    NoNameServerError,
    RouteNotFoundError,
    TopicNotFoundError,
)
from aerobee.remoting.errors import RemotingError
from aerobee.route import TopicRoute
from aerobee.steps.instance import AUTO_CREATE_TOPIC, DEFAULT_TOPIC_QUEUES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aerobee.remoting.client.blocking_channel import BlockingChannel

__all__ = ["PAUSE_S", "KnownRoutes", "Routes"]

log = logging.getLogger("aerobee.spark")

PAUSE_S = 0.25
"""Before something that failed is asked again."""
ROUTE_AGE_S = 2.0
"""A route that failed is asked for again at most that often."""


class Routes(Protocol):
    """What a delivery needs of the cluster."""

    def route(self, topic: str, *, fresh: bool = False) -> TopicRoute:
        """Where a topic is; `fresh` asks again. Raises: RouteNotFoundError and its kin."""

    def channel(self, address: str) -> BlockingChannel:
        """An open connection. Raises: TransportError, RemotingError."""

    def brokers(self) -> Mapping[str, Sequence[str]]:
        """The addresses of each broker that is there now. Raises: NoNameServerError."""


class KnownRoutes:
    """The routes of one delivery; the first of each waits so long for brokers that are away."""

    def __init__(self, routes: Routes, timeout_s: float) -> None:
        self._routes = routes
        self._timeout_s = timeout_s
        self._known: dict[str, TopicRoute] = {}
        self._asked_at: dict[str, float] = {}

    def of(self, topic: str) -> TopicRoute:
        """The route of a topic, as it was last heard.

        Raises: RouteNotFoundError, NoNameServerError and their kin.
        """
        route = self._known.get(topic)
        if route is None:
            route = self._known[topic] = self._first(topic)
            self._asked_at[topic] = time.monotonic()
        return route

    def renew(self, topic: str) -> None:
        """Ask for the route again; what cannot be had stays as it was."""
        if time.monotonic() - self._asked_at.get(topic, 0.0) < ROUTE_AGE_S:
            return
        try:
            route = self._routes.route(topic, fresh=True)
            if route.to_publish:
                self._known[topic] = route
        except (AerobeeError, RemotingError) as error:
            log.warning("route of %s not refreshed: %s", topic, error)
        # Counted from here: a silent name server takes seconds, and many requests fail at once.
        self._asked_at[topic] = time.monotonic()

    def _first(self, topic: str) -> TopicRoute:
        """The route; waits while no name server answers, or none knows any broker."""
        give_up_at = time.monotonic() + self._timeout_s
        told = False
        while True:
            try:
                return self._ask(topic)
            except (RouteNotFoundError, NoNameServerError) as error:
                if time.monotonic() >= give_up_at or not self._nobody_there(error):
                    raise
                if not told:
                    log.warning("waiting for a broker of topic %s: %s", topic, error)
                told = True
            time.sleep(PAUSE_S)

    def _nobody_there(self, error: AerobeeError) -> bool:
        """Whether brokers and name servers are away: else it is the topic that is not there."""
        try:
            return isinstance(error, NoNameServerError) or not self._routes.brokers()
        except NoNameServerError:
            return True

    def _ask(self, topic: str) -> TopicRoute:
        """For an unknown topic the route it will get when a broker makes it."""
        try:
            route = self._routes.route(topic, fresh=True)
        except (RouteNotFoundError, TopicNotFoundError):
            try:
                model = self._routes.route(AUTO_CREATE_TOPIC, fresh=True)
            except (RouteNotFoundError, TopicNotFoundError):
                raise RouteNotFoundError(
                    f"no broker serves topic {topic}, and none makes topics by itself: create it"
                ) from None
            route = planned(topic, model)
        if not route.to_publish:
            raise RouteNotFoundError(f"no queue of topic {topic} can be written")
        return route


def planned(topic: str, model: TopicRoute) -> TopicRoute:
    """The route of a topic that will be made after a model. Source: client §2.2."""
    queues = [
        q._replace(topic=topic) for q in model.to_publish if q.queue_id < DEFAULT_TOPIC_QUEUES
    ]
    return TopicRoute(tuple(queues), (), model.brokers)
