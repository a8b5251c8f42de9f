"""All producers of a broker. Source: admin §2 (ProducerTableInfo)."""

from __future__ import annotations

import msgspec

from aerobee.remoting.wire.bodies.body import Body


class ProducerInfo(msgspec.Struct, rename="camel", kw_only=True):
    """One connected producer. `remote_ip` starts with a slash, as Java prints addresses."""

    client_id: str
    remote_ip: str = msgspec.field(name="remoteIP", default="")
    language: str = ""
    version: int = 0
    last_update_timestamp: int = 0


class ProducerTableInfo(Body, msgspec.Struct, rename="camel", kw_only=True):
    """Body of GET_ALL_PRODUCER_INFO: group → its members."""

    data: dict[str, list[ProducerInfo]] = {}
