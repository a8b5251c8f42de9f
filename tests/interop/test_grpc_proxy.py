"""RocketMQ's own proxy in CLUSTER mode, for those who have one: its clients, and a broker of ours.

The proxy pops, acknowledges and hides by remoting. Its receipts have more parts than a client's.
"""

from __future__ import annotations

import functools
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from aerobee.admin import GroupConfig, MessageType
from aerobee.blocking import AdminClient
from tests.kit import python_client
from tests.kit.java import PROXY, toolkit
from tests.kit.java_server import JavaProxy
from tests.kit.python5_driver import Python5, SdkError
from tests.kit.rounds import Round
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Any

    from tests.conftest import StartBroker

    Told = Callable[[str], list[list[Any]]]

pytestmark = pytest.mark.interop

TYPES = ("Normal", "Fifo", "Delay", "Transaction", "Java", "Fails")
COUNT = 5
WITHIN_S = 60.0


@pytest.fixture(scope="module")
def proxy(
    start_broker: StartBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaProxy]:
    kit = toolkit(PROXY)
    broker = start_broker(
        recallMessageEnable="true",
        transactionTimeOut=1_000,
        transactionCheckInterval=1_000,
        # The proxy tells us of its transaction producers every 20 seconds only.
        transactionCheckMax=100,
    )
    with AdminClient(broker.namesrv_address) as admin:
        for topic in TYPES:
            kind = MessageType.__members__.get(topic.upper(), MessageType.NORMAL)
            admin.create_topic(topic, queues=2, message_type=kind)
        admin.create_group(GroupConfig(name="fifo", orderly=True))
        admin.create_group(GroupConfig(name="dead", retry_max=1))
    proxy = JavaProxy(kit, tmp_path_factory.mktemp("proxy"), broker.namesrv_address)
    yield proxy
    proxy.stop()


@pytest.fixture(scope="module")
def told(proxy: JavaProxy) -> Told:
    return functools.partial(python_client.told, proxy.endpoints)


def test_java_gets_what_it_sent_and_again_what_it_refused(proxy: JavaProxy, tmp_path: Path) -> None:
    running = Round("java", tmp_path, proxy.endpoints, "Java", COUNT)
    with running.child:
        received = {line.split()[0] for line in running.until(COUNT, "received")}
        pushed = [line.split() for line in running.until(COUNT + 1, "pushed")]
        running.end()

    assert received == {f"body-{number}" for number in range(COUNT)}
    assert Counter((line[0], line[-1]) for line in pushed) == Counter(
        [*((f"body-{number}", "1") for number in range(COUNT)), ("body-0", "2")]
    )


def test_a_message_that_was_refused_comes_again(told: Told) -> None:
    assert told("push") == [["got", "twice", 1], ["got", "twice", 2], ["in time", True]]


def test_the_messages_of_a_group_come_in_their_order(told: Told) -> None:
    assert told("fifo") == [*(["got", str(number), 1] for number in range(5)), ["in time", True]]


def test_delayed_messages_come_in_time_and_recalled_ones_never(told: Told) -> None:
    assert told("delay") == [
        ["recalled", True],
        ["got", "late", 1],
        ["in time", True],
        ["not before", True],
    ]


def test_transactions_end_as_their_producer_says_or_answers(told: Told) -> None:
    lines = told("transactions")
    assert ["in time", True] in lines
    assert ["check", "open"] in lines
    assert Counter(line[1] for line in lines if line[0] == "got") == Counter(["commit", "open"])


def test_a_message_that_always_fails_is_a_dead_letter(proxy: JavaProxy, tmp_path: Path) -> None:
    sdk = Python5(tmp_path, proxy.endpoints)
    with sdk.child:
        sdk.start("producer", "producer", topics=["Fails"])
        sdk.start("push", "consumer", group="dead", topics=["Fails"], succeeds_at=99)
        sdk.call("send", name="producer", topic="Fails", body="fail")
        letters: list[Any] = []

        def buried() -> bool:
            try:
                if "letters" not in sdk_clients:
                    sdk.start("simple", "letters", group="letters", topics=["%DLQ%dead"])
                    sdk_clients.add("letters")
                letters.extend(sdk.call("receive", name="letters"))
            except SdkError:
                # Its topic is not there yet; or the proxy does not know the consumer yet.
                return False
            return bool(letters)

        sdk_clients: set[str] = set()
        eventually(buried, within_s=WITHIN_S, what="the dead letter")
        assert [letter["body"] for letter in letters] == ["fail"]
        assert [got["attempt"] for got in sdk.call("got", name="consumer")] == [1, 2]
