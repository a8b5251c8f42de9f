"""The common part of blocking producers, consumers and admin clients: a client, own or shared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, TypeVar

from aerobee.client.blocking.client import Client
from aerobee.client.leaving import note_failed_close
from aerobee.errors import AerobeeError, ClientStateError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from aerobee.client.steps.effects import Steps

__all__ = ["Part"]

T = TypeVar("T")


class Part:
    """A producer, consumer or admin client; it starts and closes its own client with itself."""

    def __init__(
        self,
        namesrv: str | Sequence[str] | None,
        client: Client | None,
        options: Mapping[str, Any],
    ) -> None:
        if client is not None and options:
            raise ConfigurationError(f"{', '.join(options)}: options of the client that is passed")
        self._client = client or Client(namesrv, **options)
        self._own_client = client is None
        self._begun = False
        self._ended = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except AerobeeError as failure:
            if error is None:
                raise
            note_failed_close(error, failure)

    def start(self) -> None:
        """Start without `with`.

        Raises: NoNameServerError, ClientStateError, ConfigurationError.
        """
        if self._begun:
            raise ClientStateError("started before")
        self._begun = True
        if self._own_client:
            self._client.start()
        try:
            with self._client.lock:
                self._begin()
        except BaseException:
            if self._own_client:
                self._client.close()
            raise

    def close(self) -> None:
        """Unregister from the brokers, for some seconds at most. A second call does nothing."""
        if self._ended or not self._begun:
            return
        self._ended = True
        try:
            self._end()
        finally:
            if self._own_client:
                self._client.close()

    def _begin(self) -> None:
        """Start this part, once the client runs."""

    def _end(self) -> None:
        """End this part, before the client ends."""

    def _perform(self, steps: Steps[T]) -> T:
        self._client.check_works()
        return self._client.perform(steps)
