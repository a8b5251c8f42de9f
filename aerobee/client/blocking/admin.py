"""The blocking admin client: topics. Decisions are in `steps.administering`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from aerobee.client.blocking.part import Part
from aerobee.client.steps import administering

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.client.blocking.client import Client
    from aerobee.client.config import ClientOptions

__all__ = ["AdminClient"]


class AdminClient(Part):
    """Creates and lists topics."""

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        client: Client | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        super().__init__(namesrv, client, options)

    def create_topic(self, name: str, *, queues: int = 8, perm: int = 6, wait: bool = True) -> None:
        """Create or change a topic on every master: so many queues each; perm 4 read + 2 write.

        With `wait` it returns once the name server routes the topic. Raises: ConfigurationError,
        BrokerError, BrokerNotFoundError, TransportError.
        """
        steps = administering.create_topic(self._client.instance, name, queues, perm, wait)
        self._perform(steps)

    def topics(self) -> list[str]:
        """The names of all topics, sorted, system topics included. Raises: NoNameServerError."""
        return self._perform(administering.topics(self._client.instance))
