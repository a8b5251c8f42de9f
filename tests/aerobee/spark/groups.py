"""A broker whose groups have read known parts of its topics."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.aerobee.spark.filling import bodies, fill, make_topic
from tests.kit.raw_client import RawConnection
from tests.kit.reading import max_offset

if TYPE_CHECKING:
    from tests.conftest import AnyBroker

UPDATE_OFFSET = 15
CREATE_GROUP = 200
LAGS = {
    ("lake", "bills", 0): (3, 0),
    ("lake", "orders", 0): (10, 7),
    ("lake", "orders", 1): (4, 0),
    ("shop", "bills", 0): (3, 3),
}
"""Group, topic, queue → end of the queue, how far the group is; `idle` has read nothing."""


def fill_with_groups(broker: AnyBroker) -> None:
    """Two topics; group `lake` has read a part of one, `shop` all of the other."""
    make_topic(broker, "orders", 2)
    make_topic(broker, "bills", 1)
    fill(broker, "orders", bodies(10), queue_id=0)
    fill(broker, "orders", bodies(4), queue_id=1)
    fill(broker, "bills", bodies(3))
    with RawConnection(broker.address) as connection:
        for group in ("lake", "shop", "idle"):
            body = json.dumps({"groupName": group}).encode()
            assert connection.call(CREATE_GROUP, {}, body).code == 0
        commit(connection, "lake", "orders", 0, 7)
        commit(connection, "lake", "bills", 0, 0)
        commit(connection, "shop", "bills", 0, 3)
        assert max_offset(connection, "bills", 0) == 3


def commit(connection: RawConnection, group: str, topic: str, queue_id: int, at: int) -> None:
    """Store how far a group is."""
    fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "commitOffset": at}
    assert connection.call(UPDATE_OFFSET, fields).code == 0
