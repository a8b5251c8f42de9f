"""What an application may write with every public name, for type checkers: it is never run.

`tests/test_types.py` has pyright check it in its strict mode, and mypy checks it with all the rest.
An expression of an unknown type, or of another one than it says, is an error there.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, assert_type

import aerobee
from aerobee import admin, allocation, blocking, errors, hooks, testing

if TYPE_CHECKING:
    from collections.abc import Sequence


class Failures(hooks.Hook):
    """What a hook may look at."""

    def after_send(self, send: hooks.SendContext) -> None:
        assert_type(send.error, errors.AerobeeError | None)

    def after_consume(self, consume: hooks.ConsumeContext) -> None:
        assert_type(consume.outcome, hooks.ConsumeOutcome)


def check(message: aerobee.ReceivedMessage) -> aerobee.TransactionState:
    return aerobee.TransactionState(message.flag)


async def produce() -> None:
    account = aerobee.Credentials("me", "secret")
    tls = aerobee.TLSConfig(verify=False)
    retry = aerobee.RetryPolicy(attempts=2)
    message = aerobee.Message("T", b"x", keys=["k"], properties={"a": "b"}, delay=1.5)
    assert_type(message.priority, int | None)
    assert_type(message.alone, bool)
    async with (
        aerobee.Client("h:1", credentials=lambda: account, tls=tls) as client,
        aerobee.Producer(client=client, group="g", retry=retry, hooks=[Failures()]) as producer,
    ):
        result = assert_type(await producer.send(message, queue=None), aerobee.SendResult)
        assert_type(result.status, aerobee.SendStatus)
        assert_type(await producer.queues("T"), list[aerobee.MessageQueue])
        answer = assert_type(await producer.request(message), aerobee.ReceivedMessage)
        await producer.reply(answer, b"y")
        assert_type(await producer.send_batch([message]), list[aerobee.SendResult])
        pending = assert_type(await producer.send_soon(message), aerobee.PendingSend)
        assert_type(await pending, aerobee.SendResult)
    async with aerobee.TransactionProducer("h:1", group="g", checker=check) as transactions:
        async with transactions.transaction(message) as transaction:
            assert_type(transaction, aerobee.Transaction)
        ended = await transactions.send_in_transaction(message, lambda half: half.state)
        assert_type(ended, aerobee.TransactionResult)


async def on_messages(messages: Sequence[aerobee.ReceivedMessage]) -> aerobee.ConsumeResult:
    for number, message in enumerate(messages):
        match message.reconsume_times:
            case 0:
                raise aerobee.RetryLater(3)
            case 1:
                raise aerobee.BatchFailed([number])
            case 2:
                raise aerobee.Reject
            case _:
                assert_type(message.properties.get("a"), str | None)
    return aerobee.ConsumeResult.SUCCESS


async def consume() -> None:
    model = aerobee.MessageModel.CLUSTERING
    start = aerobee.ConsumeFrom.FIRST
    pushed = aerobee.PushConsumer("g", model=model, start_from=start, orderly=True)
    pushed.subscribe("T", aerobee.Filter.sql("a > 5"), on_messages)

    @pushed.subscribe("U")
    def plain(messages: Sequence[aerobee.ReceivedMessage]) -> None:
        assert_type(messages[0].body, bytes)

    plain([])
    await pushed.run()
    async with aerobee.PullConsumer("g", strategy=allocation.circle) as pulled:
        await pulled.subscribe("T")
        async for message in pulled:
            assert_type(message, aerobee.ReceivedMessage)
            await pulled.nack(message)
        for queue, offset in (await pulled.end_offsets()).items():
            assert_type(queue, aerobee.MessageQueue)
            await pulled.seek(queue, offset)
    async with aerobee.PopConsumer("g", invisible=10) as popped:
        messages = assert_type(await popped.receive("T"), list[aerobee.ReceivedMessage])
        await popped.ack(*messages)
        async for message in popped.messages("T"):
            await popped.extend(message, 5)


async def administer() -> None:
    async with aerobee.AdminClient() as client:
        assert_type(await client.topics(), list[str])
        described = assert_type(await client.describe_topic("T"), admin.TopicDescription)
        assert_type(described.queues[0], admin.QueueBounds)
        await client.create_topic("T", message_type=admin.MessageType.FIFO)
        assert_type(await client.change_topic("T", perm=6), list[admin.TopicConfig])
        await client.create_group(admin.GroupConfig(name="g"))
        limited = await client.limit_group("g", max_messages_per_s=5, priority_factor=50)
        assert_type(limited, dict[str, admin.GroupConfig])
        assert_type(await client.describe_group("g"), admin.GroupDescription)
        lag = assert_type(await client.consumer_lag("g"), admin.ConsumerLag)
        assert_type(lag.queues[0], admin.QueueLag)
        past = assert_type(await client.lag_history("g"), admin.LagHistory)
        assert_type(past.samples[0], admin.LagSample)
        assert_type(await client.consume_time_spans("g", "T"), list[admin.ConsumeTimeSpan])
        units = assert_type(await client.queue_units(lag.queues[0].queue, 0), admin.QueueUnits)
        assert_type(units.units[0], admin.QueueUnit)
        changes = await client.reset_offsets("g", "T", datetime.now(UTC), dry_run=True)
        assert_type(changes, list[admin.OffsetChange])
        online = assert_type(await client.consumers("g"), admin.ConsumerConnections)
        assert_type(online.subscriptions[0], admin.GroupSubscription)
        assert_type(await client.producers("g"), list[admin.ClientConnection])
        running = assert_type(await client.running_info("g", "c"), admin.RunningInfo)
        assert_type(running.queues[0], admin.RunningQueue)
        assert_type(running.topics[0], admin.RunningTopic)
        assert_type(running.popped[0], admin.PoppedQueue)
        message = await client.view_message("ID", "T")
        assert_type(await client.consume_directly("g", message), admin.DirectResult)
        assert_type(await client.request_modes(), list[admin.RequestMode])
        assert_type(await client.set_readable("g", "T", False), dict[str, bool])
        cluster = assert_type(await client.cluster_info(), admin.ClusterInfo)
        assert_type(cluster.brokers[0], admin.BrokerInfo)
        assert_type(cluster.lost[0], admin.LostBroker)
        item = assert_type(await client.stats_item("TOPIC_PUT_NUMS", "T"), admin.StatsItem)
        assert_type(item.minute, admin.StatsWindow)
        status = assert_type(await client.replication_status(), admin.ReplicationStatus)
        assert_type(await client.promote("b"), int)
        assert_type(await client.switch("b", "host:port"), admin.RoleSwitch)
        assert_type(await client.follow("b", "host:port"), admin.NewMaster)
        assert_type(status.replicas[0], admin.ReplicaInfo)
        assert_type(await client.users(), list[admin.User])
        assert_type(await client.acl("user"), list[admin.AclEntry])


def in_plain_threads() -> None:
    with blocking.Client() as client, blocking.Producer(client=client) as producer:
        assert_type(producer.send(blocking.Message("T", b"x")), blocking.SendResult)
        assert_type(producer.send_soon(blocking.Message("T", b"x")), blocking.PendingSend)
    with (
        blocking.TransactionProducer(checker=check) as transactions,
        transactions.transaction(blocking.Message("T", b"x")) as transaction,
    ):
        transaction.state = blocking.TransactionState.ROLLBACK
    pushed = blocking.PushConsumer("g")

    @pushed.subscribe("T")
    def handle(messages: Sequence[blocking.ReceivedMessage]) -> None:
        assert_type(messages[0].queue, blocking.MessageQueue)

    handle([])
    with blocking.PullConsumer("g") as pulled:
        pulled.assign(pulled.queues("T"))
        for message in pulled:
            assert_type(message, blocking.ReceivedMessage)
    with blocking.PopConsumer("g") as popped:
        assert_type(popped.receive("T"), list[blocking.ReceivedMessage])
    with blocking.AdminClient() as client_of_admin:
        assert_type(client_of_admin.consumer_lag("g").total, int)
    try:
        assert_type(aerobee.__version__, str)
    except errors.SendFailedError as error:
        assert_type(error.attempts[0], errors.Attempt)
    except errors.BatchSendError as error:
        assert_type(error.results[0], aerobee.SendResult | errors.AerobeeError)
    except errors.AerobeeError as error:
        assert_type(error.retryable, bool)


def under_test(broker: testing.TestBroker) -> None:
    with testing.broker(settings={"flushDiskType": "SYNC_FLUSH"}, virtual_time=True) as running:
        assert_type(running, testing.TestBroker)
        running.advance(3600)
        assert_type(running.namesrv + broker.address, str)
