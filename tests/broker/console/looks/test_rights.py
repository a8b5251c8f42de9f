"""A refusal names the right that is missing."""

from __future__ import annotations

import pytest

from aerobee.broker.console.looks.rights import explained_with_right, missing_right
from aerobee.errors import AccessDeniedError, BrokerError, ConnectError

REMARK = "User:ann has no permission to access {} from 10.0.0.1, no matched policies."


def refused(request: str, resource: str) -> BrokerError:
    return AccessDeniedError(16, REMARK.format(resource), "b", "h:1", request)


@pytest.mark.parametrize(
    ("request_name", "resource", "right"),
    [
        ("GET_BROKER_RUNTIME_INFO", "Cluster:c", "Get or List on Cluster:c"),
        ("AEROBEE_SWITCH", "Cluster:c", "Update on Cluster:c"),
        ("SEND_MESSAGE", "Topic:t", "Pub on Topic:t"),
        ("PULL_MESSAGE", "Group:g", "Sub on Group:g"),
        ("SEND_MESSAGE", "Group:g", "a right on Group:g"),
        ("NO_SUCH_REQUEST", "Cluster:c", ""),
    ],
)
def test_the_action_comes_from_the_table(request_name: str, resource: str, right: str) -> None:
    assert missing_right(refused(request_name, resource)) == right


def test_other_errors_lack_no_right() -> None:
    assert missing_right(ConnectError("nobody there")) == ""
    wrong = AccessDeniedError(16, "check signature failed.", "b", "h:1", "SEND_MESSAGE")
    assert missing_right(wrong) == ""
    assert explained_with_right(wrong).endswith("check signature failed.")
    text = explained_with_right(refused("SEND_MESSAGE", "Topic:t"))
    assert text.endswith("no matched policies. The account needs Pub on Topic:t.")
