"""A master and its slave as processes of their own, and the comparison of what they have.

The load sends to the master under SYNC_MASTER with two copies. What it was told is stored must be
in both logs; what is in the slave's log must be in the master's, byte for byte, at the same place.
"""

from __future__ import annotations

import json
import shutil
import struct
import threading
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

from tests.kit.broker_process import BrokerProcess
from tests.kit.load import Load, Shape, stored
from tests.kit.ports import HOST
from tests.kit.raw_client import (
    Closed,
    RawConnection,
    RawRecord,
    properties_text,
    records,
    send_fields,
    topic_fields,
)
from tests.kit.store_model import queue_files
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path
    from types import TracebackType

    from tests.kit.history import History, Stored
    from tests.kit.java_server import JavaBroker
    from tests.kit.split_network import SplitNetwork

SEGMENT_BYTES = 262_144
"""Small, so that a campaign goes over many ends of segments."""
EQUAL_WITHIN_S = 60.0
SHAPE = Shape(connections=3, window=4, rest_s=0.05)
CREATE_TOPIC, SEND, RUNTIME_INFO, HA_STATUS = 17, 310, 28, 907
RECORD_MAGIC = b"\xda\xa3\x20\xa7"
SUCCESS, SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT = 0, 11, 12
COMMON: dict[str, object] = {
    "brokerName": "pair",
    "mappedFileSizeCommitLog": SEGMENT_BYTES,
    # Queues are compared by their files.
    "flushConsumeQueueLeastPages": 0,
    "flushIntervalConsumeQueue": 100,
    "haSendHeartbeatInterval": 300,
    "haHousekeepingInterval": 2_000,
}
MASTER: dict[str, object] = {
    **COMMON,
    "brokerRole": "SYNC_MASTER",
    "inSyncReplicas": 2,
}
SLAVE: dict[str, object] = {**COMMON, "brokerRole": "SLAVE", "brokerId": 1}


class Pair:
    """A master and its slave, from `with` to its end."""

    master: BrokerProcess | JavaBroker
    slave: BrokerProcess | JavaBroker

    def __enter__(self) -> Self:
        self.master.start()
        make_topics(self.master.address)
        try:
            self.slave.start()
            self.until_in_sync()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        for broker in (self.slave, self.master):
            with suppress(AssertionError):
                broker.kill()

    def load(self, history: History, seed: str) -> Load:
        """Producers begin to send to the master."""
        return Load(self.master.address, history, seed=seed, shape=SHAPE)

    def until_in_sync(self) -> None:
        """Wait until a send is answered as stored on both."""
        eventually(
            lambda: probe(self.master.address) == SUCCESS,
            within_s=EQUAL_WITHIN_S,
            what="a send that the slave has",
        )

    def until_equal(self) -> int:
        """Wait until the slave has all that the master has, and compare; the end of both logs.

        Nobody sends meanwhile.
        """
        end = log_end(self.master.address)
        eventually(
            lambda: log_end(self.slave.address) == end,
            within_s=EQUAL_WITHIN_S,
            what=f"the slave's log ends at {end}",
        )
        begin = log_begin(self.slave.data)
        expect_prefix(self.slave.data, self.master.data, end)
        expect_queues(self.slave.data, self.master.data, begin)
        return end


class Replicas(Pair):
    """Both of them are ours."""

    master: BrokerProcess
    slave: BrokerProcess

    def __init__(
        self,
        root: Path,
        *,
        of_master: Mapping[str, object] | None = None,
        of_slave: Mapping[str, object] | None = None,
        master_data: Path | None = None,
        slave_data: Path | None = None,
        network: SplitNetwork | None = None,
    ) -> None:
        """`of_slave` may name another haMasterAddress; the slave runs in a `network` of its own."""
        here, there = (network.here, network.there) if network else (HOST, HOST)
        root.mkdir(parents=True, exist_ok=True)
        open_to_others = {"bindAddress": "0.0.0.0", "insecure": True} if network else {}
        settings = {**MASTER, "haPeers": there, "brokerIP1": here, **open_to_others}
        settings |= of_master or {}
        self.master = BrokerProcess(
            data=master_data or root / "master",
            settings=settings,
            log_path=root / "master.log",
            host=here,
        )
        to_master = {"haMasterAddress": f"{here}:{self.master.ports.ha}", "brokerIP1": there}
        settings = {**SLAVE, **to_master, **open_to_others, **(of_slave or {})}
        log = root / "slave.log"
        data = slave_data or root / "slave"
        self.slave = BrokerProcess(data=data, settings=settings, log_path=log, host=there)
        if network is not None:
            self.slave.network = network.name

    def empty_the_slave(self) -> None:
        """Its disk is lost."""
        self.slave.kill()
        shutil.rmtree(self.slave.data)


def make_topics(address: str) -> None:
    """Every topic of the load, and that of the probes."""
    with RawConnection(address) as connection:
        for topic in (*SHAPE.topics, "probe"):
            answer = connection.call(CREATE_TOPIC, topic_fields(topic, SHAPE.queues))
            assert answer.code == SUCCESS, answer


def probe(address: str, *, waits: bool = True, body: bytes = b"probe|") -> int:
    """The code of a send to a topic that no history knows; `waits`: for slaves."""
    text = "" if waits else properties_text(WAIT="false")
    with RawConnection(address) as connection:
        return connection.call(SEND, send_fields("probe", 0, i=text), body).code


def runtime(address: str) -> dict[str, Any]:
    """The runtime table of a broker. Raises: Closed while a busy one of Java refuses it."""
    with RawConnection(address) as connection:
        answer = connection.call(RUNTIME_INFO)
    if answer.code != SUCCESS:
        raise Closed(f"{address} answered {answer.code}: {answer.remark}")
    table: dict[str, Any] = json.loads(answer.body)["table"]
    return table


def log_end(address: str) -> int:
    """The end of a broker's log; −1 while it cannot be asked."""
    try:
        return int(runtime(address)["commitLogMaxOffset"])
    except (Closed, OSError):
        return -1


def ha_status(address: str, within_s: float = 10.0) -> dict[str, Any]:
    """What a master says of its slaves. Raises: Closed, OSError."""
    with RawConnection(address, timeout_s=within_s) as connection:
        answer = connection.call(HA_STATUS)
    status: dict[str, Any] = json.loads(answer.body)
    return status


def segments(data: Path) -> dict[int, Path]:
    """The files of a log by the offsets at which they begin."""
    return {int(path.name): path for path in sorted((data / "commitlog").iterdir())}


def log_begin(data: Path) -> int:
    """Where a log begins."""
    return min(segments(data))


def expect_prefix(slave: Path, master: Path, end: int) -> None:
    """Up to `end`, a slave's log is what its master's is from the slave's begin on."""
    theirs = segments(master)
    for begin, path in segments(slave).items():
        size = min(SEGMENT_BYTES, end - begin)
        if size <= 0:
            continue
        ours, other = path.read_bytes()[:size], theirs[begin].read_bytes()[:size]
        if ours != other:
            at = next(at for at in range(size) if ours[at] != other[at])
            raise AssertionError(f"altered: the logs differ at {begin + at}, before {end}")


def units(data: Path, begin: int) -> dict[tuple[str, int], list[bytes]]:
    """The units of each queue that lead into the log behind `begin`."""
    found: dict[tuple[str, int], list[bytes]] = {}
    for place, files in queue_files(data).items():
        text = b"".join(content for _, content in files)
        each = (text[at : at + 20] for at in range(0, len(text), 20))
        rows = [
            one for one in each if one[8:12] != bytes(4) and one[:8] >= begin.to_bytes(8, "big")
        ]
        # A blank unit in front of a queue that begins later has the greatest size.
        found[place] = [one for one in rows if one[8:12] != b"\x7f\xff\xff\xff"]
    return {place: rows for place, rows in found.items() if rows}


def expect_queues(slave: Path, master: Path, begin: int) -> None:
    """The queues of both lead to the same records."""
    eventually(
        lambda: units(slave, begin) == units(master, begin),
        within_s=EQUAL_WITHIN_S,
        what="the slave's queues are the master's",
    )


def stored_in(data: Path) -> list[Stored]:
    """What of the load is in the log of a directory, read from its files."""
    return list(_of_the_load(segments(data).values()))


def stored_by(slave: Path, master: Path) -> list[Stored]:
    """What a slave has, with what its master had before the slave's log began."""
    begin = log_begin(slave)
    early = [path for start, path in segments(master).items() if start < begin]
    return list(_of_the_load(early)) + stored_in(slave)


def stored_messages(data: Path, topic: str) -> Iterator[RawRecord]:
    """The messages of a topic in the log of a directory, in its order."""
    for message in chain.from_iterable(map(_messages, segments(data).values())):
        if message.topic == topic:
            yield message


def _of_the_load(each: Iterable[Path]) -> Iterator[Stored]:
    for message in chain.from_iterable(map(_messages, each)):
        if message.topic in SHAPE.topics:
            yield stored(message)


def _messages(segment: Path) -> Iterator[RawRecord]:
    """Up to the blank, to zeros, or to a record that a kill has cut."""
    data, at = segment.read_bytes(), 0
    while data[at + 4 : at + 8] == RECORD_MAGIC:
        size = int.from_bytes(data[at : at + 4], "big")
        try:
            message = next(records(data[at : at + size]))
        except (AssertionError, struct.error):
            return
        yield message
        at += size


class WatchedCodes:
    """Asks a master now and then with WAIT=false, which no slave may hold up."""

    def __init__(self, address: str) -> None:
        self.codes: list[int] = []
        self._address = address
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="no-wait")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(0.1):
            self.codes.append(probe(self._address, waits=False))
