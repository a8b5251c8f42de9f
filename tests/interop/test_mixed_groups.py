"""Members in Python, Java, Go and Node share a group, and all agree who has which queue."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from aerobee import ConsumeFrom, MessageQueue
from aerobee.allocation import Allocator, by_config, machine_room, strategy
from aerobee.blocking import AdminClient, Message, Producer, PushConsumer, ReceivedMessage
from tests.conftest import AnyBroker, StartBroker
from tests.interop.conftest import GetClient
from tests.kit.allocations import named, ring_of_go
from tests.kit.golang import GoMember
from tests.kit.java_driver import JavaClient
from tests.kit.node import NodeMember
from tests.kit.waiting import eventually

pytestmark = pytest.mark.interop

WITHIN_S = 60.0
QUEUES = 8
MESSAGES = 40
ROOM_OF_ALL = "127.0.0.1"
ROOM = f"{ROOM_OF_ALL}@east"
"""What the strategies take for the room of most members: it begins their client ids."""
BROKER = f"{ROOM}-b"
STRATEGIES = (
    "AVG",
    "AVG_BY_CIRCLE",
    "CONSISTENT_HASH",
    "MACHINE_ROOM",
    "NEARBY-AVG",
    "NEARBY-AVG_BY_CIRCLE",
    "CONFIG",
)
IN_GO = {
    "AVG": "AVG",
    "AVG_BY_CIRCLE": "AVG_BY_CIRCLE",
    "MACHINE_ROOM": "MACHINE_ROOM",
    "NEARBY": "AVG",
    "CONFIG": "CONFIG",
    "CONSISTENT_HASH": "RING_OF_GO",
}
"""All strategies of the Go client, and which of ours shares as they do."""
NOT_IN_JAVA = ("RING_OF_GO",)
GIVEN = {"py": (0, 1), "java5": (2, 3, 4), "java4": (5, 6, 7), "go": (5, 6, 7)}
"""The queues of each member where they are given by hand."""
INSTANCES = {
    "py": "east-py",
    "java5": "east-java5",
    "java4": "west-java4",
    "go": "east-go",
    "node": "east-node",
}


@pytest.fixture(scope="module")
def broker(start_broker: StartBroker) -> AnyBroker:
    return start_broker(brokerName=BROKER)


@pytest.fixture(scope="module")
def topic(broker: AnyBroker) -> str:
    with AdminClient(broker.namesrv_address) as admin:
        admin.create_topic("Shared", queues=QUEUES)
    return "Shared"


@pytest.fixture
def java(java_client: GetClient) -> Iterator[dict[str, JavaClient]]:
    clients = {"java5": java_client("5.5.0", "JSON"), "java4": java_client("4.9.7", "JSON")}
    yield clients
    for client in clients.values():
        client.call("clear")


def allocator(name: str, member: str) -> Allocator:
    """How a member of ours would share, and must have shared where it is another's."""
    if name == "CONFIG":
        return by_config(*(MessageQueue("Shared", BROKER, n) for n in GIVEN[member]))
    if name == "MACHINE_ROOM":
        return machine_room(ROOM_OF_ALL)
    if name == "RING_OF_GO":
        return ring_of_go
    return named(name) if name.startswith("NEARBY-") else strategy(name)


def given(member: str) -> str:
    """The queues of a member, where they are given by hand, with blanks between."""
    return " ".join(f"Shared/{BROKER}/{n}" for n in GIVEN[member])


class Group:
    """One group of a strategy: a member in each language."""

    def __init__(self, stack: ExitStack, broker: AnyBroker, strategy: str, kind: str) -> None:
        self.names, self.strategy = broker.namesrv_address, strategy
        self.name = f"{kind}-{strategy}"
        self.bodies: list[str] = []
        self.ours = PushConsumer(
            self.name,
            self.names,
            instance_name=f"{INSTANCES['py']}-{self.name}",
            start_from=ConsumeFrom.FIRST,
            concurrency=1,
            strategy=allocator(strategy, "py"),
        )
        self.ours.subscribe("Shared", handler=self._handle)
        stack.enter_context(self.ours)
        self.java: dict[str, JavaClient] = {}
        self.piped: dict[str, GoMember | NodeMember] = {}

    def _handle(self, messages: Sequence[ReceivedMessage]) -> None:
        self.bodies += [message.body.decode() for message in messages]

    def join_java(self, member: str, client: JavaClient) -> None:
        self.java[member] = client
        options = {"strategy": self.strategy, "rooms": ROOM_OF_ALL, "queues": given(member)}
        name = f"{INSTANCES[member]}-{self.name}"
        client.consumer(name, self.names, "Shared", group=self.name, **options)

    def join_go(self, home: Path, stack: ExitStack, strategy: str) -> None:
        self.piped["go"] = GoMember(
            home,
            self.names,
            self.name,
            "Shared",
            strategy=strategy,
            instance=f"{INSTANCES['go']}-{self.name}",
            given=ROOM_OF_ALL if strategy == "MACHINE_ROOM" else given("go"),
        )
        stack.callback(self.piped["go"].stop)

    def join_node(self, home: Path, stack: ExitStack) -> None:
        instance = f"{INSTANCES['node']}-{self.name}"
        member = NodeMember(home, self.names, self.name, "Shared", instance=instance)
        stack.callback(member.stop)
        self.piped["node"] = member

    def held(self) -> dict[str, list[int]]:
        """Per member its queues, as it says itself."""
        queues = self.ours.assignment
        found = {"py": sorted(one.queue_id for one in queues if one.topic == "Shared")}
        for member, client in self.java.items():
            found[member] = client.assigned(f"{INSTANCES[member]}-{self.name}", "Shared")
        return found | {member: one.share for member, one in self.piped.items()}

    def expected(self, admin: AdminClient) -> dict[str, list[int]]:
        """Per member its queues, as the strategy says of the members that the broker knows."""
        ids = sorted(one.client_id for one in admin.consumers(self.name).members)
        queues = [MessageQueue("Shared", BROKER, n) for n in range(QUEUES)]
        found = {}
        for own in ids:
            [member] = [one for one, instance in INSTANCES.items() if f"@{instance}" in own]
            share = allocator(self.strategy, member)(self.name, own, queues, ids)
            found[member] = sorted(one.queue_id for one in share)
        return found

    def agrees(self, admin: AdminClient) -> bool:
        held = self.held()
        everything = sorted(number for share in held.values() for number in share)
        return everything == list(range(QUEUES)) and held == self.expected(admin)

    def has(self, bodies: set[str]) -> bool:
        return bodies <= set(self.received())

    def received(self) -> list[str]:
        """The bodies of all members, those from before the test included."""
        theirs = [
            message.body
            for member, client in self.java.items()
            for message in client.received(f"{INSTANCES[member]}-{self.name}", 0)
        ]
        piped = [text.split(" ")[0] for one in self.piped.values() for text in one.received]
        return [*self.bodies, *theirs, *piped]


def agree_and_share(broker: AnyBroker, groups: Sequence[Group], kind: str) -> None:
    """All members agree, and each message is handled by one of them."""
    sent = {f"{kind}-{n}" for n in range(MESSAGES)}
    with AdminClient(broker.namesrv_address) as admin:
        for group in groups:
            agrees = partial(group.agrees, admin)
            eventually(agrees, within_s=WITHIN_S, what=f"agreement in {group.name}", every_s=0.2)
    with Producer(broker.namesrv_address) as producer:
        producer.send_batch([Message("Shared", body.encode()) for body in sorted(sent)])
    for group in groups:
        has_all = partial(group.has, sent)
        eventually(has_all, within_s=WITHIN_S, what=f"all messages in {group.name}")
        assert sorted(one for one in group.received() if one in sent) == sorted(sent)


def test_python_and_both_javas_agree_by_every_strategy(
    broker: AnyBroker, topic: str, java: dict[str, JavaClient]
) -> None:
    with ExitStack() as stack:
        groups = [Group(stack, broker, name, "java") for name in STRATEGIES]
        for group in groups:
            for member, client in java.items():
                group.join_java(member, client)
        agree_and_share(broker, groups, "java")


def test_python_java_and_go_agree_by_every_strategy_of_go(
    broker: AnyBroker, topic: str, java: dict[str, JavaClient], tmp_path: Path
) -> None:
    with ExitStack() as stack:
        groups = []
        for theirs, ours in IN_GO.items():
            group = Group(stack, broker, ours, f"go-{theirs}")
            if ours not in NOT_IN_JAVA:
                group.join_java("java5", java["java5"])
            group.join_go(tmp_path, stack, theirs)
            groups.append(group)
        agree_and_share(broker, groups, "go")


def test_python_java_and_node_agree_by_the_strategy_of_node(
    broker: AnyBroker, topic: str, java: dict[str, JavaClient], tmp_path: Path
) -> None:
    with ExitStack() as stack:
        group = Group(stack, broker, "AVG", "node")
        group.join_java("java5", java["java5"])
        group.join_node(tmp_path, stack)
        agree_and_share(broker, [group], "node")
