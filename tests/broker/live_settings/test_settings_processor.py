"""Every setting has an effect or says why not, and every live one counts as soon as it is changed.

That a live setting is never copied when something is built is read off the source, for all of them;
what it does is seen at a broker, for most of those that a client can see.
"""

from __future__ import annotations

import ast
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import trio

from aerobee.broker.config.files.entries import Entry, Form, Scalar
from aerobee.broker.config.layers import Setting
from aerobee.broker.config.live import changed
from aerobee.broker.config.model import BrokerConfig
from aerobee.broker.config.schema import SCHEMA
from aerobee.broker.config.values import FreeSpace, read
from aerobee.broker.errors import Refusal
from aerobee.remoting.wire.headers import admin, namesrv, offset, pull, topic
from aerobee.store.format.properties import encode
from tests.broker.desk import Desk, body_of, open_desk, said
from tests.kit.source_tree import packages

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aerobee.broker.config.schema import Key

DECLARED = ("broker.config.", "store.config", "remoting.config")
"""Where settings are declared, read from files and compared with each other."""
LIVE = {key.attribute: key for key in SCHEMA.values() if key.declaration.live}
FREE = {key.declaration.free for key in SCHEMA.values() if key.declaration.free}
MADE_AGAIN = {
    "broker.grpc.assembly:__init__",
    "broker.life.life:__init__",
    "broker.namesrv.registration:__init__",
    "broker.pools.pools:make_pools",
    "broker.pools.pools:_wait_ms",
    "broker.pull.feature:__init__",
    "remoting.server.reactor:__init__",
}
"""Where a live setting is read when something is built, and read again when it has changed."""


# ── read off the source ──


@cache
def uses() -> frozenset[tuple[str, str, str]]:
    """Attribute, module and function of everything that may be the reading of a setting.

    What stands in a lambda is read when that is called.
    """
    found: set[tuple[str, str, str]] = set()

    def visit(node: ast.AST, module: str, function: str) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        elif isinstance(node, ast.Lambda):
            function = "lambda"
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            found.add((node.attr, module, function))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add((node.value, module, function))
        for child in ast.iter_child_nodes(node):
            visit(child, module, function)

    for module in packages().values():
        if module.top != "aerobee" and not module.name.startswith(DECLARED):
            visit(module.tree, module.name, "")
    return frozenset(found)


def test_every_setting_has_an_effect_or_says_why_not() -> None:
    used = {attribute for attribute, _, _ in uses()}
    # These are read by way of a property that stands beside them.
    used |= {"flush_disk_type"} if "sync_flush" in used else set()
    used |= {"write_buffer_high_water_mark_bytes"} if "high_water_bytes" in used else set()
    used |= {"write_buffer_low_water_mark_bytes"} if "low_water_bytes" in used else set()
    used |= {"in_sync_replicas"} if "needed_slaves" in used else set()
    # These decide what start is refused: `derive.objections`.
    used |= {"broker_role", "insecure"}
    # This names a further source of settings: `load.rocketmq_tls`.
    used |= {"tls_config_file"}
    unused = [
        key.name
        for key in SCHEMA.values()
        if key.attribute not in used and not key.declaration.inert
    ]
    assert not unused
    assert {key.name for key in SCHEMA.values() if key.declaration.inert} == {
        "transientStorePoolEnable"
    }
    assert not [key for key in LIVE.values() if key.declaration.inert]


def test_no_live_setting_is_copied_when_something_is_built() -> None:
    copied = {
        f"{module}:{function}"
        for attribute, module, function in uses()
        if attribute in LIVE and function in ("__init__", "make_pools", "_wait_ms", "__post_init__")
    }
    assert copied <= MADE_AGAIN, copied - MADE_AGAIN


# ── changed one by one ──


def other(key: Key) -> str:
    """Another value that the setting may have."""
    if key.type is bool:
        return str(not key.default).lower()
    if key.choices:
        return str(next(one for one in key.choices if one != key.default))
    if key.type is str:
        return "05;17"
    low, high = key.declaration.ge, key.declaration.le
    assert low is not None
    assert high is not None
    assert isinstance(key.default, int)
    return str(key.default - 1 if key.default > low else key.default + 1)


async def set_to(desk: Desk, **values: object) -> None:
    """Change settings as an administrator does."""
    body = "".join(f"{name}={value}\n" for name, value in values.items())
    assert (await desk.ask(admin.UpdateBrokerConfig(), body.encode())).code == 0


@pytest.mark.trio
async def test_every_live_setting_is_changed_in_the_objects_that_all_hold(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        store, config = desk.store, desk.config
        assert store.config is store.writer.config is store.reader.config is config.store
        for key in LIVE.values():
            part = getattr(config, key.part)
            value = other(key)
            await set_to(desk, **{key.name: value})
            assert getattr(config, key.part) is part
            entry = Entry(key.name, Scalar(value, "str"), "", Form.TEXT)
            assert getattr(part, key.attribute) == read(key, entry), key.name
        assert store.config is store.writer.config is store.reader.config is config.store
        text = body_of(await desk.ask(admin.GetBrokerConfig())).decode().splitlines()
        assert {f"{key.name}={other(key)}" for key in LIVE.values()} <= set(text)


def test_every_field_that_a_live_limit_has_is_set() -> None:
    """A share in use, or the bytes to keep free: one takes the other's place."""
    config = BrokerConfig()
    for key in LIVE.values():
        if key.declaration.free:
            name = key.name.lower()
            free = changed(config, {name: Setting(FreeSpace(1 << 30), "x")})
            assert getattr(free.store, key.declaration.free) == 1 << 30
            back = changed(free, {name: Setting(50, "x")})
            assert getattr(back.store, key.declaration.free) == 0
            assert getattr(back.store, key.attribute) == 50


# ── what they do ──

EFFECTS: dict[str, Any] = {}


def effect(*names: str) -> Callable[[Any], Any]:
    """What is seen of these settings."""

    def note(check: Any) -> Any:
        EFFECTS.update(dict.fromkeys(names, check))
        return check

    return note


async def code_of(desk: Desk, header: Any, body: bytes = b"") -> int:
    """The code of the answer."""
    try:
        return (await desk.ask(header, body)).code
    except Refusal as refused:
        return refused.code


@effect("brokerPermission")
async def permission(desk: Desk) -> None:
    desk.topic("t", order=True)
    desk.broker.namesrv.registration.register_own()

    def shown() -> int:
        route = desk.broker.namesrv.route_table.route("t")
        assert route is not None
        return int(route.queue_datas[0].perm)

    for mask, sends, pulls in ((6, 0, 19), (4, 16, 19), (2, 0, 16), (0, 16, 16), (6, 0, 19)):
        await set_to(desk, brokerPermission=mask)
        assert shown() == mask
        assert (await desk.send()).code == sends
        assert (await desk.pull(queue_offset=99, sys_flag=4)).code in (pulls, 21)


@effect("traceOn")
async def trace(desk: Desk) -> None:
    for text in ("false", "true"):
        await set_to(desk, traceOn=text)
        assert said(await desk.send())["TRACE_ON"] == text
        answer = await desk.pull(queue_offset=desk.store.max_offset("t", 0) - 1)
        assert f"TRACE_ON\x01{text}".encode() in body_of(answer)


@effect("rejectTransactionMessage")
async def transactions(desk: Desk) -> None:
    half = send_half()
    for text, code in (("true", 16), ("false", 0)):
        await set_to(desk, rejectTransactionMessage=text)
        assert (await desk.send(**half)).code == code


def send_half() -> dict[str, Any]:
    return {"sys_flag": 4, "properties": encode({"TRAN_MSG": "true", "PGROUP": "p"})}


@effect("maxMessageSize")
async def size(desk: Desk) -> None:
    for limit in (2048, 4096, 1024):
        await set_to(desk, maxMessageSize=limit)
        assert (await desk.send(body=b"x" * limit)).code == 0
        assert (await desk.send(body=b"x" * (limit + 1))).code == 13


@effect("autoCreateSubscriptionGroup")
async def groups(desk: Desk) -> None:
    await desk.send()
    for text, code in (("false", 26), ("true", 0)):
        await set_to(desk, autoCreateSubscriptionGroup=text)
        assert (await desk.pull(consumer_group=f"new-{text}")).code == code


@effect("enablePropertyFilter")
async def sql(desk: Desk) -> None:
    await desk.send()
    by_sql: dict[str, Any] = {"expression_type": "SQL92", "subscription": "a > 1"}
    await set_to(desk, enablePropertyFilter="false")
    refused = (await desk.pull(**by_sql)).code
    assert refused == 1
    await set_to(desk, enablePropertyFilter="true")
    assert (await desk.pull(**by_sql)).code != refused


@effect("litePullMessageEnable")
async def lite(desk: Desk) -> None:
    await desk.send()
    header: dict[str, Any] = {"cls": pull.LitePullMessage}
    for text, code in (("false", 16), ("true", 0)):
        await set_to(desk, litePullMessageEnable=text)
        assert (await desk.pull(**header)).code == code


@effect("longPollingEnable", "shortPollingTimeMills")
async def held(desk: Desk) -> None:
    await desk.send()
    for text, ms, waits_s in (("false", 300, 0.3), ("false", 700, 0.7), ("true", 300, 5.0)):
        await set_to(desk, longPollingEnable=text, shortPollingTimeMills=ms)
        began = trio.current_time()
        answer = await desk.pull(queue_offset=1, sys_flag=6, suspend_timeout_millis=5_000)
        assert answer.code == 19
        assert trio.current_time() - began == pytest.approx(waits_s, abs=0.25)


@effect("validateSystemTopicWhenUpdateTopic")
async def system_topics(desk: Desk) -> None:
    header = topic.CreateTopic(
        topic="SELF_TEST_TOPIC",
        default_topic="TBW102",
        read_queue_nums=1,
        write_queue_nums=1,
        perm=6,
        topic_filter_type="SINGLE_TAG",
        order=False,
    )
    for text, code in (("true", 29), ("false", 0)):
        await set_to(desk, validateSystemTopicWhenUpdateTopic=text)
        assert await code_of(desk, header) == code


@effect("useServerSideResetOffset")
async def resets(desk: Desk) -> None:
    await desk.send()
    header = offset.ResetOffset(topic="t", group="g", timestamp=0, is_force=True)
    await set_to(desk, autoCreateSubscriptionGroup="true", useServerSideResetOffset="false")
    await desk.pull()
    off = await code_of(desk, header)
    await set_to(desk, useServerSideResetOffset="true")
    assert (off != 0, await code_of(desk, header)) == (True, 0)


@effect("messageIndexEnable")
async def index(desk: Desk) -> None:
    service = desk.store.index.service
    for text in ("false", "true"):
        await set_to(desk, messageIndexEnable=text)
        await desk.send(properties=encode({"KEYS": f"k-{text}"}))
        assert bool(service.pending) is (text == "true")


@effect("accessMessageInMemoryMaxRatio")
async def memory(desk: Desk) -> None:
    whole = desk.store.reader.memory_bytes * 100 // 40
    for percent in (0, 100):
        await set_to(desk, accessMessageInMemoryMaxRatio=percent)
        assert desk.store.reader.memory_bytes == pytest.approx(whole * percent // 100, abs=100)


@effect(
    "maxTransferCountOnMessageInMemory",
    "maxTransferBytesOnMessageInMemory",
    "maxTransferCountOnMessageInDisk",
    "maxTransferBytesOnMessageInDisk",
)
async def transfers(desk: Desk) -> None:
    for _ in range(10):
        await desk.send()
    one = len(body_of(await desk.pull(max_msg_nums=1)))

    async def got() -> int:
        return len(body_of(await desk.pull())) // one

    for where, ratio in (("Memory", 40), ("Disk", 0)):
        count, size = (f"maxTransfer{what}OnMessageIn{where}" for what in ("Count", "Bytes"))
        await set_to(desk, accessMessageInMemoryMaxRatio=ratio, **{count: 7, size: 65_536})
        near_the_end = 0 if where == "Memory" else 1
        assert await got() >= 7 - near_the_end
        await set_to(desk, **{count: 3})
        assert await got() == 3
        await set_to(desk, **{count: 100, size: 2 * one + 1})
        assert await got() == 2


@effect(
    "brokerFastFailureEnable",
    "waitTimeMillsInSendQueue",
    "waitTimeMillsInPullQueue",
    "waitTimeMillsInLitePullQueue",
    "waitTimeMillsInHeartbeatQueue",
    "waitTimeMillsInTransactionQueue",
    "waitTimeMillsInAckQueue",
    "waitTimeMillsInAdminBrokerQueue",
)
async def waits(desk: Desk) -> None:
    pools = desk.reactor.pools
    names = {
        "Send": "send",
        "Pull": "pull",
        "LitePull": "lite_pull",
        "Heartbeat": "heartbeat",
        "Transaction": "transaction",
        "Ack": "ack",
        "AdminBroker": "admin",
    }
    for number, (word, pool) in enumerate(names.items()):
        await set_to(desk, **{f"waitTimeMillsIn{word}Queue": 2_000 + number})
        assert pools[pool].max_wait_s == 2 + number / 1000
    await set_to(desk, brokerFastFailureEnable="false")
    assert {pool.max_wait_s for pool in pools.values()} == {float("inf")}
    await set_to(desk, brokerFastFailureEnable="true")
    assert pools["send"].max_wait_s == 2


@effect("fileReservedTime")
async def reserved(desk: Desk) -> None:
    assert desk.timers is not None
    await set_to(desk, fileReservedTime=3)
    assert desk.timers.timers.window_ms == 2 * 3_600_000
    assert desk.store.space.cleanup.config.file_reserved_time_h == 3


@effect("maxMsgsNumBatch", "defaultQueryMaxNum", "maxIndexEntriesOfQuery")
async def queries(desk: Desk) -> None:
    from aerobee.remoting.wire.headers import query

    for _ in range(6):
        await desk.send(properties=encode({"KEYS": "k"}))
    await desk.store.index.service.fresh()
    asked: dict[str, Any] = {
        "topic": "t",
        "key": "k",
        "begin_timestamp": 0,
        "end_timestamp": 1 << 60,
    }

    async def found(**more: int) -> int:
        header = query.QueryMessage(**{"max_num": 0, **asked, **more})
        return body_of(await desk.ask(header)).count(b"hello")

    for _ in range(1_000):
        # The index is made beside the sends.
        if await found(max_num=64) == 6:
            break
        await trio.sleep(0.01)
    await set_to(desk, maxMsgsNumBatch=4)
    assert await found(max_num=64) == 4
    await set_to(desk, maxMsgsNumBatch=64)
    assert await found(max_num=64) == 6
    await set_to(desk, maxIndexEntriesOfQuery=5_000)
    assert desk.store.index.service.config.max_index_entries_of_query == 5_000


@effect("orderMessageEnable", "enableAllTopicList", "enableTopicList")
async def name_server(desk: Desk) -> None:
    header = namesrv.GetTopicsByCluster(cluster="c")
    every = namesrv.GetAllTopicList()
    for name, one in (("enableTopicList", header), ("enableAllTopicList", every)):
        for text, code in (("false", 1), ("true", 0)):
            await set_to(desk, **{name: text})
            assert await code_of(desk, one) == code
    desk.topic("t")
    desk.broker.namesrv.registration.register_own()
    desk.broker.namesrv.role.kv.put("ORDER_TOPIC_CONFIG", "t", "desk:4")
    for text in ("true", "false"):
        await set_to(desk, orderMessageEnable=text)
        route = body_of(await desk.ask(namesrv.GetRouteInfo(topic="t")))
        assert (b"desk:4" in route) is (text == "true")


@pytest.mark.trio
@pytest.mark.parametrize("check", dict.fromkeys(EFFECTS.values()), ids=lambda check: check.__name__)
async def test_a_change_has_its_effect_at_once(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, check: Any
) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic("t")
        await check(desk)


def test_most_of_the_live_settings_are_seen_at_work() -> None:
    assert EFFECTS.keys() <= {key.name for key in LIVE.values()}
    assert len(EFFECTS) >= 30


@pytest.mark.trio
async def test_a_permission_that_changes_for_thousands_of_topics_stops_nobody(
    tmp_path: Path,
) -> None:
    """And the version of the topics moves: name servers that compare it ask for all of them."""
    async with open_desk(tmp_path) as desk:
        for number in range(3_000):
            desk.topic(f"t{number}")
        desk.broker.namesrv.registration.register_own()
        routes, before = desk.broker.namesrv.route_table, desk.topics.version
        steps = list(desk.broker.namesrv.settings_changed())
        assert (steps, desk.topics.version) == ([], before), "nothing has changed"
        object.__setattr__(desk.config.broker, "broker_permission", 4)
        steps = list(desk.broker.namesrv.settings_changed())
        assert len(steps) > 3_000 // 200
        assert desk.topics.version.counter == before.counter + 1
        for name in ("t0", "t2999"):
            route = routes.route(name)
            assert route is not None
            assert {queue.perm for queue in route.queue_datas} == {4}


# ── what is under way ──


@pytest.mark.trio
async def test_a_check_that_was_an_hour_away_comes_in_a_second(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"transaction_check_interval_ms": 3_600_000}
    async with open_desk(tmp_path, **changes) as desk:
        checked = trio.Event()

        async def check() -> None:
            checked.set()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(desk.half_messages, "check", check)
            async with trio.open_nursery() as nursery:
                await nursery.start(desk.half_messages.run)
                await set_to(desk, traceOn="false")
                await trio.sleep(0.05)
                assert not checked.is_set(), "no other change brings it"
                await set_to(desk, transactionCheckInterval=1_000)
                with trio.fail_after(10):
                    await checked.wait()
                nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_flush_that_was_a_minute_away_comes_now(tmp_path: Path) -> None:
    changes: dict[str, Any] = {
        "flush_interval_commit_log_ms": 60_000,
        "flush_commit_log_least_pages": 0,
        "flush_commit_log_thorough_interval_ms": 1,
    }
    async with open_desk(tmp_path, **changes) as desk:
        await desk.send()
        assert desk.store.flush_behind_bytes > 0
        await set_to(desk, flushIntervalCommitLog=100)
        with trio.fail_after(10):
            while desk.store.flush_behind_bytes:  # noqa: ASYNC110  (nothing tells of it)
                await trio.sleep(0.02)
