"""`aerobee bench` against a real broker: what it counts is what was sent."""

import json
import signal
from collections.abc import Callable

import pytest

from tests.aerobee.cli.conftest import Call
from tests.kit.process import Child
from tests.kit.waiting import eventually

pytestmark = pytest.mark.service

WITHIN_S = 30
WORKERS = 4
WORDS = ("--count", "200", "--workers", "8", "--json")


def test_sends_are_counted_and_timed(call: Call, topic: str) -> None:
    done = call("bench", "produce", "--topic", topic, "--rate", "1000", *WORDS)
    assert done.code == 0, done.err
    found = done.document
    assert (found["sent"], found["failed"]) == (200, 0)
    assert found["seconds"] >= 0.19
    latency = found["send_latency"]
    assert 0 < latency["p50_ms"] <= latency["p99_ms"] <= latency["max_ms"]
    read = call("bench", "consume", "--topic", topic, "--json").document
    assert read["received"] == 200


@pytest.mark.parametrize(
    "arguments",
    [
        ("produce", "--duration", "nan"),
        ("produce", "--rate", "inf", "--duration", "1"),
        ("produce", "--rate", "1e9", "--duration", "1"),
        ("produce", "--rate", "nan", "--count", "1"),
        ("produce", "--warmup", "nan", "--count", "1"),
        ("produce", "--size", "400000000000"),
        ("idle", "--duration", "nan"),
    ],
)
def test_what_never_ends_or_fits_is_wrong_usage(call: Call, arguments: tuple[str, ...]) -> None:
    done = call("bench", *arguments)
    assert done.code == 2
    assert arguments[1] in done.err


def test_a_send_that_fails_says_why(call: Call) -> None:
    done = call(
        "bench", "produce", "--topic", "SCHEDULE_TOPIC_XXXX", "--count", "1", "--workers", "1"
    )
    assert done.code == 1
    assert (
        "1 send failed: ConfigurationError: clients may not send to topic SCHEDULE_TOPIC_XXXX"
        in done.err
    )


@pytest.mark.parametrize(("kind", "consumers"), [("roundtrip", 1), ("fanout", 2)])
def test_everything_comes_once_and_in_order(
    call: Call, topic: str, kind: str, consumers: int
) -> None:
    more = ("--consumers", str(consumers)) if kind == "fanout" else ()
    done = call("bench", kind, "--topic", topic, *WORDS, *more)
    assert done.code == 0, done.err
    found = done.document
    assert (found["sent"], found["received"]) == (200, 200 * consumers)
    assert [found[name] for name in ("lost", "duplicates", "reordered")] == [0, 0, 0]
    assert found["receive_latency"]["max_ms"] > 0


def test_waiting_is_measured(call: Call, topic: str) -> None:
    done = call("bench", "idle", "--topic", topic, "--duration", "0.3", "--consumers", "2")
    assert done.code == 0
    assert [line.split()[0] for line in done.out.splitlines()] == [
        "consumers",
        "seconds",
        "cpu",
        "memory",
    ]


def test_ctrl_c_ends_it_with_what_was_measured(
    start: Callable[..., Child], call: Call, topic: str
) -> None:
    call("topic", "create", topic)
    words = ("bench", "produce", "--topic", topic, "--rate", "100", "--duration", "600")
    with start(*words, "--workers", str(WORKERS), "--json") as child:

        def sent() -> bool:
            found: int = call("topic", "describe", topic, "--json").document["messages"]
            return found > WORKERS

        eventually(sent, within_s=WITHIN_S, what="more is stored than can be unanswered")
        child.signal(signal.SIGINT)
        assert json.loads(child.read_line(within_s=WITHIN_S))["sent"] > 0
        assert child.wait(within_s=WITHIN_S) == 0
