"""What a stranger may put into a field: extreme numbers, texts, properties and JSON.

Pure: a source of chance in, values out. Nothing here is a name that honest requests of the load
use, so that a changed request hits what it hits by its shape, not by luck.
"""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

I32_MAX, I64_MAX = (1 << 31) - 1, (1 << 63) - 1

NUMBERS: tuple[int, ...] = (
    0, 1, -1, 2, -2, 7, 255, 256, 999, 1_024, 32_767, 32_768, 65_535, 65_536,
    I32_MAX - 1, I32_MAX, I32_MAX + 1, -I32_MAX, -I32_MAX - 1, -I32_MAX - 2, (1 << 32) - 1,
    10**12, I64_MAX - 1, I64_MAX, I64_MAX + 1, -I64_MAX, -I64_MAX - 1, -I64_MAX - 2, 10**30,
)  # fmt: skip

TEXTS: tuple[str, ...] = (
    "", " ", ".", "..", "/", "../../../../etc/passwd", "a/b", "con\\nul", "a b", "\t", "\r\n",
    "\0", "a\0b", "\x01", "\x02", "\x01\x02", "\x02\x01\x02", "=", ";", "@", "+", "%", "|", "*",
    "%RETRY%", "%RETRY%g", "%DLQ%", "%DLQ%g", "%LMQ%x", "%RETRY%%RETRY%g", "%RETRY%g-0_plain-a",
    "%RETRY%g-0+plain-a", "TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC", "rmq_sys_wheel_timer",
    "rmq_sys_REVIVE_LOG_DefaultCluster", "RMQ_SYS_TRACE_TOPIC", "DefaultCluster_REPLY_TOPIC",
    "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "BenchmarkTest", "DefaultCluster", "features",
    "CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_REVIVE_GROUP", "DEFAULT_PRODUCER", "TOOLS_CONSUMER",
    "\xff", "\xff\xfe", "\ud800", "\udfff\ud800", "\U0001f980", "é", "İ", "１２", "x" * 120,
    "x" * 121, "x" * 127, "x" * 128, "x" * 255, "x" * 256, "y" * 40_000, "%" * 200, "null", "true",
    "NaN", "Infinity", "1e5", "0x10", "+1", "-0", " 1", "1 ", "1_000", "1.0", "[]", "{}", '"',
    "a||b", "||", "|| ||", "a > 1", "a = 'x' AND b IS NULL", "(" * 500, "NOT " * 300 + "TRUE",
    "a LIKE '" + "%a" * 50 + "'", "a IN (" + ",".join(["'v'"] * 400) + ")", "-" * 400 + "1 > 0",
)  # fmt: skip

HOOKED = ("DELAY", "TIMER_", "TRAN_MSG", "STARTDELIVERTIME")
"""In a property string, these may send a message elsewhere first."""

SYSTEM_PROPERTIES: tuple[str, ...] = (
    "KEYS", "TAGS", "WAIT", "DELAY", "RETRY_TOPIC", "REAL_TOPIC", "REAL_QID", "TRAN_MSG", "PGROUP",
    "MIN_OFFSET", "MAX_OFFSET", "BUYER_ID", "ORIGIN_MESSAGE_ID", "TRANSFER_FLAG", "UNIQ_KEY",
    "CORRECTION_FLAG", "MQ2_FLAG", "RECONSUME_TIME", "MSG_REGION", "TRACE_ON", "EXTEND_UNIQ_INFO",
    "MAX_RECONSUME_TIMES", "CONSUME_START_TIME", "TRAN_PREPARED_QUEUE_OFFSET", "INSTANCE_ID",
    "TRANSACTION_CHECK_TIMES", "CHECK_IMMUNITY_TIME_IN_SECONDS", "__SHARDINGKEY", "MSG_TYPE",
    "__transactionId__", "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "ARRIVE_TIME", "CLUSTER",
    "PUSH_REPLY_TIME", "POP_CK", "POP_CK_OFFSET", "1ST_POP_TIME", "INNER_NUM", "INNER_BASE",
    "DUP_INFO", "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "LMQ_BASE", "__CRC32#",
    "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_ENQUEUE_MS", "TIMER_OUT_MS",
    "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES", "TIMER_DEL_UNIQKEY", "TIMER_DELAY_LEVEL",
    "__STARTDELIVERTIME", "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", "_SYS_SAME", "a", "",
    "AEROBEE_HALF_OFFSET", "AEROBEE_HALF_ENDED",
)  # fmt: skip
"""Names that mean something to a broker of RocketMQ, or nothing."""

VALUES: tuple[object, ...] = (None, True, False, [], {}, [[]], {"a": 1}, 1.5, -0.0, 1e300)
"""Of a JSON field, beside texts and numbers."""


def extreme(rng: random.Random) -> str:
    """A value for a field, as text."""
    return str(rng.choice(NUMBERS)) if rng.random() < 0.5 else rng.choice(TEXTS)


def changed_fields(rng: random.Random, fields: Mapping[str, object]) -> dict[str, object]:
    """With one to three fields gone, extreme, of a wrong type, swapped, or of an unknown name."""
    new = dict(fields)
    names = sorted(new)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        if not names:
            break
        name, kind = rng.choice(names), rng.random()
        if kind < 0.1:
            new.pop(name, None)
        elif kind < 0.8:
            new[name] = extreme(rng)
        elif kind < 0.88:
            new[name] = rng.choice(VALUES)
        elif kind < 0.95:
            new[name] = new.get(rng.choice(names), "")
        else:
            new[rng.choice(TEXTS)[:100]] = extreme(rng)
    return new


def changed_properties(rng: random.Random, text: str) -> str:
    """A property string with names of the broker's own, in any order, twice, cut or unclosed."""
    parts = [part for part in text.split("\x02") if part]
    for _ in range(rng.choice([1, 1, 2, 4])):
        value = extreme(rng) if rng.random() < 0.8 else str(rng.randrange(20))
        parts.append(f"{rng.choice(SYSTEM_PROPERTIES)}\x01{value}")
    if rng.random() < 0.2:
        parts.append(rng.choice(["novalue", "\x01", "a\x01b\x01c", "\x01v", "\0", "n\x01\0"]))
    if rng.random() < 0.3:
        parts.append(rng.choice(parts))
    rng.shuffle(parts)
    joined = rng.choice(["\x02", "\x02", "\x02", "\x02\x02"]).join(parts)
    return joined + rng.choice(["\x02", "\x02", "", "\x02\x02\x02", "\0", "\xff", "\x01"])


def changed_json(rng: random.Random, document: Any) -> bytes:
    """A JSON body with something extreme somewhere in it, or no JSON any more."""
    kind = rng.random()
    if kind < 0.05:
        return rng.choice([b"", b"null", b"[]", b"0", b'"x"', b"{", b"\xff\xfe", b"[" * 5_000])
    new = copy.deepcopy(document)
    for _ in range(rng.choice([1, 1, 2])):
        _change(rng, new)
    data = json.dumps(new).encode()
    if kind < 0.1 and len(data) > 1:
        return data[: rng.randrange(len(data))]
    return data


def _change(rng: random.Random, node: Any) -> None:
    """Change one leaf of it, or how many there are."""
    while True:
        keys: list[Any] = sorted(node) if isinstance(node, dict) else list(range(len(node)))
        if not keys:
            return
        key = rng.choice(keys)
        below = node[key]
        if isinstance(below, dict | list) and below and rng.random() < 0.8:
            node = below
            continue
        if isinstance(node, list) and rng.random() < 0.2:
            node += [copy.deepcopy(below) for _ in range(rng.choice([1, 50, 2_000]))]
        elif isinstance(node, dict) and rng.random() < 0.1:
            del node[key]
        else:
            plain = rng.choice([extreme(rng), rng.choice(NUMBERS), rng.choice(VALUES)])
            node[key] = plain
        return
