"""The errors of `remoting`, in the terms of a client's user."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.client.steps.answers import request_name
from aerobee.errors import (
    AerobeeError,
    ConfigurationError,
    ConnectError,
    RequestTimeoutError,
    TransportError,
)
from aerobee.remoting.errors import CallTimedOut, ConnectFailed, FrameError

if TYPE_CHECKING:
    from aerobee.client.steps.effects import Ask
    from aerobee.remoting.errors import RemotingError

__all__ = ["transport_error"]


def transport_error(ask: Ask, error: RemotingError) -> AerobeeError:
    """What went wrong between us and the peer of `ask`."""
    if isinstance(error, FrameError):
        return ConfigurationError(f"{request_name(ask)} cannot be sent: {error}")
    what = f"{request_name(ask)} to {ask.address}"
    if isinstance(error, ConnectFailed):
        return ConnectError(f"{what}: {error}")
    if isinstance(error, CallTimedOut):
        return RequestTimeoutError(f"{what}: no answer within {ask.timeout_s:g} s")
    return TransportError(f"{what}: {error}")
