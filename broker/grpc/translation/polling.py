"""How long a receive may wait, and how long its messages are hidden. Pure.

Source: grpc §2.5 (ReceiveMessageActivity, GrpcValidator.validateInvisibleTime).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aerobee.broker.grpc.translation.refusal import RpcRefused
from aerobee.remoting.grpc.enums import Code

if TYPE_CHECKING:
    from collections.abc import Sequence

LEAST_MS: Final = 5_000
MOST_MS: Final = 20_000
BEFORE_DEADLINE_MS: Final = 100
"""So much earlier the answer leaves, so that it comes in time."""
REQUEST_TIMEOUT_MS: Final = 3_000
"""The request timeout of clients whose settings have not come."""
RENEWED_MS: Final = 60_000
"""How long messages are hidden that the broker hides again by itself."""
HIDDEN_LEAST_MS: Final = 10_000
HIDDEN_MOST_MS: Final = 12 * 3_600_000
KNOWS_ITS_CODE: Final = (5, 0, 3)
"""The first version of a client that knows ILLEGAL_POLLING_TIME."""


def polling_ms(
    asked_ms: int | None, left_ms: float, request_timeout_ms: int, version: Sequence[int]
) -> int:
    """How long a receive may be held. `asked_ms` None: not said; `left_ms`: until the client gives
    up, infinity if it does not. Raises: RpcRefused when that is too short.
    """
    wanted: float = left_ms - request_timeout_ms / 2 if asked_ms is None else asked_ms
    wanted = min(max(wanted, LEAST_MS), MOST_MS)
    if wanted > left_ms:
        if left_ms < LEAST_MS:
            code = Code.ILLEGAL_POLLING_TIME if known(version) else Code.BAD_REQUEST
            raise RpcRefused(
                code,
                f"the deadline of the call is {int(left_ms)} ms away, and a receive waits"
                f" {LEAST_MS} ms at least: raise the request timeout or the await duration",
            )
        wanted = left_ms
    return int(min(wanted, left_ms - BEFORE_DEADLINE_MS))


def known(version: Sequence[int]) -> bool:
    """Whether a client of this version knows the code of this refusal."""
    return tuple(version) >= KNOWS_ITS_CODE


def version_of(text: str) -> tuple[int, ...]:
    """The numbers of a version; 0 for what is none."""
    return tuple(int(part) if part.isdecimal() else 0 for part in text[:32].split("."))


def hidden_ms(request: Any) -> int:
    """How long the messages of a receive are hidden. Raises: RpcRefused."""
    if request.auto_renew:
        return RENEWED_MS
    return checked_hidden(request.invisible_duration.ToMilliseconds(), HIDDEN_LEAST_MS)


def checked_hidden(asked_ms: int, least_ms: int = 0) -> int:
    """An invisible time within its limits. Raises: RpcRefused."""
    if asked_ms < least_ms:
        raise RpcRefused(
            Code.ILLEGAL_INVISIBLE_TIME,
            f"the invisibleTime is too small. min is {least_ms}: {asked_ms} ms was asked for",
        )
    if asked_ms > HIDDEN_MOST_MS:
        raise RpcRefused(
            Code.ILLEGAL_INVISIBLE_TIME,
            f"the invisibleTime is too large. max is {HIDDEN_MOST_MS}: {asked_ms} ms was asked for",
        )
    return asked_ms
