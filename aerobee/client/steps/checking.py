"""Checks whether brokers support a subscription, and describes it for heartbeats.

Source: client §9.1 (MQClientInstance.checkClientInBroker), remoting §3.9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.client.steps.answers import expect
from aerobee.client.steps.effects import Ask
from aerobee.errors import (
    BrokerError,
    BrokerNotFoundError,
    NoNameServerError,
    RouteNotFoundError,
    SubscriptionError,
    TransportError,
    UnsupportedRequestError,
)
from aerobee.remoting.wire.bodies.client import CheckClientConfigBody, SubscriptionData
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers.client import CheckClientConfig
from aerobee.store.format.tags import java_hash

if TYPE_CHECKING:
    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.held_queue import Subscription
    from aerobee.client.steps.instance import Instance

HINT = "conditions in SQL need enablePropertyFilter=true at the broker"


def check_served(instance: Instance, group: str, subscription: Subscription) -> Steps[None]:
    """Ask one broker of the topic whether it supports an SQL condition; tags always are.

    A broker that cannot be reached now is no error: pulls fail later. Raises: SubscriptionError.
    """
    if subscription.filter.kind == "TAG":
        return
    timeout_s = instance.config.request_timeout
    try:
        route = yield from instance.route(subscription.topic, timeout_s)
    except (RouteNotFoundError, NoNameServerError):
        return
    name = instance.random.choice(sorted(route.brokers) or [""])
    body = CheckClientConfigBody(
        client_id=instance.config.client_id, group=group, subscription_data=described(subscription)
    )
    try:
        ask = Ask(
            address=instance.reader(name),
            header=CheckClientConfig(),
            body=body.to_bytes(),
            timeout_s=timeout_s,
        )
        expect(ask, (yield ask), name)
    except (TransportError, BrokerNotFoundError, UnsupportedRequestError):
        return
    except BrokerError as error:
        raise filter_refused(subscription, error) or error from error


def filter_refused(subscription: Subscription, error: BrokerError) -> SubscriptionError | None:
    """The error for a broker that does not support a condition; None for another error."""
    if subscription.filter.kind == "TAG":
        return None
    if error.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED:
        remark = error.remark
    elif error.code == ResponseCode.SYSTEM_ERROR and "SQL92" in error.remark:
        # The Java broker says "does not support consumer to filter message by SQL92".
        remark = f"{error.remark} ({HINT})"
    else:
        return None
    return SubscriptionError(
        error.code,
        f"{remark}; filter {subscription.filter.expression!r} of topic {subscription.topic}",
        error.broker,
        error.address,
        error.request,
    )


def described(subscription: Subscription) -> SubscriptionData:
    """A subscription as in heartbeats."""
    tags = sorted(subscription.filter.wanted)
    return SubscriptionData(
        topic=subscription.topic,
        sub_string=subscription.filter.expression,
        tags_set=tags,
        code_set=[java_hash(tag) for tag in tags],
        sub_version=subscription.version,
        expression_type=subscription.filter.kind,
    )
