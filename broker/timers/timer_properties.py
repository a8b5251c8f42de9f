"""The properties of timer messages: due time, target, and recall handle.

Pure: the hook redirects a message with a due time to the wheel topic, or refuses it; `come_back`
gives its properties when it is delivered. A handle names a timer, so that its producer can recall
it. Source: semantics §9.1, §9.2, §9.5 (HookUtils, RecallMessageHandle).
"""

from __future__ import annotations

import base64
import binascii
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from aerobee.broker.core.drafts import queue_id_of
from aerobee.broker.delay.delay_levels import level_of
from aerobee.broker.errors import Refusal
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.store.format.properties import decode, encode, value_of
from aerobee.store.format.system_names import RETRY_PREFIX, WHEEL_TOPIC

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aerobee.store.format.record import MessageDraft

DELAY_SECONDS: Final = "TIMER_DELAY_SEC"
DELAY_MILLISECONDS: Final = "TIMER_DELAY_MS"
DELIVER_AT: Final = "TIMER_DELIVER_MS"
START_DELIVER_TIME: Final = "__STARTDELIVERTIME"
ASKS_FOR_TIME: Final = frozenset({DELAY_SECONDS, DELAY_MILLISECONDS, DELIVER_AT})
OUT: Final = "TIMER_OUT_MS"
DELETE_KEY: Final = "TIMER_DEL_UNIQKEY"
ROLLS: Final = "TIMER_ROLL_TIMES"
ENQUEUED: Final = "TIMER_ENQUEUE_MS"
DEQUEUED: Final = "TIMER_DEQUEUE_MS"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE: Final = "REAL_QID"

NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_OUT_BYTES: Final = OUT.encode()
_TOPIC_BYTES: Final = REAL_TOPIC.encode()
_QUEUE_BYTES: Final = REAL_QUEUE.encode()
_DELETE_BYTES: Final = DELETE_KEY.encode()
_DELETES: Final = _DELETE_BYTES + b"\x01"
_OUT_MARK: Final = b"\x02" + _OUT_BYTES + b"\x01"
_AS_WRITTEN: Final = re.compile(
    rb"\x02TIMER_OUT_MS\x01([0-9]{1,18})\x02REAL_TOPIC\x01([\x21-\x7e]+)\x02REAL_QID\x01([0-9]{1,9})\x02"
)
"""The three properties in the form that the hook adds them."""
ROLLED: Final = ROLLS.encode() + b"\x01"
"""In the properties of a rolled timer."""
_ENQUEUED_MARK: Final = ENQUEUED.encode() + b"\x01"
_VERSION: Final = "v1"
KEPT_BYTES: Final = 512
"""Timer properties with more behind them are not kept."""
ENDS_KEPT: Final = 256
"""Timers of one second for one queue come one behind the other; others share nothing."""
FAR_MS: Final = 10**15
"""Beyond the limit of any configuration."""


# ── On the way in ──


class TimerHook(NamedTuple):
    """Redirects a message with a due time to the wheel topic."""

    enabled: bool = True
    precision_ms: int = 1_000
    max_delay_s: int = 3_456_000
    start_deliver_time: bool = False
    """Whether the property of cloud clients counts as well."""

    def __call__(
        self,
        draft: MessageDraft,
        properties: dict[str, str],
        now_ms: int,
        *,
        accepted: bool = False,
    ) -> None:
        """Redirect a message with a due time to the wheel topic.

        `accepted`: it passed the limits before, whatever they are now. Raises: Refusal.
        """
        if ASKS_FOR_TIME.isdisjoint(properties):
            cloud = properties.get(START_DELIVER_TIME) if self.start_deliver_time else None
            if cloud is None:
                return
            properties[DELIVER_AT] = cloud
        level = properties.get("DELAY")
        if level is not None and level_of(level) > 0:
            # Parsed like in the hook of the levels: a message that both redirect would get lost.
            for name in ASKS_FOR_TIME:
                properties.pop(name, None)
            return
        if OUT in properties or draft.topic == WHEEL_TOPIC:
            return
        if not (self.enabled or accepted):
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                "accurate timer message is not enabled, timerWheelEnable is false",
            )
        out_ms = self._slot(properties, now_ms, accepted=accepted)
        if out_ms is None:
            return
        properties[OUT] = str(out_ms)
        properties[REAL_TOPIC] = draft.topic
        properties[REAL_QUEUE] = str(draft.queue_id)
        draft.topic = WHEEL_TOPIC
        draft.queue_id = 0

    def _slot(self, properties: Mapping[str, str], now_ms: int, *, accepted: bool) -> int | None:
        """The time of the slot in ms; None for a message due at once. Raises: Refusal."""
        deliver_ms = _deliver_ms(properties, now_ms)
        if deliver_ms <= now_ms:
            if DELETE_KEY in properties:
                raise _illegal("the timer that it takes back is due already")
            return None
        if deliver_ms - now_ms > (FAR_MS if accepted else self.max_delay_s * 1_000):
            raise _illegal(f"the time is more than timerMaxDelaySec = {self.max_delay_s} s away")
        return slot_of(deliver_ms, self.precision_ms)


def slot_of(deliver_ms: int, precision_ms: int) -> int:
    """The time of the slot of a timer, in ms."""
    # A slot is delivered when its time is over, so an exact multiple gets the slot before it.
    return (deliver_ms - 1) // precision_ms * precision_ms


def _deliver_ms(properties: Mapping[str, str], now_ms: int) -> int:
    for name, since_ms, unit_ms in (
        (DELAY_SECONDS, now_ms, 1_000),
        (DELAY_MILLISECONDS, now_ms, 1),
        (DELIVER_AT, 0, 1),
    ):
        text = properties.get(name)
        if text is not None:
            number = _number(text)
            if number is None:
                raise _illegal(f"property {name} is not a number: {text[:40]!r}")
            return since_ms + number * unit_ms
    raise AssertionError("one of them is there")


def _illegal(reason: str) -> Refusal:
    return Refusal(ResponseCode.MESSAGE_ILLEGAL, f"timer message illegal: {reason}")


def _number(text: str) -> int | None:
    return int(text) if NUMBER.fullmatch(text) else None


# ── In the wheel ──


class TimerProperties(NamedTuple):
    """The timer properties of a record of the wheel topic."""

    out_ms: int
    topic: str
    queue_id: int
    deletes: bool

    @classmethod
    def of(cls, properties: bytes) -> TimerProperties | None:
        """None for a record that cannot be delivered: without time or target. Hot."""
        at = properties.rfind(_OUT_MARK)
        if at >= 0 and len(properties) - at <= KEPT_BYTES:
            # Timers of one second for one queue end alike.
            usual = _kept(properties[at:])
            if usual is not None:
                return usual._replace(deletes=True) if _DELETES in properties else usual
        return cls._of_any(properties)

    @classmethod
    def _of_any(cls, properties: bytes) -> TimerProperties | None:
        """Read properties in any order, as the Java broker writes them."""
        out = value_of(properties, _OUT_BYTES)
        topic = value_of(properties, _TOPIC_BYTES)
        queue = value_of(properties, _QUEUE_BYTES)
        if out is None or topic is None or queue is None:
            return None
        queue_id = queue_id_of(queue)
        if not NUMBER.fullmatch(out) or queue_id is None:
            return None
        return cls(int(out), topic, queue_id, _DELETES in properties)


@lru_cache(maxsize=ENDS_KEPT)
def _kept(end: bytes) -> TimerProperties | None:
    """The timer properties at the begin of these, if the hook has written them."""
    usual = _AS_WRITTEN.match(end)
    if usual is None:
        return None
    out_digits, raw_topic, queue_digits = usual.groups()
    return TimerProperties(int(out_digits), raw_topic.decode(), int(queue_digits), deletes=False)


@lru_cache(maxsize=64)
def _stamp(enqueued_ms: int, now_ms: int) -> bytes:
    """The text that is added to the properties of a timer that is delivered for the first time."""
    return b"%b%d\x02TIMER_DEQUEUE_MS\x01%d\x02" % (_ENQUEUED_MARK, enqueued_ms, now_ms)


def come_back(properties: bytes, enqueued_ms: int, now_ms: int, *, roll: bool = False) -> bytes:
    """The properties of a timer that is delivered; with `roll` of one that goes into the wheel
    again.

    The rest of the string is unchanged, as with the Java broker. Hot.
    """
    if not roll and _ENQUEUED_MARK not in properties:
        end = b"" if properties.endswith(b"\x02") else b"\x02"
        return properties + end + _stamp(enqueued_ms, now_ms)
    changed = decode(properties)
    changed[ENQUEUED] = str(enqueued_ms)
    changed[DEQUEUED] = str(now_ms)
    if roll:
        changed[ROLLS] = str((_number(changed.get(ROLLS, "0")) or 0) + 1)
    return encode(changed).encode()


def delete_keys(properties: bytes, topic: str) -> set[tuple[str, str]]:
    """Topic and unique key of the timer that a recall cancels, in both written forms.

    5.4 writes the key, 5.3 the topic before it.
    """
    key = value_of(properties, _DELETE_BYTES)
    if key is None:
        return set()
    return {(topic, key), (topic, key.removeprefix(f"{topic}+"))}


# ── Handles ──


class RecallHandle(NamedTuple):
    """Names one timer. `deliver_ms` is within the slot's period."""

    topic: str
    broker: str
    deliver_ms: int
    unique_key: str


def handle_of(properties: Mapping[str, str], broker: str) -> str | None:
    """The handle of a message in the wheel; None when it cannot be recalled."""
    out = properties.get(OUT)
    topic = properties.get(REAL_TOPIC)
    if out is None or topic is None or topic.startswith(RETRY_PREFIX):
        return None
    text = f"{_VERSION} {topic} {broker} {int(out) + 1} {properties.get('UNIQ_KEY', '')}"
    return base64.urlsafe_b64encode(text.encode()).decode()


def read_handle(text: str) -> RecallHandle:
    """Parse a handle, with padding or without. Raises: Refusal."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        version, topic, broker, deliver, key = raw.decode().split(" ")
    except (binascii.Error, ValueError):
        raise Refusal(ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid") from None
    if version != _VERSION or not NUMBER.fullmatch(deliver) or not (key and key.isprintable()):
        raise Refusal(ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid")
    return RecallHandle(topic, broker, int(deliver), key)
