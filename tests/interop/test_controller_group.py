"""A group of Java's broker and two of ours, with Java's controller: masters die, clients go on."""

from __future__ import annotations

import json
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import pytest

from aerobee.store.format.epoch_file import EPOCH_FILE_NAME
from tests.kit.broker_process import BrokerProcess
from tests.kit.java import toolkit
from tests.kit.java_controller import JavaControllers
from tests.kit.java_server import JavaBroker
from tests.kit.namesrv_process import NamesrvProcess
from tests.kit.ports import HOST
from tests.kit.raw_client import Closed, RawConnection, send_fields, topic_fields
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.interop

GROUP, TOPIC, SEGMENT = "broker-a", "mixed", 131_072
CREATE_TOPIC, SEND, REPLICA_INFO, EPOCHS = 17, 310, 1004, 1007
WITHIN_S = 120
"""For what takes seconds on a machine that has nothing else to do."""


class Mixed:
    """Java's member is 1, and the first master."""

    def __init__(self, root: Path, stack: ExitStack) -> None:
        java = toolkit("5.5.0")
        self.controllers = JavaControllers(java, root / "controllers")
        stack.callback(self.controllers.stop)
        self.names = stack.enter_context(NamesrvProcess(data=root / "names"))
        common = {"enableControllerMode": "true", "controllerAddr": self.controllers.text}
        common["mappedFileSizeCommitLog"] = str(SEGMENT)
        strict = {"allAckInSyncStateSet": "true", "minInSyncReplicas": 2, "inSyncReplicas": 2}
        self.java = JavaBroker(
            toolkit=java,
            data=root / "java",
            home=root / "java-home",
            settings=common | strict,
            namesrv_address=self.names.address,
        )
        stack.enter_context(self.java)
        eventually(lambda: self.master() == 1, within_s=WITHIN_S, what="Java is the master")
        own = {
            "brokerName": GROUP,
            "haPeers": HOST,
            "brokerIP1": HOST,
            "failoverLease": 5,
            "embeddedNamesrv": False,
        }
        self.ours = [
            stack.enter_context(
                BrokerProcess(
                    data=root / f"ours-{number}",
                    settings=common | own,
                    namesrv=self.names.address,
                    log_path=root / f"ours-{number}.log",
                )
            )
            for number in (2, 3)
        ]

    def state(self) -> tuple[int, str]:
        """The master, 0 for nobody, and the set as it is written; empty from a late controller."""
        try:
            with RawConnection(self.controllers.addresses[0]) as connection:
                answer = connection.call(REPLICA_INFO, {"brokerName": GROUP})
        except (OSError, Closed):
            return 0, ""
        return int((answer.ext or {}).get("masterBrokerId") or 0), answer.body.decode()

    def master(self) -> int:
        return self.state()[0]

    def until_set(self, *members: int) -> None:
        text = f'"syncStateSet":[{",".join(map(str, members))}]'
        eventually(lambda: text in self.state()[1], within_s=WITHIN_S, what=f"the set {members}")

    def until_ours(self) -> int:
        """The member of ours that is the master, once there is one."""

        def number() -> int:
            return master if (master := self.master()) > 1 else 0

        return eventually(number, within_s=WITHIN_S, what="ours is the master")

    def stop(self) -> None:
        """All of them, the master last: of one that stops before, an heir begins an epoch."""
        members: list[JavaBroker | BrokerProcess] = [self.java, *self.ours]
        master = eventually(self.master, within_s=WITHIN_S, what="a master")
        last = members.pop(master - 1)
        for member in (*members, last):
            member.stop()

    def epochs(self, address: str) -> list[dict[str, int]]:
        """The epochs of a member's log, as it tells them."""
        with RawConnection(address) as connection:
            answer = connection.call(EPOCHS)
        assert answer.code == 0, answer
        found: list[dict[str, int]] = json.loads(answer.body)["epochList"]
        return found

    @property
    def addresses(self) -> list[str]:
        return [self.java.address, *(member.address for member in self.ours)]

    def send(self, body: bytes) -> None:
        """Ask all of them, as a client with old routes would, until one has it."""
        eventually(
            lambda: any(map(self.sent, self.addresses, [body] * 3)),
            within_s=WITHIN_S,
            what="a send",
        )

    def sent(self, address: str, body: bytes) -> bool:
        with suppress(OSError, Closed), RawConnection(address, timeout_s=10) as connection:
            return connection.call(SEND, send_fields(TOPIC, 0), body).code == 0
        return False


@pytest.fixture
def mixed(tmp_path: Path) -> Iterator[Mixed]:
    with ExitStack() as stack:
        yield Mixed(tmp_path, stack)


def log_of(data: Path) -> bytes:
    """All of a log but what is empty behind its end."""
    return b"".join(path.read_bytes() for path in sorted((data / "commitlog").iterdir())).rstrip(
        b"\0"
    )


def test_ours_follows_java_takes_over_and_is_followed(mixed: Mixed) -> None:
    mixed.until_set(1, 2, 3)
    with RawConnection(mixed.java.address) as connection:
        assert connection.call(CREATE_TOPIC, topic_fields(TOPIC, 1)).code == 0
    sent = [f"message {number} ".encode() * 50 for number in range(120)]
    for body in sent[:40]:
        mixed.send(body)
    mixed.java.kill()
    for body in sent[40:80]:
        mixed.send(body)
    first = mixed.until_ours()
    mixed.java.start()
    mixed.until_set(1, 2, 3)
    # One of ours that stops hands over; whichever it is, all that was acknowledged is there.
    mixed.ours[first - 2].stop()
    for body in sent[80:]:
        mixed.send(body)
    mixed.ours[first - 2].start()
    mixed.until_set(1, 2, 3)
    for ours in mixed.ours:
        eventually(
            lambda: mixed.epochs(ours.address) == mixed.epochs(mixed.java.address),  # noqa: B023  (called at once)
            within_s=WITHIN_S,
            what="the epochs that Java tells",
        )
    # Of an election the controller tells the members that it reaches: this one never stopped.
    assert '"failover.told"' in mixed.ours[3 - first].log.read_text()
    places = [mixed.java.data, *(member.data for member in mixed.ours)]
    mixed.stop()
    log = log_of(places[0])
    missing = [body for body in sent if body not in log]
    assert not missing
    assert [log_of(place) == log for place in places] == [True] * 3
    epochs = (places[0] / EPOCH_FILE_NAME).read_bytes()
    assert [(place / EPOCH_FILE_NAME).read_bytes() == epochs for place in places] == [True] * 3
