"""A subscription to be checked before it is used: CHECK_CLIENT_CONFIG. Source: remoting §3.9."""

from __future__ import annotations

import msgspec

from aerobee.remoting.wire.bodies.body import Body
from aerobee.remoting.wire.bodies.heartbeat import SubscriptionData


class CheckClientConfigBody(Body, msgspec.Struct, rename="camel", kw_only=True):
    """The client, its group and the subscription to check."""

    client_id: str = ""
    group: str = ""
    namespace: str = ""
    subscription_data: SubscriptionData
