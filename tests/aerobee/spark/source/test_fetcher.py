"""Fetches against a real broker, and against a peer that answers what no healthy broker does."""

from __future__ import annotations

import logging
import socket
import struct
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from aerobee.errors import (
    DataLossError,
    RecordDamagedError,
    RequestTimeoutError,
    TopicNotFoundError,
    TransportError,
)
from aerobee.remoting.client.blocking_channel import BlockingChannel
from aerobee.remoting.errors import ConnectFailed
from aerobee.spark.source import fetcher
from aerobee.spark.source.fetcher import Chunk, PullSettings, pulled
from aerobee.spark.source.plan import Range
from aerobee.store.format.record import FIXED_BYTES
from tests.aerobee.spark.filling import bodies, expire, fill, make_topic
from tests.kit.raw_client import RawConnection, pull_fields, records, request_frame
from tests.remoting.client.peer import Peer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import AnyBroker, StartBroker
    from tests.kit.plain_frames import Plain

COUNT = 3_000
MESSAGES = bodies(COUNT, 40)
SHORT_MS = 200
PULL_MESSAGE = 11
ANSWER = 1
NOT_FOUND, AGAIN, MOVED, BUSY, NO_TOPIC = 19, 20, 21, 2, 17


class Connections:
    """What a task keeps: one open connection per address."""

    def __init__(self) -> None:
        self.open: dict[str, BlockingChannel] = {}
        self.made = 0

    def __call__(self, address: str) -> BlockingChannel:
        if address not in self.open or self.open[address].closed:
            self.open[address] = BlockingChannel.connect(address, 1.0)
            self.made += 1
        return self.open[address]


@pytest.fixture
def connect() -> Iterator[Connections]:
    connections = Connections()
    yield connections
    for channel in connections.open.values():
        channel.close()


@pytest.fixture(scope="module")
def broker(start_broker: StartBroker) -> AnyBroker:
    broker = start_broker()
    make_topic(broker, "numbers")
    fill(broker, "numbers", MESSAGES)
    return broker


def the_range(broker: AnyBroker, start: int, end: int, topic: str = "numbers") -> Range:
    return Range(topic, "broker-a", (broker.address,), 0, start, end)


def read(chunks: Iterator[Chunk]) -> list[bytes]:
    """The bodies, after checks of what a chunk promises."""
    found = []
    for chunk in chunks:
        stored = list(records(bytes(chunk.buffer)))
        assert stored[0].queue_offset == chunk.first_offset
        assert len(stored) == len(chunk.starts)
        assert chunk.starts[0] == 0
        found += [record.body for record in stored]
    return found


@pytest.mark.parametrize(
    ("start", "end"), [(0, COUNT), (0, 1), (17, 18), (1000, 2100), (1023, 1025), (5, 5)]
)
@pytest.mark.parametrize("bulk_bytes", [4 << 20, None])
def test_a_range_comes_exactly_and_in_order_from_brokers_that_answer_much_or_little(
    broker: AnyBroker, connect: Connections, start: int, end: int, bulk_bytes: int | None
) -> None:
    how = PullSettings(group="g", bulk_bytes=bulk_bytes)
    assert read(pulled(the_range(broker, start, end), how, connect)) == MESSAGES[start:end]


def test_answers_of_one_message_at_a_time_are_enough(
    broker: AnyBroker, connect: Connections
) -> None:
    how = PullSettings(group="g", batch_size=1, window=3)
    assert read(pulled(the_range(broker, 1000, 1100), how, connect)) == MESSAGES[1000:1100]


def test_a_reader_that_stops_early_leaves_the_connection_usable(
    broker: AnyBroker, connect: Connections
) -> None:
    chunks = pulled(the_range(broker, 0, COUNT), PullSettings(group="g"), connect)
    next(chunks)
    del chunks
    assert (
        read(pulled(the_range(broker, 9, 12), PullSettings(group="g"), connect)) == MESSAGES[9:12]
    )
    assert connect.made == 1


def test_an_expression_leaves_offsets_out_and_that_is_no_loss(
    broker: AnyBroker, connect: Connections
) -> None:
    make_topic(broker, "tagged")
    for at in range(0, 300, 100):
        fill(broker, "tagged", MESSAGES[at : at + 50], TAGS="a")
        fill(broker, "tagged", MESSAGES[at + 50 : at + 100], TAGS="b")
    how = PullSettings(group="g", expression="a")
    some = pulled(the_range(broker, 20, 230, "tagged"), how, connect)
    assert read(some) == MESSAGES[20:50] + MESSAGES[100:150] + MESSAGES[200:230]
    nothing = pulled(the_range(broker, 55, 95, "tagged"), how, connect)
    assert read(nothing) == []


def test_a_topic_that_does_not_exist_is_said_at_once(
    broker: AnyBroker, connect: Connections
) -> None:
    with pytest.raises(TopicNotFoundError, match="nowhere"):
        read(pulled(the_range(broker, 0, 10, "nowhere"), PullSettings(group="g"), connect))


def test_offsets_behind_the_end_are_lost(
    broker: AnyBroker, connect: Connections, caplog: pytest.LogCaptureFixture
) -> None:
    beyond = the_range(broker, COUNT - 10, COUNT + 5_000)
    with pytest.raises(DataLossError, match=rf"queue 0 .* offsets {COUNT} to .* ends at {COUNT}"):
        read(pulled(beyond, PullSettings(group="g"), connect))
    with caplog.at_level(logging.WARNING, "aerobee.spark"):
        there = read(pulled(beyond, PullSettings(group="g", fail_on_data_loss=False), connect))
    assert there == MESSAGES[-10:]
    assert len(caplog.records) == 1
    assert f"offsets {COUNT} to {COUNT + 4_999} are gone" in caplog.text


@pytest.mark.ours
def test_offsets_that_expired_are_lost(
    start_broker: StartBroker, connect: Connections, caplog: pytest.LogCaptureFixture
) -> None:
    broker = start_broker(mappedFileSizeCommitLog=65_536)
    make_topic(broker, "numbers")
    fill(broker, "numbers", MESSAGES)
    expire(broker, 3)
    with RawConnection(broker.address) as raw:
        moved = raw.call(PULL_MESSAGE, pull_fields("g", "numbers", 0, 0))
    least = int(moved.ext["minOffset"])
    assert 1 < least < COUNT
    with pytest.raises(DataLossError, match=r"offsets 0 to .* begins at .* failOnDataLoss"):
        read(pulled(the_range(broker, 0, COUNT), PullSettings(group="g"), connect))
    for expression in ("*", "none || at all"):
        caplog.clear()
        how = PullSettings(group="g", expression=expression, fail_on_data_loss=False)
        with caplog.at_level(logging.WARNING, "aerobee.spark"):
            there = read(pulled(the_range(broker, 0, COUNT), how, connect))
        assert there == (MESSAGES[least:] if expression == "*" else [])
        assert [record.getMessage() for record in caplog.records] == [
            f"topic numbers, queue 0 of broker broker-a: offsets 0 to {least - 1} are gone: "
            f"the queue begins at {least} now (expired); skipped"
        ]


def test_a_broker_that_goes_and_comes_back_is_read_on(
    start_broker: StartBroker, connect: Connections
) -> None:
    broker = start_broker()
    make_topic(broker, "numbers")
    fill(broker, "numbers", MESSAGES)
    chunks = pulled(the_range(broker, 0, COUNT), PullSettings(group="g", window=1), connect)
    first = next(chunks)
    broker.kill()
    back = threading.Thread(target=broker.start)
    back.start()
    rest = read(chunks)
    back.join()
    assert read(iter([first])) + rest == MESSAGES


def test_a_broker_that_stays_away_is_waited_for_five_time_outs_and_no_longer(
    start_broker: StartBroker, connect: Connections
) -> None:
    broker = start_broker()
    make_topic(broker, "numbers")
    fill(broker, "numbers", MESSAGES)
    how = PullSettings(group="g", window=1, timeout_ms=SHORT_MS)
    chunks = pulled(the_range(broker, 0, COUNT), how, connect)
    next(chunks)
    broker.kill()
    with pytest.raises(RequestTimeoutError, match=r"no progress at offset .* Connection refused"):
        read(chunks)


# ── A peer that answers what it is told ──


class Script:
    """A peer in a thread of its own: `reply` says what each pull gets; None is silence."""

    def __init__(self, reply: Callable[[Script, Plain], None]) -> None:
        self.peer = Peer()
        self.asked: list[int] = []
        self._reply = reply
        self._over = False
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Script:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        # A thread in accept or recv does not see a close.
        self._over = True
        for waited_on in (self.peer.listener, self.peer.socket):
            if waited_on is not None:
                with suppress(OSError):
                    waited_on.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self.peer.__exit__(None, None, None)

    def _run(self) -> None:
        while not self._over:
            try:
                heard = self.peer.hear()
                self.asked.append(int(heard.ext["queueOffset"]))
                self._reply(self, heard)
            except (OSError, AssertionError):
                # The client has hung up, or the test is over.
                self.peer.close()
                self.peer.socket = None

    def found(self, heard: Plain, offsets: list[int]) -> None:
        self.say(heard, 0, b"".join(map(stored, offsets)), offsets[-1] + 1)

    def say(
        self,
        heard: Plain,
        code: int,
        body: bytes,
        at: int,
        least: int = 0,
        most: int = 1 << 40,
        remark: str | None = None,
    ) -> None:
        numbers = {"nextBeginOffset": at, "minOffset": least, "maxOffset": most}
        ext = {name: str(number) for name, number in numbers.items()}
        frame = request_frame(
            code, heard.opaque, ext | {"suggestWhichBrokerId": "0"}, body, flag=ANSWER
        )
        self.peer.say(frame if remark is None else with_remark(frame, remark))

    def read(self, end: int, connect: Connections, *, start: int = 0, **how: object) -> list[int]:
        """The offsets that come out of a read of this peer."""
        what = Range("t", "b", (self.peer.address,), 3, start, end)
        asked = PullSettings(group="g", timeout_ms=SHORT_MS, **how)  # type: ignore[arg-type]  # by name
        chunks = pulled(what, asked, connect)
        return [record.queue_offset for chunk in chunks for record in records(bytes(chunk.buffer))]


def with_remark(frame: bytes, remark: str) -> bytes:
    """The same answer with one field more in its header."""
    more = b'{"remark":"%s",' % remark.encode()
    length, header_length = struct.unpack_from(">II", frame)
    grown = len(more) - 1
    lengths = struct.pack(">II", length + grown, header_length + grown)
    return lengths + more + frame[9:]


def stored(offset: int, more: bytes = b"") -> bytes:
    """A message without a topic, as it lies in the log; only its size says that there is `more`."""
    record = bytearray(FIXED_BYTES)
    record[0:4] = (FIXED_BYTES + len(more)).to_bytes(4, "big")
    record[4:8] = bytes.fromhex("daa320a7")
    record[20:28] = offset.to_bytes(8, "big")
    return bytes(record) + more


def test_a_hole_in_the_middle_is_a_loss(
    connect: Connections, caplog: pytest.LogCaptureFixture
) -> None:
    """Offsets 3 to 5 and 8 are missing, and the answers know nothing of fetches."""

    def reply(script: Script, heard: Plain) -> None:
        at = int(heard.ext["queueOffset"])
        script.found(heard, [n for n in range(max(at - 1, 0), at + 7) if n not in (3, 4, 5, 8)])

    with Script(reply) as script:
        with pytest.raises(DataLossError, match="queue 3 of broker b: offsets 3 to 5 are gone"):
            script.read(10, connect)
        with caplog.at_level(logging.WARNING, "aerobee.spark"):
            there = script.read(10, connect, fail_on_data_loss=False)
    assert there == [0, 1, 2, 6, 7, 9]
    why = "the broker goes on behind them"
    assert [record.getMessage() for record in caplog.records] == [
        f"topic t, queue 3 of broker b: offsets {gone} are gone: {why}; skipped"
        for gone in ("3 to 5", "8 to 8")
    ]


def test_a_hole_over_the_end_of_the_range_is_a_loss(connect: Connections) -> None:
    with Script(lambda script, heard: script.found(heard, [0, 1, 20])) as script:
        with pytest.raises(DataLossError, match="offsets 2 to 9 are gone"):
            script.read(10, connect)
        assert script.read(10, connect, fail_on_data_loss=False) == [0, 1]


def test_a_rolled_file_without_messages_is_a_loss_unless_an_expression_is_asked_for(
    connect: Connections,
) -> None:
    def reply(script: Script, heard: Plain) -> None:
        at = int(heard.ext["queueOffset"])
        if at < 5:
            script.say(heard, AGAIN, b"", 5)
        else:
            script.found(heard, list(range(5, 10)))

    with Script(reply) as script:
        with pytest.raises(DataLossError, match="offsets 0 to 4 are gone"):
            script.read(10, connect)
        assert script.read(10, connect, expression="a") == [5, 6, 7, 8, 9]


def test_a_reset_of_the_group_in_between_changes_nothing(connect: Connections) -> None:
    """The broker sends the group elsewhere once; what a query reads is fixed."""

    def reply(script: Script, heard: Plain) -> None:
        if len(script.asked) == 1:
            script.say(heard, MOVED, b"", 2, most=10)
        else:
            script.found(heard, list(range(10)))

    with Script(reply) as script:
        assert script.read(10, connect, start=5) == [5, 6, 7, 8, 9]
        assert script.asked == [5, 5]


def test_a_busy_broker_is_asked_again(connect: Connections) -> None:
    def reply(script: Script, heard: Plain) -> None:
        if len(script.asked) < 3:
            script.peer.answer(heard.opaque, code=BUSY)
        else:
            script.found(heard, [0, 1])

    with Script(reply) as script:
        assert script.read(2, connect) == [0, 1]


def test_a_silent_broker_gets_a_new_connection_and_then_an_end(connect: Connections) -> None:
    with (
        Script(lambda script, heard: None) as script,
        pytest.raises(
            RequestTimeoutError,
            match=r"no progress at offset 0 .* 5 times pullTimeoutMs, .*did not answer in",
        ),
    ):
        script.read(10, connect)
    # Each for as long as it has, within a time for all: a slow machine makes fewer.
    assert 2 <= len(script.asked) == connect.made <= 5


def test_a_lost_answer_is_asked_for_again(connect: Connections) -> None:
    def reply(script: Script, heard: Plain) -> None:
        if len(script.asked) > 1:
            script.found(heard, [0, 1])

    with Script(reply) as script:
        assert script.read(2, connect) == [0, 1]
    assert connect.made == 2


def test_a_connection_that_was_closed_meanwhile_is_made_again(connect: Connections) -> None:
    def found(script: Script, heard: Plain) -> None:
        script.found(heard, [0, 1])

    with Script(found) as master, Script(found) as slave:
        channel = connect(master.peer.address)
        channel.close()
        kept = [channel]

        def kept_first(address: str) -> BlockingChannel:
            return kept.pop() if kept else connect(address)

        what = Range("t", "b", (master.peer.address, slave.peer.address), 3, 0, 2)
        assert len(list(pulled(what, PullSettings(group="g"), kept_first))) == 1
        assert (len(master.asked), len(slave.asked)) == (1, 0)


def test_a_replica_that_lags_is_left_for_the_next_address(connect: Connections) -> None:
    def behind(script: Script, heard: Plain) -> None:
        script.say(heard, NOT_FOUND, b"", 0, most=0)

    def ahead(script: Script, heard: Plain) -> None:
        script.found(heard, [0, 1])

    with Script(behind) as slave, Script(ahead) as master:
        addresses = (slave.peer.address, master.peer.address)
        what = Range("t", "b", addresses, 3, 0, 2)
        chunks = list(pulled(what, PullSettings(group="g", timeout_ms=SHORT_MS), connect))
    assert [len(chunk.starts) for chunk in chunks] == [2]


def test_the_next_address_is_taken_when_one_cannot_be_reached(connect: Connections) -> None:
    with Script(lambda script, heard: script.found(heard, [0, 1])) as master:
        with Peer() as gone:
            nobody = gone.address
        what = Range("t", "b", (nobody, master.peer.address), 3, 0, 2)
        chunks = list(pulled(what, PullSettings(group="g"), connect))
    assert [len(chunk.starts) for chunk in chunks] == [2]


def test_found_without_messages_makes_no_sense(connect: Connections) -> None:
    with (
        Script(lambda script, heard: script.say(heard, 0, b"", 1)) as script,
        pytest.raises(TransportError, match="FOUND without messages"),
    ):
        script.read(10, connect)


def test_nobody_there_at_all_is_a_clear_end() -> None:
    def connect(address: str) -> BlockingChannel:
        raise ConnectFailed(f"{address}: no route to host")

    what = Range("t", "b", ("10.0.0.1:1",), 3, 0, 2)
    with pytest.raises(RequestTimeoutError, match=r"queue 3 of broker b.*10\.0\.0\.1:1: no route"):
        list(pulled(what, PullSettings(group="g", timeout_ms=20), connect))


# ── What else a peer may do ──


def test_large_messages_are_asked_for_no_faster_than_they_are_read(
    connect: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fetches behind the first one would otherwise fill up with all of their 1024 messages."""
    monkeypatch.setattr(fetcher, "FETCH_OFFSETS", 64)
    filler, sent = bytes(10_000), 0

    def reply(script: Script, heard: Plain) -> None:
        nonlocal sent
        at = int(heard.ext["queueOffset"])
        body = b"".join(stored(offset, filler) for offset in (at, at + 1))
        sent += len(body)
        script.say(heard, 0, body, at + 2)

    most = taken = count = 0
    with Script(reply) as script:
        what = Range("t", "b", (script.peer.address,), 3, 0, 512)
        how = PullSettings(group="g", window=8, read_ahead_bytes=100_000)
        for chunk in pulled(what, how, connect):
            most = max(most, sent - taken)
            taken += len(chunk.buffer)
            count += len(chunk.starts)
    assert count == 512
    assert most < 100_000 + 8 * 2 * 10_100, "the first answers come before their size is known"


def test_answers_are_asked_for_in_sizes_that_fit_together() -> None:
    assert PullSettings(group="g", window=8, read_ahead_bytes=16 << 20).answer_bytes == 2 << 20
    assert PullSettings(group="g", window=2, read_ahead_bytes=16 << 20).answer_bytes == 4 << 20
    alone = PullSettings(group="g", expression="a", read_ahead_bytes=3 << 20)
    assert alone.answer_bytes == 3 << 20, "there is one at a time"
    assert PullSettings(group="g", bulk_bytes=None).answer_bytes is None


@pytest.mark.parametrize("code", [BUSY, NO_TOPIC])
def test_an_address_that_refuses_to_be_read_is_left_for_the_next(
    connect: Connections, code: int
) -> None:
    """A slave of a Java broker does, unless it is set to be read from; new topics come late."""

    def refuse(script: Script, heard: Plain) -> None:
        script.peer.answer(heard.opaque, code=code)

    def found(script: Script, heard: Plain) -> None:
        script.found(heard, [0, 1])

    with Script(refuse) as slave, Script(found) as master:
        what = Range("t", "b", (slave.peer.address, master.peer.address), 3, 0, 2)
        chunks = list(pulled(what, PullSettings(group="g", timeout_ms=SHORT_MS), connect))
        assert [len(chunk.starts) for chunk in chunks] == [2]
        assert len(slave.asked) == 1


@pytest.mark.parametrize("fail", [True, False])
def test_a_replica_that_lags_is_no_loss_while_the_other_cannot_be_reached(
    connect: Connections, fail: bool
) -> None:
    def behind(script: Script, heard: Plain) -> None:
        script.say(heard, NOT_FOUND, b"", 1, most=1)

    with Script(behind) as slave:
        with Peer() as gone:
            nobody = gone.address
        what = Range("t", "b", (nobody, slave.peer.address), 3, 1, 2)
        how = PullSettings(group="g", timeout_ms=2 * SHORT_MS, fail_on_data_loss=fail)
        with pytest.raises(RequestTimeoutError, match="no progress at offset 1"):
            list(pulled(what, how, connect))


def test_what_expired_at_one_address_is_read_at_the_other(connect: Connections) -> None:
    # A slave that does not check offsets says 20 where others say 21.
    for code in (MOVED, AGAIN):

        def expired(script: Script, heard: Plain, code: int = code) -> None:
            script.say(heard, code, b"", int(heard.ext["queueOffset"]), least=2)

        def found(script: Script, heard: Plain) -> None:
            script.found(heard, [0, 1])

        with Script(expired) as slave, Script(found) as master:
            what = Range("t", "b", (slave.peer.address, master.peer.address), 3, 0, 2)
            chunks = list(pulled(what, PullSettings(group="g", timeout_ms=SHORT_MS), connect))
            assert [len(chunk.starts) for chunk in chunks] == [2], code


def test_what_all_addresses_lost_is_lost(connect: Connections) -> None:
    def expired(script: Script, heard: Plain) -> None:
        at = int(heard.ext["queueOffset"])
        if at < 2:
            script.say(heard, MOVED, b"", 2, least=2)
        else:
            script.found(heard, [2, 3])

    with Script(expired) as slave, Script(expired) as master:
        what = Range("t", "b", (slave.peer.address, master.peer.address), 3, 0, 4)
        with pytest.raises(DataLossError, match="offsets 0 to 1 are gone"):
            list(pulled(what, PullSettings(group="g"), connect))
        chunks = list(pulled(what, PullSettings(group="g", fail_on_data_loss=False), connect))
        assert [chunk.first_offset for chunk in chunks] == [2]


@pytest.mark.parametrize("slave_first", [True, False])
def test_what_any_address_has_is_read_whatever_the_others_lack(
    connect: Connections, monkeypatch: pytest.MonkeyPatch, slave_first: bool
) -> None:
    """The slave has less at both ends; several fetches find that out at once."""
    monkeypatch.setattr(fetcher, "FETCH_OFFSETS", 4)

    def has(least: int, most: int) -> Callable[[Script, Plain], None]:
        def reply(script: Script, heard: Plain) -> None:
            at = int(heard.ext["queueOffset"])
            if least <= at < most:
                script.found(heard, list(range(at, min(at + 2, most))))
            else:
                script.say(heard, MOVED, b"", min(max(at, least), most), least=least, most=most)

        return reply

    with Script(has(10, 17)) as slave, Script(has(5, 27)) as master:
        both = (slave.peer.address, master.peer.address)
        what = Range("t", "b", both if slave_first else both[::-1], 3, 0, 40)
        how = PullSettings(group="g", window=3, fail_on_data_loss=False)
        chunks = list(pulled(what, how, connect))
    assert [chunk.first_offset + at for chunk in chunks for at in range(len(chunk.starts))] == [
        *range(5, 27)
    ]


@pytest.mark.parametrize("remark", ["MESSAGE_WAS_REMOVING", "OFFSET_FOUND_NULL"])
def test_messages_that_are_being_removed_are_a_loss_whatever_is_asked_for(
    connect: Connections, remark: str
) -> None:
    def reply(script: Script, heard: Plain) -> None:
        if int(heard.ext["queueOffset"]) < 5:
            script.say(heard, AGAIN, b"", 5, remark=remark)
        else:
            script.found(heard, [6, 8])

    with Script(reply) as script:
        with pytest.raises(DataLossError, match="offsets 0 to 4 are gone"):
            script.read(9, connect, expression="a")
        assert script.read(9, connect, expression="a", fail_on_data_loss=False) == [6, 8]


def test_a_refusal_says_what_was_asked_for(broker: AnyBroker, connect: Connections) -> None:
    place = rf"topic nowhere, queue 0 of broker broker-a, offset 7: PULL_MESSAGE.*{broker.address}"
    with pytest.raises(TopicNotFoundError, match=place):
        read(pulled(the_range(broker, 7, 10, "nowhere"), PullSettings(group="g"), connect))


def test_an_answer_that_is_no_records_says_whose(connect: Connections) -> None:
    with (
        Script(lambda script, heard: script.say(heard, 0, b"x" * 100, 1)) as script,
        pytest.raises(RecordDamagedError, match=r"topic t, queue 3 of broker b: .* offset 0, sent"),
    ):
        script.read(10, connect)


def test_a_peer_that_hangs_up_at_once_is_not_called_without_a_pause(connect: Connections) -> None:
    def hang_up(script: Script, heard: Plain) -> None:
        script.peer.close()
        script.peer.socket = None

    with Script(hang_up) as script, pytest.raises(RequestTimeoutError, match="no progress"):
        script.read(10, connect)
    assert connect.made <= 12, "a second of trying, ten times a second"
