"""The campaign of bad requests: each is answered in words, and changes nothing but what it may.

Every code gets each fault of `bad_requests`, in an order of chance, and between them several faults
at once. Each answer has a code of the protocol and a remark for people, which names the field that
is missing or no number. The connection goes on. Nothing is written outside of the store; the broker
says nothing of errors, keeps no socket, and no turn of its loop takes more than 20 ms. After a stop
or a kill it starts with the same topics, groups and offsets, and what was stored is there.
"""

from __future__ import annotations

import random
import re
import time
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from aerobee.remoting.wire.codes import RequestCode, ResponseCode
from aerobee.remoting.wire.relaxed_json import decode
from tests.faults.bad_requests import GROUP, TOPIC, BadRequest, any_of, every
from tests.faults.greedy_requests import Asked, Greedy, greedy_among
from tests.kit.campaign import Campaign
from tests.kit.health import events, open_descriptors
from tests.kit.raw_client import Closed, RawConnection, send_fields, topic_fields
from tests.kit.reading import read_topic
from tests.kit.stall_watch import WatchedBroker
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kit.campaign import Run
    from tests.kit.raw_client import RawAnswer

TURN_MS: Final = 20.0
REPEATS: Final = 3
ANSWERED_WITHIN_S: Final = 30.0
OF_A_LIFE: Final = 2_000
MESSAGES: Final = 20
SHOWN: Final = 12
KEPT: Final = "kept"
SEND, CREATE_TOPIC, CREATE_GROUP, COMMIT = 310, 17, 200, 15
ALL_TOPICS, ALL_GROUPS, ALL_OFFSETS, ALL_MODES = 21, 201, 43, 402
QUESTION: Final = int(RequestCode.GET_ROUTEINFO_BY_TOPIC)
HELD: Final = frozenset(
    {
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.POP_MESSAGE,
        RequestCode.NOTIFICATION,
        RequestCode.END_TRANSACTION,
    }
)
"""What may be kept back, or has no answer: the one to the question behind it is enough."""
CODES: Final = frozenset(map(int, ResponseCode))
SPEAK_FOR_THEMSELVES: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
        ResponseCode.POLLING_TIMEOUT,
    }
)
INSIDE: Final = re.compile(r'Traceback|File "|\b[a-z]\w*\.py\b|\b[A-Z]\w*(Error|Exception)\b')
"""What a remark for people never has."""
OF_THE_STORE: Final = re.compile(r"[%|a-zA-Z0-9_.+-]+")
IDLE_SOCKETS: Final = 14
SETTINGS: Final[dict[str, object]] = {"flushConsumerOffsetInterval": 500}


def fault(bad: BadRequest, answer: RawAnswer) -> str | None:
    """What is wrong with an answer."""
    if bad.closes:
        return f"answered, not closed: {answer.code}"
    remark = answer.remark or ""
    if answer.code not in CODES:
        return f"{answer.code} is no code of an answer"
    if INSIDE.search(remark):
        return f"the remark is not for people: {remark[:500]}"
    if bad.refused and (answer.code != ResponseCode.SYSTEM_ERROR or bad.refused not in remark):
        return f"{bad.refused} is not named: {answer.code} {remark[:500]}"
    if not remark and answer.code not in SPEAK_FOR_THEMSELVES:
        return f"{answer.code} without a word"
    return None


class Sweep:
    """One directory and the lives of a broker on it."""

    def __init__(self, run: Run) -> None:
        self.run = run
        # So deep that a path out of the store still ends where we look.
        self.broker = WatchedBroker(data=run.directory / "a" / "b" / "data", settings=SETTINGS)
        self.asked: list[Asked] = []
        self.late: list[Greedy] = []
        self.wrong: list[str] = []
        self.connections: dict[bool, RawConnection] = {}

    def live(self, requests: Iterator[tuple[int, BadRequest]], *, kill: bool, first: bool) -> None:
        """Ask all of these, then end and start again: everything is as before."""
        broker, run = self.broker, self.run
        with broker.watched() as gaps:
            if first:
                self.prepare()
            self.asked.clear()
            for _, bad in requests:
                self.ask(bad)
                run.done()
            for connection in self.connections.values():
                connection.close()
            self.connections.clear()
            pid = broker.child.pid
            eventually(
                lambda: open_descriptors(pid)["socket"] <= IDLE_SOCKETS,
                within_s=ANSWERED_WITHIN_S,
                what="as many sockets as before",
            )
            broker.let_run(1.5)
            before = self.state()
            if kill:
                broker.kill()
                broker.start()
            else:
                broker.restart()
            assert self.state() == before, "another state after the start"
            self.check_messages()
        for gap in gaps:
            if gap.cpu_ms > TURN_MS:
                began = gap.at_s - gap.late_ms / 1_000
                self.late += [
                    one.greedy
                    for one in self.asked
                    if one.began_s <= gap.at_s and one.ended_s >= began
                ]
        assert not self.wrong, "\n".join(self.wrong[:SHOWN])
        run.counts["kills" if kill else "stops"] += 1
        self.check_log()
        self.check_files()

    def prepare(self) -> None:
        """A topic with messages and a group with an offset, which no bad request names."""
        with RawConnection(self.broker.address) as client:
            for topic in (KEPT, TOPIC):
                assert client.call(CREATE_TOPIC, topic_fields(topic, 1)).code == 0
            for group in ("keepers", GROUP):
                body = f'{{"groupName":"{group}","retryMaxTimes":7}}'.encode()
                assert client.call(CREATE_GROUP, None, body).code == 0
            for number in range(MESSAGES):
                assert client.call(SEND, send_fields(KEPT, 0), b"kept %d" % number).code == 0
            fields = {"consumerGroup": "keepers", "topic": KEPT, "queueId": 0, "commitOffset": 5}
            assert client.call(COMMIT, fields).code == 0

    def ask(self, bad: BadRequest) -> None:
        """Ask, and look at the answer. Raises: AssertionError."""
        began = time.monotonic()
        try:
            answer = self._answer(bad)
        except (Closed, TimeoutError) as error:
            assert self.broker.child.running, f"{bad!r:.2000}: {self.broker.child.errors()[-2000:]}"
            raise AssertionError(f"{bad!r:.2000}: {error!r}") from error
        wrong = None if answer is None else fault(bad, answer)
        if wrong is not None:
            self.wrong.append(f"{wrong}\n{bad!r:.2000}")
        greedy = Greedy(bad.what, bad.to_name_server, bad.code, bad.fields, bad.body)
        self.asked.append(Asked(greedy, began, time.monotonic()))
        self.run.counts["answered" if answer is not None else "held"] += 1

    def _answer(self, bad: BadRequest) -> RawAnswer | None:
        """None when it is held."""
        connection = self.connections.get(bad.to_name_server)
        if connection is None:
            broker = self.broker
            address = broker.namesrv_address if bad.to_name_server else broker.address
            connection = RawConnection(address, timeout_s=ANSWERED_WITHIN_S)
            self.connections[bad.to_name_server] = connection
        opaque = connection.opaque + 1
        heard: dict[int, RawAnswer] = {}
        try:
            connection.ask(bad.code, bad.fields, bad.body)
            last = connection.ask(QUESTION, {"topic": "no such"})
            while last not in heard or (opaque not in heard and bad.code not in HELD):
                answer = connection.hear()
                heard[answer.opaque] = answer
        except Closed:
            if not bad.closes:
                raise
        if opaque not in heard:
            self.connections.pop(bad.to_name_server).close()
        return heard.get(opaque)

    def state(self) -> dict[str, Any]:
        """The tables that a start must find again."""
        with RawConnection(self.broker.address, timeout_s=ANSWERED_WITHIN_S) as client:
            topics, groups, offsets, modes = (
                decode(client.call(code).body)
                for code in (ALL_TOPICS, ALL_GROUPS, ALL_OFFSETS, ALL_MODES)
            )
        return {
            "topics": topics["topicConfigTable"],
            "groups": groups["subscriptionGroupTable"],
            "forbidden": groups["forbiddenTable"],
            "offsets": offsets["offsetTable"],
            "modes": modes,
        }

    def check_messages(self) -> None:
        """Nothing that was acknowledged is lost."""
        with RawConnection(self.broker.address, timeout_s=ANSWERED_WITHIN_S) as client:
            kept = [record.body for record in read_topic(client, KEPT, 0)]
        assert kept == [b"kept %d" % number for number in range(MESSAGES)]

    def check_log(self) -> None:
        """Nothing failed that a request asked for."""
        text = self.broker.log.read_text(encoding="utf-8", errors="replace")
        for event in events(text):
            assert event["level"] != "error", str(event)[:3_000]
            assert event["event"] != "request.failed", str(event)[:3_000]

    def check_files(self) -> None:
        """All is in the store, and has a name of the store."""
        data = self.broker.data
        ours = {data, self.broker.log, self.broker.gaps_path, data.parent, data.parent.parent}
        for path in self.run.directory.rglob("*"):
            if data not in path.parents:
                assert path in ours, f"{path} is not of the store"
            assert OF_THE_STORE.fullmatch(path.name), f"{path} has an odd name"


def numbered(run: Run) -> Iterator[tuple[int, BadRequest]]:
    """The requests by their number: each fault once, then again, and others between them."""
    one_by_one = list(every())
    random.Random(f"{run.key} {run.seed}").shuffle(one_by_one)
    run.counts["different faults"] = len(one_by_one)
    while True:
        cycle = run.cycle()
        half, odd = divmod(cycle.number, 2)
        yield cycle.number, any_of(cycle.rng) if odd else one_by_one[half % len(one_by_one)]


def sweep(run: Run) -> None:
    """Life after life."""
    swept = Sweep(run)
    requests = numbered(run)
    life = 0
    while run.more:
        left = run.wanted - run.executed
        count = min(OF_A_LIFE, left) if left > 0 else OF_A_LIFE
        swept.live(islice(requests, count), kill=life % 2 == 0, first=life == 0)
        life += 1
    suspects = {one.name: one for one in swept.late}
    seen = []
    for number in range(REPEATS if suspects else 0):
        place = run.directory / f"again-{number}"
        place.mkdir()
        again = greedy_among(place, suspects.values(), most_ms=TURN_MS)
        seen.append({greedy.name: f"{cpu_ms:.0f} ms" for greedy, cpu_ms in again})
    each_time = set.intersection(*map(set, seen)) if seen else set()
    assert not each_time, [{name: one[name] for name in each_time} for one in seen]


B1 = Campaign(
    key="B1",
    title="bad requests of every code: answered in words, and nothing else happens",
    unit="requests",
    t1=400,
    t2=30_000,
    run=sweep,
)
