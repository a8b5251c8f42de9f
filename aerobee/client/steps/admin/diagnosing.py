"""The two questions of whoever wonders: why does this group stand still, where is this message?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.client.steps.admin.group_findings import diagnosis_of
from aerobee.client.steps.admin.group_look import look_at_group
from aerobee.errors import ConfigurationError

if TYPE_CHECKING:
    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.routes import Routes
    from aerobee.diagnosis import GroupDiagnosis

__all__ = ["diagnose_group"]


def diagnose_group(
    routes: Routes, group: str, *, slow_after: float = 30.0
) -> Steps[GroupDiagnosis]:
    """How a group is, and what keeps it from moving.

    Brokers and all members are asked, a member that hangs for up to 12 s. A handler that has taken
    no message for `slow_after` seconds while some wait counts as slow. Nothing is changed.
    Raises: ConfigurationError if no broker knows the group, BrokerNotFoundError, NoNameServerError.
    """
    if slow_after <= 0:
        raise ConfigurationError(f"slow_after is {slow_after}: it is more than 0 seconds")
    look = yield from look_at_group(routes, group)
    return diagnosis_of(look, slow_after)
