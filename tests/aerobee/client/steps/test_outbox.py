"""The outbox as a play: what leaves together, in which order, and what is said of each message."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.client.message import Message
from aerobee.client.send_result import MessageQueue
from aerobee.client.settings.client import RetryPolicy
from aerobee.client.settings.producer import ProducerConfig
from aerobee.client.steps.effects import Ask, Steps
from aerobee.client.steps.messages import UniqIds
from aerobee.client.steps.outbox import Outbox, OutgoingMessage
from aerobee.client.steps.sending import Sender
from aerobee.errors import (
    ClientClosedError,
    ConnectError,
    MessageIllegalError,
    PermissionDeniedError,
    RequestTimeoutError,
    UndeliveredError,
)
from aerobee.remoting.wire.headers.namesrv import GetRouteInfo
from aerobee.remoting.wire.headers.send import SendBatchMessage, SendMessageV2
from aerobee.store.format.batch import batch_items
from tests.aerobee.client.steps.stage import Stage, answer, route
from tests.aerobee.client.steps.test_sending import stored

if TYPE_CHECKING:
    from aerobee.remoting.wire.command import Command

RETRY = RetryPolicy(attempts=3, backoff=0.1, patient=False)


@dataclass
class Play:
    """One producer's outbox; what it does in the background waits for `work`."""

    stage: Stage
    outbox: Outbox
    jobs: list[Steps[None]] = field(default_factory=list)

    def accept(
        self, *messages: Message, queue: MessageQueue | None = None
    ) -> list[OutgoingMessage]:
        return [self.stage.perform(self.outbox.accept(one, queue)) for one in messages]

    def work(self) -> None:
        while self.jobs:
            self.stage.perform(self.jobs.pop(0))

    def sent(self) -> list[list[bytes]]:
        """The bodies of every request, tries included."""
        asks = [ask for ask in self.stage.heard if isinstance(ask.header, SendMessageV2)]
        return [bodies(ask) for ask in asks]


def bodies(ask: Ask) -> list[bytes]:
    if isinstance(ask.header, SendBatchMessage):
        return [bytes(body) for _, body, _ in batch_items(ask.body)]
    return [ask.body]


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.answers(GetRouteInfo, route("broker-a", queues=4))
    stage.answers(SendMessageV2, stored)
    stage.answers(SendBatchMessage, stored)
    return stage


def play(stage: Stage, **options: Any) -> Play:
    sender = Sender(
        stage.instance, ProducerConfig(**{"retry": RETRY, **options}), UniqIds(bytes(4), 1, 1)
    )
    made = Play(stage, Outbox(sender, lambda steps: made.jobs.append(steps)))
    return made


def test_what_waits_for_a_topic_leaves_in_one_request_with_a_result_each(stage: Stage) -> None:
    on = play(stage)
    accepted = on.accept(*(Message("T", b"%d" % n) for n in range(5)))
    assert not on.sent()
    on.work()
    assert on.sent() == [[b"0", b"1", b"2", b"3", b"4"]]
    results = [stage.perform(on.outbox.outcome(one)) for one in accepted]
    assert [result.queue_offset for result in results] == [7, 8, 9, 10, 11]
    assert len({result.message_id for result in results}) == 5


def test_one_message_is_sent_as_send_does_it(stage: Stage) -> None:
    on = play(stage)
    on.accept(Message("T", b"x", tag="A"))
    on.work()
    (ask,) = stage.asked(SendMessageV2)
    assert (ask.body, ask.header.ext()["m"]) == (b"x", "false")


def test_topics_and_kinds_of_waiting_for_the_disk_do_not_mix(stage: Stage) -> None:
    on = play(stage)
    on.accept(*(Message(t, b"x", wait_store_ok=w) for t in "TU" for w in (True, False)))
    on.work()
    assert len(on.sent()) == 4


def test_a_message_is_sent_as_it_was_when_it_was_accepted(stage: Stage) -> None:
    on = play(stage)
    message = Message("T", b"1", tag="A")
    on.accept(message)
    message.tag, message.body = "B", b"2"
    on.work()
    (ask,) = stage.asked(SendMessageV2)
    assert ask.body == b"1"
    assert "TAGS\x01A\x02" in ask.header.ext()["i"]


def test_equal_keys_share_a_queue_and_keep_their_order_through_a_retry(stage: Stage) -> None:
    on = play(stage)
    on.accept(Message("T", b"0", ordering_key="k"))
    assert len(on.jobs) == 1
    stage.answers(SendMessageV2, ConnectError("away"), stored)
    job = on.jobs.pop()
    first = next(job)
    # While the first is under way, the others gather: nobody else sends for that queue.
    on.accept(*(Message("T", b"%d" % n, ordering_key="k") for n in (1, 2)))
    assert not on.jobs
    on.jobs.append(rest(job, first))
    on.work()
    assert on.sent() == [[b"0"], [b"0"], [b"1", b"2"]]
    headers = [ask.header for ask in stage.heard if isinstance(ask.header, SendMessageV2)]
    assert len({header.queue_id for header in headers}) == 1


def test_a_key_keeps_its_order_whichever_of_its_messages_wait_for_the_disk(stage: Stage) -> None:
    on = play(stage)
    flags = (True, False, False, True)
    on.accept(
        *(Message("T", b"%d" % n, ordering_key="k", wait_store_ok=w) for n, w in enumerate(flags))
    )
    assert len(on.jobs) == 1
    on.work()
    assert on.sent() == [[b"0"], [b"1", b"2"], [b"3"]]


def rest(job: Steps[None], effect: Any) -> Steps[None]:
    """What is left of steps that have yielded an effect."""
    while True:
        try:
            reply: Command | None = yield effect
        except ConnectError as error:
            effect = job.throw(error)
            continue
        try:
            effect = job.send(reply)
        except StopIteration:
            return


def test_messages_for_any_queue_do_not_wait_for_one_request(stage: Stage) -> None:
    on = play(stage)
    on.accept(Message("T", b"0"))
    next(on.jobs[0])
    on.accept(*(Message("T", b"%d" % n) for n in range(1, 9)))
    assert len(on.jobs) == 4


def test_what_no_batch_takes_travels_alone_and_in_its_place(stage: Stage) -> None:
    on = play(stage)
    queue = MessageQueue("T", "broker-a", 1)
    long = bytes(5000)
    kinds = [Message("T", b"0"), Message("T", b"1", delay_level=3), Message("T", b"2")]
    on.accept(*kinds, Message("T", long), Message("T", b"4"), Message("T", b"5"), queue=queue)
    on.work()
    sent = on.sent()
    assert sent[:3] == [[b"0"], [b"1"], [b"2"]]
    assert len(sent[3][0]) < len(long)
    assert sent[4:] == [[b"4", b"5"]]


def test_a_batch_is_no_longer_than_its_bound(stage: Stage) -> None:
    on = play(stage, compression=None)
    on.accept(*(Message("T", bytes(50_000)) for _ in range(5)))
    on.work()
    assert [len(bodies) for bodies in on.sent()] == [2, 2, 1]


def test_a_message_that_is_refused_does_not_take_others_along(stage: Stage) -> None:
    stage.answers(SendBatchMessage, answer(13, remark="the size is over"))
    stage.answers(SendMessageV2, stored, answer(13, remark="the size is over"), stored)
    on = play(stage)
    accepted = on.accept(*(Message("T", b"%d" % n) for n in range(3)))
    on.work()
    assert on.sent() == [[b"0", b"1", b"2"], [b"0"], [b"1"], [b"2"]]
    assert [isinstance(one.outcome, MessageIllegalError) for one in accepted] == [
        False,
        True,
        False,
    ]


def test_a_full_outbox_takes_no_more_until_its_time_is_over(stage: Stage) -> None:
    on = play(stage, outbox_messages=2, timeout=4.0)
    on.accept(Message("T", b"0"), Message("T", b"1"))
    with pytest.raises(RequestTimeoutError, match="topic T: the outbox stayed full, 2 messages"):
        on.accept(Message("T", b"2"))
    stage.now_s -= 4.0
    on.work()
    assert len(on.accept(Message("T", b"3"))) == 1


def test_bytes_fill_it_too_but_one_message_always_fits(stage: Stage) -> None:
    on = play(stage, outbox_bytes=1000, compression=None)
    on.accept(Message("T", bytes(5000)))
    with pytest.raises(RequestTimeoutError, match="1 message and 5"):
        on.accept(Message("T", b"1"))


def test_a_failure_that_was_asked_for_is_told_once(stage: Stage) -> None:
    stage.answers(SendMessageV2, answer(16, remark="not yours"))
    on = play(stage)
    (asked,) = on.accept(Message("T", b"asked"))
    on.work()
    with pytest.raises(PermissionDeniedError):
        stage.perform(on.outbox.outcome(asked))
    on.accept(Message("T", b"not asked"))
    on.work()
    with pytest.raises(UndeliveredError, match=r"1 message not sent: .*not yours") as raised:
        stage.perform(on.outbox.flush())
    ((message, error),) = raised.value.failed
    assert (message.body, error.code, raised.value.code) == (b"not asked", 16, 16)
    stage.perform(on.outbox.flush())


def test_failures_that_nobody_asks_for_take_no_more_than_the_outbox_holds(stage: Stage) -> None:
    stage.answers(SendMessageV2, *[answer(16, remark="not yours")] * 9)
    on = play(stage, outbox_bytes=10_000, compression=None)
    accepted = []
    for _ in range(9):
        accepted += on.accept(Message("T", bytes(3000)))
        on.work()
    with pytest.raises(PermissionDeniedError):
        stage.perform(on.outbox.outcome(accepted[-1]))
    with pytest.raises(UndeliveredError, match="8 messages not sent") as raised:
        on.outbox.tell_failures()
    assert [message for message, _ in raised.value.failed] == [
        one.batch.messages[0] for one in accepted[-3:-1]
    ]


def test_who_waits_for_a_result_may_give_up_and_ask_again(stage: Stage) -> None:
    on = play(stage)
    (one,) = on.accept(Message("T", b"x"))
    with pytest.raises(RequestTimeoutError, match=r"within 0\.5 s, and still under way"):
        stage.perform(on.outbox.outcome(one, 0.5))
    on.work()
    assert stage.perform(on.outbox.outcome(one, 0.5)).ok


def test_a_close_gives_up_what_does_not_end_and_says_so(stage: Stage) -> None:
    on = play(stage)
    (one,) = on.accept(Message("T", b"x"))
    began_s = stage.now_s
    stage.perform(on.outbox.close())
    assert stage.now_s - began_s == pytest.approx(3.0)
    with pytest.raises(UndeliveredError, match="closed before the broker answered"):
        on.outbox.tell_failures()
    on.outbox.tell_failures()
    with pytest.raises(ClientClosedError, match="it may be stored"):
        stage.perform(on.outbox.outcome(one))
    with pytest.raises(ClientClosedError, match="this producer is closed"):
        on.accept(Message("T", b"y"))
    on.work()
    assert isinstance(one.outcome, ClientClosedError)
    assert not on.sent()


def test_a_client_that_ends_leaves_nobody_waiting(stage: Stage) -> None:
    on = play(stage)
    (one,) = on.accept(Message("T", b"x"))
    stage.instance.close()
    with pytest.raises(ClientClosedError, match="it may be stored"):
        stage.perform(on.outbox.outcome(one))


class ClosingQueue(MessageQueue):
    """A queue that closes the outbox when it is looked up, as a signal handler may at any point."""

    close: Any = None

    def __hash__(self) -> int:
        close, ClosingQueue.close = ClosingQueue.close, None
        if close is not None:
            close()
        return 7


def test_a_signal_handler_that_closes_while_a_message_is_taken_leaves_nobody_waiting(
    stage: Stage,
) -> None:
    on = play(stage)
    queue = ClosingQueue("T", "a", 0)
    ClosingQueue.close = lambda: stage.perform(on.outbox.close())
    with pytest.raises(ClientClosedError, match="closed"):
        on.accept(Message("T", b"x"), queue=queue)
    on.work()
    assert not on.sent()
