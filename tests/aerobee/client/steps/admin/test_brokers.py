"""What the answer of a broker to a request of an administrator becomes."""

import pytest

from aerobee.client.steps.admin.brokers import Exchange, checked
from aerobee.client.steps.effects import Ask
from aerobee.errors import UnsupportedRequestError
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.command import Command
from aerobee.remoting.wire.headers.auth import ListUser


def test_users_asked_for_from_another_host_name_the_setting_and_the_host() -> None:
    """A broker without access control answers so to all but its own host."""
    ask = Ask(address="10.0.0.1:10911", header=ListUser(), timeout_s=1.0)
    answer = Command(code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark="not supported")
    with pytest.raises(
        UnsupportedRequestError, match=r"need authentication_enabled: true there, or .* on the host"
    ):
        checked(Exchange(ask, answer, "broker broker-a"))
