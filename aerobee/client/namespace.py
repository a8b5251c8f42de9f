"""Names in a namespace, as the Java client writes them: `orders` in `shop` is `shop%orders`. Pure.

Source: client §5.8 (NamespaceUtil).
"""

from __future__ import annotations

__all__ = ["unwrapped", "wrapped"]

SEPARATOR = "%"
PREFIXES = ("%RETRY%", "%DLQ%")
"""They stay in front of the namespace."""
SYSTEM_PREFIXES = ("rmq_sys_", "CID_RMQ_SYS_")
SYSTEM_TOPICS = frozenset(
    {
        "BenchmarkTest",
        "OFFSET_MOVED_EVENT",
        "RMQ_SYS_TRACE_TOPIC",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "SCHEDULE_TOPIC_XXXX",
        "SELF_TEST_TOPIC",
        "TBW102",
        "TRANS_CHECK_MAX_TIME_TOPIC",
    }
)
"""They are nobody's: no namespace has one of its own."""


def wrapped(namespace: str, name: str) -> str:
    """A topic or group as brokers know it; one that is in the namespace already stays."""
    if not namespace or not name or is_system(name):
        return name
    prefix, plain = _split(name)
    inside = namespace + SEPARATOR
    return name if plain.startswith(inside) else f"{prefix}{inside}{plain}"


def unwrapped(namespace: str, name: str) -> str:
    """A topic or group as users of the namespace know it."""
    if not namespace:
        return name
    prefix, plain = _split(name)
    return prefix + plain.removeprefix(namespace + SEPARATOR)


def is_system(name: str) -> bool:
    """Whether it belongs to the brokers."""
    return name in SYSTEM_TOPICS or name.startswith(SYSTEM_PREFIXES)


def _split(name: str) -> tuple[str, str]:
    """The prefix of retries and dead letters, and the rest."""
    for prefix in PREFIXES:
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name
