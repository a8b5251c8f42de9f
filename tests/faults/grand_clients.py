"""The client of the grand campaign that does what administrators do, and odd sends beside it.

Topics are made, filled, deleted and made again: each life of a topic has a history of its own, in
which nothing of an earlier one may turn up. What a kill has cut is deleted first by the next try.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.faults.feature_clients import Client, call
from tests.kit.history import History
from tests.kit.load import stored
from tests.kit.raw_client import properties_text, send_fields, topic_fields
from tests.kit.reading import committed_offsets, max_offset, read_topic

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from tests.kit.raw_client import RawConnection

CREATE_TOPIC, DELETE_TOPIC, CREATE_GROUP, DELETE_GROUP = 17, 215, 200, 207
SEND_MESSAGE_V2, SEND_REPLY_V2, UPDATE_BROKER_CONFIG, CREATE_USER = 310, 325, 25, 3001
UPDATE_CONSUMER_OFFSET, RESET_OFFSET = 15, 222
NAMES = 4
"""Topics that are made again and again; few, so that names come back."""
LIVE = {
    "enablePropertyFilter": ("true", "false"),
    "flushCommitLogLeastPages": (0, 64),
    "flushIntervalCommitLog": (20, 500),
    "flushIntervalConsumeQueue": (10, 1_000),
    "longPollingEnable": ("true", "false"),
    "traceOn": ("true", "false"),
}
"""Settings that are changed while the broker serves, none of which changes what is promised; older
versions have them, too."""
RESET = "moved"


class Administrator(Client):
    """Topics, groups, offsets, settings, and users; sends of which no answer says anything."""

    name = "admin"

    def __init__(self) -> None:
        super().__init__()
        self.living: dict[str, History] = {}
        """What was sent to the topics as they are now."""
        self._cut: set[str] = set()
        """Topics with a request that has no answer yet, or never got one."""
        self._groups = 0

    def connected(self, connection: RawConnection) -> None:
        """The group that is moved is there."""
        told = json.dumps({"groupName": RESET, "consumeEnable": True}).encode()
        call(connection, CREATE_GROUP, {}, told)

    def step(self, connection: RawConnection, rng: random.Random) -> None:
        if self.closing:
            return
        topic = f"made-{rng.randrange(NAMES)}"
        if topic not in self.living:
            self._make(connection, topic)
        ways = (self._send, self._send, self._send, self._delete, self._reset)
        rng.choice(ways)(connection, rng, topic)
        rng.choice((self._group, self._set, self._user, self._oneway, self._reply))(connection, rng)

    # ── Topics ──

    def _make(self, connection: RawConnection, topic: str) -> None:
        if topic in self._cut:
            call(connection, DELETE_TOPIC, {"topic": topic})
        self._cut.add(topic)
        call(connection, CREATE_TOPIC, topic_fields(topic, 1))
        begin = max_offset(connection, topic, 0)
        assert not begin, f"ghost: {topic} was made again and begins at {begin}"
        self._cut.discard(topic)
        self.living[topic] = History()
        self.counts["topics made"] += 1

    def _send(self, connection: RawConnection, rng: random.Random, topic: str) -> None:
        uid, body = self.body(rng)
        history = self.living[topic]
        history.tried(uid, self.name, topic, 0, body)
        fields = send_fields(topic, 0, i=properties_text(KEYS=uid))
        answer = call(connection, SEND_MESSAGE_V2, fields, body)
        history.acked(uid, int(answer.ext["queueOffset"]))

    def _delete(self, connection: RawConnection, rng: random.Random, topic: str) -> None:
        self._cut.add(topic)
        del self.living[topic]
        call(connection, DELETE_TOPIC, {"topic": topic})
        self._cut.discard(topic)
        self.counts["topics deleted"] += 1

    def _reset(self, connection: RawConnection, rng: random.Random, topic: str) -> None:
        """Move a group by its administrator, to an offset that there is."""
        place = {"topic": topic, "queueId": 0}
        end = max_offset(connection, topic, 0)
        commit = {"consumerGroup": RESET, "commitOffset": end, **place}
        call(connection, UPDATE_CONSUMER_OFFSET, commit)
        offset = rng.randint(0, end)
        fields = {"group": RESET, "timestamp": 0, "isForce": True, "offset": offset, **place}
        call(connection, RESET_OFFSET, fields)
        found = committed_offsets(connection, RESET, topic, 1).get(0)
        assert found == offset, f"altered: {topic} was reset to {offset}, and says {found}"
        self.counts["offsets reset"] += 1

    def verdict(self, connection: RawConnection) -> Iterator[str]:
        """Every broken law of the topics as they are, in words."""
        for topic, history in self.living.items():
            yield from history.verdict([stored(one) for one in read_topic(connection, topic, 0)])

    # ── Others ──

    def _group(self, connection: RawConnection, rng: random.Random) -> None:
        self._groups += 1
        group = f"passing-{self._groups % NAMES}"
        told = json.dumps({"groupName": group, "consumeEnable": True}).encode()
        call(connection, CREATE_GROUP, {}, told)
        if rng.random() < 0.5:
            call(connection, DELETE_GROUP, {"groupName": group, "cleanOffset": True})
        self.counts["groups made"] += 1

    def _set(self, connection: RawConnection, rng: random.Random) -> None:
        key = rng.choice([*LIVE])
        line = f"{key}={rng.choice(LIVE[key])}"
        call(connection, UPDATE_BROKER_CONFIG, {}, line.encode())
        self.counts["live settings"] += 1

    def _user(self, connection: RawConnection, rng: random.Random) -> None:
        """Whether a broker without users takes one is its own matter: it answers."""
        told = json.dumps({"username": "passing", "password": "passing-12"}).encode()
        connection.call(CREATE_USER, {"username": "passing"}, told)
        self.counts["user requests"] += 1

    def _oneway(self, connection: RawConnection, rng: random.Random) -> None:
        _, body = self.body(rng)
        connection.ask(SEND_MESSAGE_V2, send_fields("oneway", 0), body, oneway=True)
        self.counts["one-way sends"] += 1

    def _reply(self, connection: RawConnection, rng: random.Random) -> None:
        """To somebody who is not there."""
        _, body = self.body(rng)
        text = properties_text(REPLY_TO_CLIENT="nobody", CORRELATION_ID="1", CLUSTER="c")
        connection.call(SEND_REPLY_V2, send_fields("replies", 0, i=text), body)
        self.counts["replies"] += 1
