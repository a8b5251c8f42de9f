"""Whatever a stored record says: no service ends or stands still, what lies behind it is served.

The records are put into the topics of the services themselves, as a Java broker, an older version
or a damaged disk may have left them there.
"""

from __future__ import annotations

import json
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.core.drafts import QUEUE_ID_MAX
from aerobee.broker.delay.delay_levels import target_of
from aerobee.broker.pop.pop_records import Ack, CheckPoint
from aerobee.broker.pop.revive_queue import ReviveQueue
from aerobee.broker.timers.timer_properties import TimerProperties, come_back, delete_keys
from aerobee.broker.transactions.half_messages import Half, Rules, next_step, put_again
from aerobee.remoting.errors import BodyError
from aerobee.store.format.index import KeyHasher
from aerobee.store.format.properties import decode, encode
from aerobee.store.format.record import MessageDraft, Record
from aerobee.store.format.system_names import HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC, WHEEL_TOPIC
from aerobee.store.format.unit import DelayLevels, code_of
from aerobee.store.results import PutStatus
from tests.broker.delay.test_schedule import park, still_desk
from tests.broker.pop.test_pop import REVIVE_LOG
from tests.broker.pops import open_pops
from tests.broker.timers.test_timers import open_bench
from tests.broker.transactions.test_check_service import COMMIT, open_bank

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from tests.broker.desk import Desk

HOST = bytes([127, 0, 0, 1, 0, 0, 195, 80])
HOST6 = bytes(15) + b"\x01" + bytes([0, 0, 195, 80])
NOW_MS = 1_700_000_000_000
NUMBERS = (
    "0",
    "1",
    "-1",
    "2147483647",
    "2147483648",
    "-2147483649",
    "99999999999",
    "9223372036854775807",
    "-9223372036854775808",
    "9" * 19,
    "9" * 25,
    "9" * 5_000,
    str(NOW_MS),
    str(NOW_MS + 1_000),
)
TEXTS = (
    "",
    " 7",
    "\u0663",
    "x" * 300,
    "..",
    "a/../../b",
    "\0",
    "\ufffd",
    "true",
    "t",
    "%RETRY%g",
    "%RETRY%" + "g" * 260,
    "%DLQ%g",
    SCHEDULE_TOPIC,
    WHEEL_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    "rmq_sys_REVIVE_LOG_x",
)
VALUES = NUMBERS + TEXTS
NAMES = (
    "REAL_TOPIC",
    "REAL_QID",
    "DELAY",
    "TAGS",
    "KEYS",
    "UNIQ_KEY",
    "PGROUP",
    "TRAN_MSG",
    "TRANSACTION_CHECK_TIMES",
    "TRAN_PREPARED_QUEUE_OFFSET",
    "CHECK_IMMUNITY_TIME_IN_SECONDS",
    "TIMER_OUT_MS",
    "TIMER_DELIVER_MS",
    "TIMER_DEL_UNIQKEY",
    "TIMER_ROLL_TIMES",
    "TIMER_ENQUEUE_MS",
    "1ST_POP_TIME",
    "ORIGIN_GROUP",
)
INT32 = (0, 1, -1, 2**31 - 1, -(2**31))
INT64 = (0, 1, -1, NOW_MS, 2**63 - 1, -(2**63))


def properties_of(random: Random, **usual: str) -> bytes:
    """The usual ones, some of them replaced and others added; or bytes that are none at all."""
    if random.random() < 0.05:
        return random.randbytes(random.randrange(60))
    given = dict(usual)
    for _ in range(random.randrange(1, 4)):
        given[random.choice(NAMES)] = random.choice(VALUES)
    if random.random() < 0.1:
        given["FILLER"] = "x" * (32_767 - len(encode(given).encode()) - 8)
    return encode(given).encode()[:32_767]


def put_odd(
    desk: Desk, random: Random, topic: str, queue_id: int, properties: bytes, body: bytes
) -> None:
    """One record that says what it likes."""
    draft = MessageDraft(
        topic,
        queue_id,
        body,
        properties,
        random.choice((HOST, HOST6)),
        random.choice((HOST, HOST6)),
        flag=random.choice(INT32),
        sys_flag=random.choice((0, 8, 2**31 - 1 & ~0xC, -(2**31))),
        born_timestamp=random.choice(INT64),
        reconsume_times=random.choice(INT32),
        prepared_transaction_offset=random.choice(INT64),
        tags_code=code_of(topic, properties, desk.clock.now_ms(), desk.store.levels),
    )
    assert desk.store.put(draft, accepted=True).status is PutStatus.PUT_OK


@pytest.mark.trio
@pytest.mark.parametrize("seed", range(2))
async def test_delay_levels_go_on_behind_any_record(
    tmp_path: Path, autojump_clock: MockClock, seed: int
) -> None:
    random = Random(seed)
    async with still_desk(tmp_path) as desk:
        for number in range(100):
            usual = {"REAL_TOPIC": "u", "REAL_QID": "0", "DELAY": "1"}
            odd = properties_of(random, **usual)
            put_odd(desk, random, SCHEDULE_TOPIC, 0, odd, b"odd")
            if not number % 10:
                await park(desk, 1, b"%d" % number)
        desk.after_round()
        end = desk.store.max_offset(SCHEDULE_TOPIC, 0)
        # A first tick finds what is due by its time, later ones what no time could be meant by.
        for _ in range(3):
            autojump_clock.jump(2)
            await desk.schedule.tick()
        good = [one for one in desk.records("t") if bytes(one.body) != b"odd"]
        assert [bytes(one.body) for one in good] == [b"%d" % n for n in range(0, 100, 10)]
        assert desk.store.max_offset(SCHEDULE_TOPIC, 0) == end, "nothing goes round"
        assert desk.store.stats.set_aside["schedule"]


@pytest.mark.trio
@pytest.mark.parametrize("seed", range(2))
async def test_timers_go_on_behind_any_record(
    tmp_path: Path, mock_clock: MockClock, seed: int
) -> None:
    random = Random(seed)
    async with open_bench(tmp_path) as bench:
        for number in range(100):
            usual = {
                "REAL_TOPIC": "u",
                "REAL_QID": "0",
                "TIMER_OUT_MS": str(bench.desk.now_ms() + 1000),
            }
            put_odd(bench.desk, random, WHEEL_TOPIC, 0, properties_of(random, **usual), b"odd")
            if not number % 10:
                await bench.send(b"%d" % number, TIMER_DELAY_SEC=2)
        bench.desk.after_round()
        await bench.desk.pass_s(6)
        good = [body for body in bench.desk.bodies() if body != b"odd"]
        assert sorted(good) == sorted(b"%d" % n for n in range(0, 100, 10))
        end = bench.desk.store.max_offset(WHEEL_TOPIC, 0)
        assert bench.timers.timers.queue_offset == end
        await bench.desk.pass_s(6)
        assert bench.desk.store.max_offset(WHEEL_TOPIC, 0) == end, "nothing goes round"
        assert bench.desk.store.stats.set_aside["timers"]


@pytest.mark.trio
@pytest.mark.parametrize("seed", range(2))
async def test_transactions_go_on_behind_any_record(
    tmp_path: Path, mock_clock: MockClock, seed: int
) -> None:
    random = Random(seed)
    async with open_bank(tmp_path, transaction_check_max=2) as bank:
        bank.producer()
        good = []
        for number in range(60):
            usual = {"REAL_TOPIC": "u", "REAL_QID": "0", "PGROUP": "payments", "TRAN_MSG": "true"}
            put_odd(bank.desk, random, HALF_TOPIC, 0, properties_of(random, **usual), b"odd")
            op = random.choice((*NUMBERS, "1,2", "x", ",")).encode()
            put_odd(bank.desk, random, OP_TOPIC, 0, properties_of(random, TAGS="d"), op)
            if not number % 20:
                good.append(await bank.half(b"%d" % number))
        bank.desk.after_round()
        for one in good:
            assert (await bank.end(one, COMMIT)).code == 0
        await bank.pass_s(600)
        assert bank.desk.bodies() == [b"0", b"20", b"40"]
        end = bank.desk.store.max_offset(HALF_TOPIC, 0)
        assert end <= 60 * 4 + 10
    # What these records named is known again, or not, but the service starts and goes on.
    async with open_bank(tmp_path, transaction_check_max=2) as bank:
        half = await bank.half(b"later")
        await bank.pass_s(61)
        assert (await bank.end(half, COMMIT, from_transaction_check=True)).code == 0
        assert b"later" in bank.desk.bodies()


def odd_entry(random: Random) -> dict[str, Any]:
    """A check point or an acknowledgement of anything."""
    entry: dict[str, Any] = {
        "t": "t",
        "c": "g",
        "q": 0,
        "so": 0,
        "pt": NOW_MS,
        "it": 1_000,
        "n": 1,
        "d": [0],
        "bn": "desk",
        "ao": 0,
    }
    odd: tuple[Any, ...] = (
        *INT64,
        *INT32,
        2**31,
        10**30,
        *TEXTS[:12],
        None,
        [],
        [0] * 70_000,
        [10**30],
        {"a": 1},
    )
    for _ in range(random.randrange(1, 4)):
        entry[random.choice((*entry, "rp", "aol", "bm"))] = random.choice(odd)
    return entry


@pytest.mark.trio
@pytest.mark.parametrize("seed", range(2))
async def test_revival_goes_on_behind_any_record(
    tmp_path: Path, mock_clock: MockClock, seed: int
) -> None:
    random = Random(seed)
    async with open_pops(tmp_path) as pops:
        await pops.send(b"good")
        await pops.pop(invisible_time=5_000)
        for _ in range(150):
            tag = random.choice((b"ck", b"ck", b"ack", b"bAck", b"?"))
            body = json.dumps(odd_entry(random)).encode()
            if random.random() < 0.1:
                body = random.choice((b"", b"[" * 100_000, b"null", random.randbytes(40)))
            tags = b"TAGS\x01%b\x02" % tag
            put_odd(pops.desk, random, REVIVE_LOG, random.randrange(8), tags, body)
        pops.desk.after_round()
        await pops.desk.pass_s(12)
        assert b"good" in [one.body for one in await pops.pop()]
        await pops.desk.pass_s(30)
        store = pops.desk.store
        for queue in pops.desk.revive.queues:
            assert queue.position == store.max_offset(REVIVE_LOG, queue.queue_id)


# ── the words alone ──

texts = st.sampled_from(VALUES) | st.text(max_size=20)
odd_properties = st.binary(max_size=80) | st.dictionaries(
    st.sampled_from(NAMES), texts, max_size=6
).map(lambda given: encode(given).encode())


@given(odd_properties)
def test_no_property_string_makes_a_word_fail(properties: bytes) -> None:
    target = target_of(properties)
    assert target is None or 0 <= target.queue_id <= QUEUE_ID_MAX
    timed = TimerProperties.of(properties)
    assert timed is None or 0 <= timed.queue_id <= QUEUE_ID_MAX
    come_back(properties, NOW_MS, NOW_MS)
    come_back(properties, NOW_MS, NOW_MS, roll=True)
    delete_keys(properties, "t")
    code = code_of(SCHEDULE_TOPIC, properties, 2**63 - 1, DelayLevels())
    assert -(2**63) <= code < 2**63
    KeyHasher().collect([], "t", properties, 0, NOW_MS)


@given(odd_properties, st.sampled_from(INT64), st.integers(0, 2**62))
def test_every_half_has_a_next_step(properties: bytes, born_ms: int, at: int) -> None:
    place = (300, 0, 0, 0, 0, at, 4096, 0, born_ms, HOST, NOW_MS, HOST, 0, 0)
    half = Half.of(Record(*place, b"pay", HALF_TOPIC, properties))
    rules = Rules(end_offset=2**62, timeout_ms=6_000, checks_max=15, reserved_ms=72 * 3_600_000)
    step = next_step(half, NOW_MS, rules, NOW_MS - born_ms)
    assert decode(put_again(half, step)) is not None
    assert isinstance(half.key, int)


@given(st.integers(0, 10**6))
def test_a_check_point_of_anything_is_taken_or_refused(seed: int) -> None:
    body = json.dumps(odd_entry(Random(seed))).encode()
    queue = ReviveQueue(REVIVE_LOG, 0, 0)
    with suppress(BodyError, OverflowError):
        point = CheckPoint.from_bytes(body)
        queue.add(point, 0)
        assert 0 <= point.failures < 10**9
    with suppress(BodyError):
        queue.acknowledge(Ack.from_bytes(body))
