"""Which right is missing where access control has refused a request. Pure.

A broker's remark names the resource, and not what had to be allowed there: the table of permissions
does. RocketMQ's brokers have the same table. Source: semantics §18.3.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from aerobee.broker.access.permissions import PERMISSIONS, Kind
from aerobee.cli.border import explained
from aerobee.errors import BrokerError
from aerobee.remoting.wire.codes import RequestCode

if TYPE_CHECKING:
    from aerobee.errors import AerobeeError

DENIED: Final = re.compile(r"no permission to access (Topic|Group|Cluster):(\S+) from ")


def missing_right(error: AerobeeError) -> str:
    """The right that is missing, as `Get on Cluster:DefaultCluster`; empty where none is."""
    if not isinstance(error, BrokerError) or error.request not in RequestCode.__members__:
        return ""
    denied = DENIED.search(error.remark)
    row = PERMISSIONS.get(RequestCode[error.request])
    if denied is None or row is None:
        return ""
    kind, name = Kind(denied[1]), denied[2]
    actions = {action for field in row.named if field.kind is kind for action in field.actions}
    if kind is Kind.CLUSTER:
        actions |= row.cluster | row.unnamed
    allowed = " or ".join(sorted(action.value for action in actions))
    return f"{allowed} on {kind.value}:{name}" if allowed else f"a right on {kind.value}:{name}"


def explained_with_right(error: AerobeeError) -> str:
    """The text of an error, with the right that is missing."""
    right, text = missing_right(error), explained(error)
    return f"{text} The account needs {right}." if right else text
