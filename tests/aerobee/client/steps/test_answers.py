"""Error answers become exceptions; refusals of access control are told from all others."""

import pytest

from aerobee.client.steps.answers import error_of
from aerobee.client.steps.effects import Ask
from aerobee.errors import AccessDeniedError, BrokerError, PermissionDeniedError
from aerobee.remoting.wire.command import Command
from aerobee.remoting.wire.headers.topic import GetTopicConfig

DENIED, BOTH, ERROR = AccessDeniedError, PermissionDeniedError, BrokerError


@pytest.mark.parametrize(
    ("code", "remark", "kind"),
    [
        # Access control, here and in RocketMQ 4.9 and 5.3.
        (1, "org.apache.rocketmq.acl.common.AclException: No accessKey is configured", DENIED),
        (16, "check signature failed.", DENIED),
        (16, "username cannot be null.", DENIED),
        (16, "User:bob is not found.", DENIED),
        (16, "User:bob is disabled.", DENIED),
        (
            16,
            "User:bob has no permission to access Topic:t from 10.0.0.1, no matched policies.",
            DENIED,
        ),
        (16, "The super user can only be update by super user", DENIED),
        (16, "client id c@1 is that of an open connection of another account: give", DENIED),
        # What the broker, a topic or a group is closed to.
        (16, "the broker[10.0.0.1] sending message is forbidden", BOTH),
        (16, "the broker[10.0.0.1] sending transaction message is forbidden", BOTH),
        (16, "the topic[t] sending message is forbidden", BOTH),
        (16, "Sending message to topic[SELF_TEST_TOPIC] is forbidden.", BOTH),
        (16, "the broker pulling message is forbidden", BOTH),
        (16, "the broker for lite pull message is forbidden", BOTH),
        (16, "the topic[t] pulling message is forbidden", BOTH),
        (16, "subscription group no permission, g", BOTH),
        (16, "the consumer group[g] can not consume by broadcast way", BOTH),
        (16, "the consumer group[g] is forbidden for topic[t]", BOTH),
        (16, "the group[CID_RMQ_SYS_TRANS] belongs to the broker itself", BOTH),
        (16, "recall failed, recallMessageEnable is false", BOTH),
        (16, "retry topic is not allowed to set mode", BOTH),
        (16, "allowRuntimeConfig is false: settings do not change", BOTH),
        (16, "brokerName: can not change while running", BOTH),
        # Users and ACLs that are wrong, are there, or are not.
        (16, "The user is existed", BOTH),
        (16, "The user is not exist", BOTH),
        (16, "The subject of User:bob is not exist.", BOTH),
        (16, "password can not be blank", BOTH),
        (16, "The resource is null.", BOTH),
        (16, "admin is the last enabled super user; create another one first", BOTH),
        (1, "check signature failed.", ERROR),
    ],
)
def test_what_access_control_refuses_is_told_from_what_nobody_may(
    code: int, remark: str, kind: type[BrokerError]
) -> None:
    ask = Ask(address="a:1", header=GetTopicConfig(topic="t"), timeout_s=1.0)
    error = error_of(ask, Command(code=code, remark=remark), "broker-a")
    assert type(error) is kind
    assert error.code == (16 if kind is AccessDeniedError else code)
