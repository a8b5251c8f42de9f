"""What reading and writing headers costs, on one core and without a socket.

    python -m bench.codec

One table: the step, the type of header, µs (the best of many short runs, since the machine is
shared), and the budget where there is one. The message is one that a Java client sends.
"""

from __future__ import annotations

import argparse
import timeit
from typing import TYPE_CHECKING, NamedTuple

from aerobee.remoting.wire.bodies.route import BrokerData, QueueData, TopicRouteData
from aerobee.remoting.wire.command import Command, answer_head, decode, encode_request
from aerobee.remoting.wire.frame import FrameDecoder
from aerobee.remoting.wire.headers.pull import PullMessage, PullMessageResponse
from aerobee.remoting.wire.headers.send import SendMessageResponse, SendMessageV2
from bench.arguments import program
from bench.machine import describe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aerobee.remoting.wire.header import Header

RUNS = 15
SECONDS_PER_RUN = 0.02
TYPES = ("JSON", "ROCKETMQ", "MSGPACK")
PIPELINED = 32

SEND = SendMessageV2(
    producer_group="producer",
    topic="TopicTest",
    default_topic="TBW102",
    default_topic_queue_nums=4,
    queue_id=3,
    sys_flag=0,
    born_timestamp=1_700_000_000_000,
    flag=0,
    properties="UNIQ_KEY\x017F00000100002A9F000000000001\x02WAIT\x01true\x02TAGS\x01TagA\x02",
    reconsume_times=0,
    unit_mode=False,
    max_reconsume_times=0,
    batch=False,
    broker_name="broker-a",
)
SENT = SendMessageResponse(
    msg_id="7F00000100002A9F000000000000012C",
    queue_id=3,
    queue_offset=123_456,
    transaction_id="7F00000100002A9F000000000001",
    region="DefaultRegion",
    trace_on="true",
)
PULL = PullMessage(
    consumer_group="consumer",
    topic="TopicTest",
    queue_id=3,
    queue_offset=123_456,
    max_msg_nums=32,
    sys_flag=3,
    commit_offset=123_400,
    suspend_timeout_millis=15_000,
    subscription="TagA",
    sub_version=1_700_000_000_000,
    expression_type="TAG",
)
PULLED = PullMessageResponse(0, 123_488, 0, 200_000)
ROUTE = TopicRouteData(
    broker_datas=[
        BrokerData(broker_addrs={0: "127.0.0.1:10911"}, broker_name="broker-a", cluster="C")
    ],
    queue_datas=[QueueData(broker_name="broker-a", perm=6, read_queue_nums=4, write_queue_nums=4)],
)


class Step(NamedTuple):
    """One line of the table; `per` is how many of it one run of `work` does."""

    name: str
    work: Callable[[], object]
    budget_us: float | None = None
    per: int = 1


def steps() -> Iterator[Step]:
    """Every step, in the order of a request's way."""
    frame = encode_request(310, 77, SEND, b"x" * 128)
    decoder = FrameDecoder()
    one, many = memoryview(frame), memoryview(frame * PIPELINED)
    yield Step("frame: feed, one frame", lambda: decoder.feed(one), 0.5)
    yield Step(f"frame: feed, {PIPELINED} frames", lambda: decoder.feed(many), 0.5, PIPELINED)
    for encoding, name in enumerate(TYPES):
        json = encoding == 0
        yield reading(f"{name}: SEND_MESSAGE_V2 in", encoding, SEND, 1.3 if json else None)
        yield reading(f"{name}: PULL_MESSAGE in", encoding, PULL, 1.5 if json else None)
        yield answering(f"{name}: sent, answer", encoding, SENT, 1.0 if json else None)
        yield answering(f"{name}: pulled, answer", encoding, PULLED)
        yield Step(f"{name}: SEND_MESSAGE_V2 out", requesting(encoding))
    yield Step("body: route out", ROUTE.to_bytes)


def reading(name: str, encoding: int, header: Header, budget_us: float | None) -> Step:
    """Header bytes → command → typed header."""
    frame = encode_request(header.code, 77, header, b"", encoding=encoding)
    [(_, raw, body)] = FrameDecoder().feed(frame)
    cls = type(header)
    assert decode(encoding, raw, body).header(cls) == header
    return Step(name, lambda: decode(encoding, raw, body).header(cls), budget_us)


def answering(name: str, encoding: int, header: Header, budget_us: float | None = None) -> Step:
    """Typed header → length prefix and header bytes."""
    request = Command(opaque=77, encoding=encoding)
    return Step(name, lambda: answer_head(request, 0, header, None, 0), budget_us)


def requesting(encoding: int) -> Callable[[], object]:
    """Typed header and body → frame, as a client does it."""
    body = b"x" * 128
    return lambda: encode_request(310, 77, SEND, body, encoding=encoding)


def best_us(step: Step) -> float:
    """µs of one, the call of the lambda included."""
    timer = timeit.Timer(step.work)
    number = 1
    while (took := timer.timeit(number)) < SECONDS_PER_RUN:
        number = max(number * 2, int(number * SECONDS_PER_RUN / max(took, 1e-6)))
    return min(timer.repeat(RUNS, number)) / number / step.per * 1e6


@program
def main() -> None:
    """Print the table."""
    argparse.ArgumentParser(prog="python -m bench.codec").parse_args()
    print(describe())
    print(f"{'step':<34}{'µs':>8}{'budget':>9}")
    for step in steps():
        budget = "" if step.budget_us is None else f"{step.budget_us:.1f}"
        print(f"{step.name:<34}{best_us(step):>8.2f}{budget:>9}")


if __name__ == "__main__":
    main()
