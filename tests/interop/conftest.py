"""Real RocketMQ clients for the interop tests: one JVM per version and header type.

They end with the last of these tests in a process: a JVM that nobody asks still costs time.
"""

import re
from collections.abc import Callable, Iterator

import pytest

from tests.conftest import AnyBroker, StartBroker
from tests.kit.java import VERSIONS, toolkit
from tests.kit.java_driver import JavaClient
from tests.kit.java_server import JavaNamesrv
from tests.kit.raw_client import RawConnection
from tests.kit.reading import committed_offsets
from tests.kit.waiting import eventually

CLIENTS = [(version, headers) for headers in ("JSON", "ROCKETMQ") for version in VERSIONS]

GetClient = Callable[[str, str], JavaClient]


@pytest.fixture(scope="package")
def java_namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaNamesrv]:
    """Java's name server."""
    namesrv = JavaNamesrv(toolkit("5.5.0"), tmp_path_factory.mktemp("namesrv"))
    yield namesrv
    namesrv.stop()


@pytest.fixture(scope="package")
def java_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GetClient]:
    """The driver of a version with a header type, started on first use."""
    started: dict[tuple[str, str], JavaClient] = {}

    def get(version: str, headers: str) -> JavaClient:
        if (version, headers) not in started:
            home = tmp_path_factory.mktemp(f"client-{version}-{headers}")
            started[version, headers] = JavaClient(toolkit(version), home, headers=headers)
        return started[version, headers]

    yield get
    for client in started.values():
        client.child.kill()


@pytest.fixture(params=CLIENTS, ids="-".join)
def client(request: pytest.FixtureRequest, java_client: GetClient) -> Iterator[JavaClient]:
    """One of the four kinds of client; what a test starts in it ends with the test."""
    version, headers = request.param
    client = java_client(version, headers)
    yield client
    client.call("clear")


@pytest.fixture(scope="module")
def broker(shared_broker: StartBroker) -> AnyBroker:
    """The broker that most modules share."""
    return shared_broker()


def wait_for_commits(
    client: JavaClient, consumer: str, address: str, group: str, topic: str, *, total: int
) -> None:
    """Until the group's offsets at the broker, over the four queues, add up to `total`."""
    seen: dict[int, int] = {}

    def done() -> bool:
        client.commit(consumer)
        with RawConnection(address) as connection:
            seen.update(committed_offsets(connection, group, topic, 4))
        return sum(seen.values()) == total

    try:
        eventually(done, within_s=10, what=f"offsets that add up to {total}")
    except AssertionError as error:
        error.add_note(f"offsets at the broker: {seen}")
        raise


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A legal topic name that only this test uses."""
    return re.sub(r"[^a-zA-Z0-9]+", "_", request.node.name).strip("_")[-100:]
