"""Deliveries to real brokers: everything is stored and counted, or the failure says what is."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from aerobee.client.route import TopicRoute
from aerobee.errors import RouteNotFoundError, SendFailedError
from aerobee.spark.brokers import Cluster
from aerobee.spark.sink.columns import places
from aerobee.spark.sink.encode import Encoder, RowEncoding, Shipment
from aerobee.spark.sink.sending import Delivery, DeliverySettings, Report
from tests.aerobee.spark.filling import make_topic
from tests.aerobee.spark.reading_back import read_back
from tests.conftest import AnyBroker, StartBroker
from tests.kit.broker_process import BrokerProcess
from tests.kit.ports import HOST

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.client.compression import Compression
    from aerobee.client.send_result import MessageQueue

pytestmark = pytest.mark.service

_names = count()
QUICK = DeliverySettings(timeout_s=1.0, retries=2)
ConnectTo = Callable[[AnyBroker], Cluster]


@pytest.fixture
def topic() -> str:
    return f"sink-{next(_names)}"


@pytest.fixture(scope="module")
def broker(start_broker: StartBroker) -> AnyBroker:
    return start_broker(brokerName="broker-a")


@pytest.fixture
def connect_to() -> Iterator[ConnectTo]:
    made: list[Cluster] = []

    def connect(broker: AnyBroker) -> Cluster:
        made.append(Cluster([broker.namesrv_address], timeout_s=2.0))
        return made[-1]

    yield connect
    for cluster in made:
        cluster.close()


def shipments(
    delivery: Delivery,
    topic: str,
    bodies: Sequence[bytes],
    compress: Compression | None = None,
    **columns: Any,
) -> Iterator[Shipment]:
    batch = pa.record_batch({"body": pa.array(bodies), **columns})
    counter = count()
    encoder = Encoder(
        places(batch.schema, topic=topic),
        RowEncoding(topic=topic, batch_rows=10, compress=compress, compress_over=100),
        new_ids=lambda how_many: [f"ID{next(counter):06}" for _ in range(how_many)],
        queues=delivery.queues,
    )
    return encoder.shipments(batch)


def send_all(delivery: Delivery, wanted: Sequence[Shipment]) -> Report:
    for shipment in wanted:
        delivery.send(shipment)
    return delivery.finish()


def deliver(
    cluster: Cluster,
    topic: str,
    bodies: Sequence[bytes],
    sending: DeliverySettings = QUICK,
    **columns: Any,
) -> Report:
    with Delivery(cluster, sending) as delivery:
        return send_all(delivery, list(shipments(delivery, topic, bodies, **columns)))


def numbered(how_many: int) -> list[bytes]:
    return [b"%06d" % number for number in range(how_many)]


def test_everything_is_stored_once_and_counted(
    broker: AnyBroker, connect_to: ConnectTo, topic: str
) -> None:
    make_topic(broker, topic, queues=4)
    bodies = numbered(1_005)
    report = deliver(connect_to(broker), topic, bodies)
    assert (report.sent, report.body_bytes, report.unsafe) == (1_005, 6 * 1_005, 0)
    assert (report.first_id, report.last_id) == ("ID000000", "ID001004")
    stored = read_back(broker, topic, 1_005)
    assert sorted(message.body for message in stored) == bodies
    offsets: dict[MessageQueue, list[int]] = defaultdict(list)
    for message in stored:
        offsets[message.queue].append(message.queue_offset)
    assert report.offsets == {q: (min(found), max(found)) for q, found in offsets.items()}
    assert len(offsets) == 4


def test_rows_with_a_key_keep_their_order_and_rows_with_a_queue_their_queue(
    broker: AnyBroker, connect_to: ConnectTo, topic: str
) -> None:
    make_topic(broker, topic, queues=4)
    bodies = numbered(900)
    keys = [f"k{number % 7}" if number % 3 else None for number in range(900)]
    queue_ids = [None if key else 2 for key in keys]
    deliver(connect_to(broker), topic, bodies, shardingKey=keys, queueId=queue_ids)
    found: dict[str | None, list[bytes]] = defaultdict(list)
    for message in read_back(broker, topic, 900):
        found[message.ordering_key].append(message.body)
        assert message.ordering_key or message.queue.queue_id == 2
    expected: dict[str | None, list[bytes]] = defaultdict(list)
    for key, body in zip(keys, bodies, strict=True):
        expected[key].append(body)
    assert found == expected


@pytest.mark.parametrize("method", ["zlib", "lz4", "zstd"])
def test_compressed_bodies_travel_in_batches_and_are_unpacked_by_readers(
    broker: AnyBroker, connect_to: ConnectTo, topic: str, method: Compression
) -> None:
    make_topic(broker, topic)
    bodies = [b"%d " % n * (1 + 99 * (n % 2)) for n in range(40)]
    deliver(connect_to(broker), topic, bodies, compress=method)
    assert sorted(m.body for m in read_back(broker, topic, 40)) == sorted(bodies)


def test_a_topic_that_is_not_there_is_made_where_brokers_do_that(
    broker: AnyBroker, connect_to: ConnectTo, topic: str
) -> None:
    assert deliver(connect_to(broker), topic, numbered(50)).sent == 50
    assert len(read_back(broker, topic, 50)) == 50


def test_a_topic_that_nobody_makes_is_named(
    start_broker: StartBroker, connect_to: ConnectTo
) -> None:
    strict = start_broker(autoCreateTopicEnable=False)
    with pytest.raises(RouteNotFoundError, match="topic nowhere"):
        deliver(connect_to(strict), "nowhere", numbered(1))


def test_a_body_that_the_broker_refuses_is_not_tried_again(
    start_broker: StartBroker, connect_to: ConnectTo, topic: str
) -> None:
    narrow = start_broker(maxMessageSize=4_096)
    with pytest.raises(SendFailedError) as error:
        deliver(connect_to(narrow), topic, [b"x" * 5_000])
    assert f"sending 1 rows (5000 bytes) to topic {topic}" in str(error.value)
    assert len(error.value.attempts) == 1


def test_rows_go_to_the_other_broker_when_one_is_gone(
    broker: AnyBroker, connect_to: ConnectTo, topic: str, tmp_path: Path
) -> None:
    second = BrokerProcess(
        data=tmp_path / "second",
        namesrv=broker.namesrv_address,
        settings={"brokerName": "broker-b"},
    )
    with second:
        make_topic(broker, topic, queues=2)
        make_topic(second, topic, queues=2)
        cluster = connect_to(broker)
        with Delivery(cluster, QUICK) as delivery:
            wanted = list(shipments(delivery, topic, numbered(400)))
            before = send_all(delivery, wanted[:20]).sent
            assert {queue.broker_name for queue in delivery.report.offsets} == {
                "broker-a",
                "broker-b",
            }
            second.kill()
            assert (before, send_all(delivery, wanted[20:]).sent) == (200, 400)


def test_a_broker_that_comes_back_in_time_gets_the_rest(
    start_broker: StartBroker, connect_to: ConnectTo, topic: str
) -> None:
    broker = start_broker()
    make_topic(broker, topic)
    patient = DeliverySettings(timeout_s=1.0, retries=10, window=2)
    with Delivery(connect_to(broker), patient) as delivery:
        wanted = list(shipments(delivery, topic, numbered(300), queueId=[0] * 300))
        for shipment in wanted[:10]:
            delivery.send(shipment)
        broker.kill()
        broker.start()
        assert send_all(delivery, wanted[10:]).sent == 300
    stored = [message.body for message in read_back(broker, topic, 300)]
    assert list(dict.fromkeys(stored)) == numbered(300)


@pytest.mark.parametrize("queue", [{"queueId": [1] * 100}, {}], ids=["of a queue", "of any"])
def test_rows_that_name_a_broker_wait_for_it_while_it_restarts(
    start_broker: StartBroker,
    connect_to: ConnectTo,
    topic: str,
    tmp_path: Path,
    queue: dict[str, Any],
) -> None:
    """It leaves the routes when it stops; those of other brokers stay."""
    first = start_broker()
    second = BrokerProcess(
        data=tmp_path / "second",
        namesrv=first.namesrv_address,
        settings={"brokerName": "broker-b"},
    )
    with second:
        make_topic(first, topic, queues=2)
        make_topic(second, topic, queues=2)
        second.stop()
        cluster = connect_to(first)
        assert "broker-b" not in cluster.route(topic, fresh=True).brokers
        patient = DeliverySettings(timeout_s=1.0, retries=0, delivery_timeout_s=60.0)
        columns = {"brokerName": ["broker-b"] * 100} | queue
        timer = threading.Timer(1.0, second.start)
        timer.start()
        try:
            with Delivery(cluster, patient) as delivery:
                wanted = list(shipments(delivery, topic, numbered(100), **columns))
                report = send_all(delivery, wanted)
        finally:
            timer.join()
    assert report.sent == 100
    assert {queue.broker_name for queue in report.offsets} == {"broker-b"}


class Counting(Cluster):
    """Counts how often it is asked for a route."""

    asked = 0

    def route(self, topic: str, *, fresh: bool = False) -> TopicRoute:
        self.asked += 1
        return super().route(topic, fresh=fresh)


def test_single_sends_look_up_their_route_a_few_times_however_long_they_wait(
    broker: AnyBroker, topic: str
) -> None:
    """With many queues and a full window, that was most of the CPU of a message."""
    make_topic(broker, topic, queues=16)
    cluster = Counting([broker.namesrv_address])
    try:
        with Delivery(cluster, DeliverySettings(window=2)) as delivery:
            wanted = list(shipments(delivery, topic, numbered(500), delayLevel=[18] * 500))
            cluster.asked = 0
            assert send_all(delivery, wanted).sent == 500
    finally:
        cluster.close()
    assert len(wanted) == 500
    assert cluster.asked <= 5 * 500


class Relay(Cluster):
    """Forwards connections to a broker, until those that there are fall silent, as behind a router.

    A delivery has it for a route of its own.
    """

    def __init__(self, broker: AnyBroker) -> None:
        super().__init__([broker.namesrv_address], timeout_s=2.0)
        self._broker = broker
        self._server = socket.create_server((HOST, 0))
        self._open: list[socket.socket] = []
        self._silent = 0
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def first_route(self, topic: str, wait_s: float) -> TopicRoute:
        return self._by_relay(super().first_route(topic, wait_s))

    def route(self, topic: str, *, fresh: bool = False) -> TopicRoute:
        return self._by_relay(super().route(topic, fresh=fresh))

    def _by_relay(self, known: TopicRoute) -> TopicRoute:
        here = f"{HOST}:{self._server.getsockname()[1]}"
        return TopicRoute(known.to_publish, (), {name: {0: here} for name in known.brokers})

    def fall_silent(self) -> None:
        """Nothing goes either way any more on the connections that there are."""
        self._silent = len(self._open)

    def close(self) -> None:
        super().close()
        for one in (self._server, *self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        host, port = self._broker.address.rsplit(":", 1)
        with suppress(OSError):
            while True:
                near = self._server.accept()[0]
                far = socket.create_connection((host, int(port)))
                self._open += [near, far]
                for ends in ((near, far), (far, near)):
                    thread = threading.Thread(target=self._pump, args=(*ends, len(self._open)))
                    self._threads.append(thread)
                    thread.start()

    def _pump(self, source: socket.socket, sink: socket.socket, number: int) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if number > self._silent:
                    sink.sendall(data)


@pytest.fixture
def relay(broker: AnyBroker) -> Iterator[Relay]:
    made = Relay(broker)
    yield made
    made.close()


def test_a_connection_that_fell_silent_is_not_used_again(
    broker: AnyBroker, relay: Relay, topic: str
) -> None:
    """Workers keep connections from one micro-batch to the next; a router may forget them."""
    make_topic(broker, topic)
    bodies = numbered(300)

    def deliver_some(number: int, retries: int) -> int:
        how = DeliverySettings(timeout_s=1.5, retries=retries)
        with Delivery(relay, how) as delivery:
            some = bodies[number * 100 : number * 100 + 100]
            return send_all(delivery, list(shipments(delivery, topic, some))).sent

    assert deliver_some(0, retries=0) == 100
    relay.fall_silent()
    assert deliver_some(1, retries=1) == 100
    relay.fall_silent()
    with pytest.raises(SendFailedError, match="did not answer within"):
        deliver_some(2, retries=0)
    assert deliver_some(2, retries=0) == 100, "the task is run again"
    assert sorted({m.body for m in read_back(broker, topic, 300)}) == bodies


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_broker_that_is_gone_for_good_ends_the_delivery_soon_and_says_what_is_stored(
    start_broker: StartBroker, connect_to: ConnectTo, topic: str, how: signal.Signals
) -> None:
    broker = start_broker()
    assert isinstance(broker, BrokerProcess)
    make_topic(broker, topic)
    with Delivery(connect_to(broker), DeliverySettings(timeout_s=0.5, retries=1)) as delivery:
        wanted = list(shipments(delivery, topic, numbered(2_000)))
        for shipment in wanted[:10]:
            delivery.send(shipment)
        delivery.finish()
        os.kill(broker.child.pid, how)
        with pytest.raises(SendFailedError) as error:
            send_all(delivery, wanted[10:])
    assert " times," not in str(error.value), "there were more tries than it tells of"
    assert f"to topic {topic}, when 100 rows of the task were stored" in str(error.value)
    assert len(error.value.attempts) == 2


@pytest.mark.parametrize("first", [0, 20], ids=["before the first", "in order, in between"])
def test_a_broker_that_is_away_for_a_while_ends_no_delivery(
    start_broker: StartBroker, connect_to: ConnectTo, topic: str, first: int
) -> None:
    """With its name server; its tries are over long before it is back."""
    broker = start_broker()
    assert isinstance(broker, BrokerProcess)
    make_topic(broker, topic)
    bodies = numbered(100)
    columns = {"queueId": [0] * 100} if first else {}
    patient = DeliverySettings(timeout_s=1.0, retries=0, delivery_timeout_s=60.0)
    with Delivery(connect_to(broker), patient) as delivery:
        if first:
            # The route is known, and the connection open, when the broker goes.
            wanted = list(shipments(delivery, topic, bodies, **columns))  # type: ignore[arg-type]  # none is `compress`
            for shipment in wanted[: first // 10]:
                delivery.send(shipment)
        broker.kill()
        timer = threading.Timer(2.0, broker.start)
        timer.start()
        try:
            if not first:
                wanted = list(shipments(delivery, topic, bodies))
            report = send_all(delivery, wanted[first // 10 :])
        finally:
            timer.join()
    assert report.sent == 100
    stored = [message.body for message in read_back(broker, topic, 100)]
    assert sorted(set(stored)) == bodies
    assert not first or list(dict.fromkeys(stored)) == bodies


def test_a_topic_that_is_not_there_is_not_waited_for(
    start_broker: StartBroker, connect_to: ConnectTo, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = start_broker(autoCreateTopicEnable="false")
    patient = DeliverySettings(delivery_timeout_s=60.0)
    monkeypatch.setattr("aerobee.client.blocking.connections.sleep", pytest.fail)
    with Delivery(connect_to(broker), patient) as delivery, pytest.raises(RouteNotFoundError):
        send_all(delivery, list(shipments(delivery, topic, [b"x"])))
