"""The common part of async producers, consumers and admin clients: a client, own or shared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, TypeVar

import anyio

from aerobee.client.aio.client import CLOSE_WITHIN_S, Client
from aerobee.client.leaving import note_failed_close
from aerobee.errors import AerobeeError, ClientStateError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from anyio.abc import TaskGroup

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

    async def __aenter__(self) -> Self:
        if self._own_client:
            await self._client.__aenter__()
        try:
            await self._start_part()
        except BaseException:
            await self._leave_client()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self._end_part()
        except AerobeeError as failure:
            if error is None:
                raise
            note_failed_close(error, failure)
        finally:
            await self._leave_client()

    async def _leave_client(self) -> None:
        if self._own_client:
            await self._client.__aexit__(None, None, None)

    async def start(self, task_group: TaskGroup | None = None) -> None:
        """Start without `async with`; background tasks run in `task_group`, see Client.

        Raises: NoNameServerError, ClientStateError, ConfigurationError.
        """
        if self._own_client:
            await self._client.start(task_group)
        try:
            await self._start_part()
        except BaseException:
            if self._own_client:
                await self._client.aclose()
            raise

    async def aclose(self) -> None:
        """Unregister from the brokers, for at most 5 s, and close. A second call does nothing."""
        try:
            await self._end_part()
        finally:
            if self._own_client:
                await self._client.aclose()

    async def _start_part(self) -> None:
        if self._begun:
            raise ClientStateError("started before")
        self._begun = True
        await self._begin()

    async def _end_part(self) -> None:
        if self._ended or not self._begun:
            return
        self._ended = True
        with anyio.move_on_after(CLOSE_WITHIN_S, shield=True):
            await self._end()

    async def _begin(self) -> None:
        """Start this part, once the client runs."""

    async def _end(self) -> None:
        """End this part, before the client ends."""

    async def _perform(self, steps: Steps[T]) -> T:
        self._client.working_group()
        return await self._client.perform(steps)
