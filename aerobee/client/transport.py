"""Converts the errors of `remoting` to those of the SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.client.steps.answers import request_name, topic_of
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


def transport_error(ask: Ask, error: RemotingError) -> AerobeeError:
    """The SDK error for a failed request."""
    if isinstance(error, FrameError):
        return ConfigurationError(f"{request_name(ask)} cannot be sent: {error}")
    topic = topic_of(ask)
    about = f" for topic {topic}" if topic else ""
    what = f"{request_name(ask)}{about} to {ask.address}"
    if isinstance(error, ConnectFailed):
        made: TransportError = ConnectError(f"{what}: {error}")
    elif isinstance(error, CallTimedOut):
        made = RequestTimeoutError(f"{what}: no answer within {ask.timeout_s:.3g} s")
    else:
        made = TransportError(f"{what}: {error}")
    return made.about(topic=topic, address=ask.address)


def late(ask: Ask) -> AerobeeError:
    """The error of a request without a response in time."""
    return transport_error(ask, CallTimedOut(""))
