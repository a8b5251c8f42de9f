"""The processors of a broker, each given the parts that it decides with; a function per family."""

from __future__ import annotations

import random
from os import getpid
from typing import TYPE_CHECKING

from aerobee.broker.admin.admin import AdminProcessor
from aerobee.broker.admin.cleanup import CleanupProcessor
from aerobee.broker.assignment.assignment_processor import AssignmentProcessor
from aerobee.broker.config.report import as_properties
from aerobee.broker.consumers.client_processor import ClientProcessor
from aerobee.broker.consumers.group_processor import GroupProcessor
from aerobee.broker.consumers.offset_processor import OffsetProcessor
from aerobee.broker.consumers.reset import ResetProcessor
from aerobee.broker.core.uniq_ids import UniqIds
from aerobee.broker.dedupe.deduping_send import DedupingSend
from aerobee.broker.namesrv.advertised import Advertised, parse_rules
from aerobee.broker.namesrv.route_processor import RouteProcessor
from aerobee.broker.pop.ack import Acknowledge
from aerobee.broker.pop.notification import NotificationProcessor
from aerobee.broker.pop.pop import Pop
from aerobee.broker.pop.pop_reader import PopReader
from aerobee.broker.pull.pull import Pull
from aerobee.broker.query.query import QueryProcessor
from aerobee.broker.routes import Processors
from aerobee.broker.saved.data_version import first_version
from aerobee.broker.send.reply import ReplyProcessor
from aerobee.broker.send.send import Send
from aerobee.broker.send.send_back import SendBack
from aerobee.broker.timers.recall import RecallProcessor
from aerobee.broker.topics.topic_processor import TopicProcessor
from aerobee.broker.transactions.end_transaction import TransactionProcessor

if TYPE_CHECKING:
    from aerobee.broker.parts import Parts

__all__ = ["make_processors"]


def make_processors(parts: Parts) -> Processors:
    """All of them."""
    pop_reader = _pop_reader(parts)
    return Processors(
        send=_send(parts),
        recall=_recall(parts),
        send_back=_send_back(parts),
        transaction=_transaction(parts),
        reply=_reply(parts),
        pull=_pull(parts),
        pop=_pop(parts, pop_reader),
        ack=_ack(parts),
        notification=_notification(parts, pop_reader),
        assignment=_assignment(parts),
        query=QueryProcessor(store=parts.store),
        offset=_offset(parts),
        reset=_reset(parts),
        client=_client(parts),
        topic=TopicProcessor(topics=parts.topics, saved=parts.topic_file, clock=parts.clock),
        group=_group(parts),
        admin=_admin(parts),
        cleanup=_cleanup(parts),
        route=_route(parts),
    )


def _send(parts: Parts) -> Send | DedupingSend:
    host = parts.store_host
    send = Send(
        config=parts.config,
        store=parts.store,
        puts=parts.puts,
        destinations=parts.destinations,
        topic_file=parts.topic_file,
        stats=parts.stats,
        store_host=host,
        new_unique_key=UniqIds(host[:-4], getpid(), random.getrandbits(32), parts.clock),
        transactions=parts.transactions,
        dead_letters=parts.dead_letters,
    )
    if not parts.dedupe.topics:
        return send
    return DedupingSend(send, parts.dedupe, config=parts.config, store=parts.store)


def _recall(parts: Parts) -> RecallProcessor:
    return RecallProcessor(
        config=parts.config,
        store=parts.store,
        puts=parts.puts,
        topics=parts.topics,
        clock=parts.clock,
        store_host=parts.store_host,
    )


def _send_back(parts: Parts) -> SendBack:
    return SendBack(
        config=parts.config,
        store=parts.store,
        puts=parts.puts,
        dead_letters=parts.dead_letters,
        topics=parts.topics,
        groups=parts.groups,
        stats=parts.stats,
        clock=parts.clock,
        store_host=parts.store_host,
        random_queue=random.randrange,
    )


def _transaction(parts: Parts) -> TransactionProcessor:
    return TransactionProcessor(
        config=parts.config,
        store=parts.store,
        puts=parts.puts,
        transactions=parts.transactions,
        store_host=parts.store_host,
        stats=parts.stats,
        clock=parts.clock,
    )


def _reply(parts: Parts) -> ReplyProcessor:
    return ReplyProcessor(
        config=parts.config,
        destinations=parts.destinations,
        clients=parts.clients,
        puts=parts.puts,
        stats=parts.stats,
        clock=parts.clock,
        store_host=parts.store_host,
        address=parts.own_address(),
    )


def _pull(parts: Parts) -> Pull:
    return Pull(
        config=parts.config,
        store=parts.store,
        access=parts.access,
        groups=parts.groups,
        clients=parts.clients,
        offsets=parts.offsets,
        filters=parts.state.filters,
        compensation=parts.state.compensation,
        hold=parts.hold,
        stats=parts.stats,
        clock=parts.clock,
    )


def _pop_reader(parts: Parts) -> PopReader:
    return PopReader(
        config=parts.config,
        store=parts.store,
        topics=parts.topics,
        offsets=parts.offsets,
        orders=parts.state.orders,
        clock=parts.clock,
        chance=random.randrange,
    )


def _pop(parts: Parts, reader: PopReader) -> Pop:
    return Pop(
        config=parts.config,
        store=parts.store,
        access=parts.access,
        topics=parts.topics,
        reader=reader,
        revive_log=parts.revive_log,
        offsets=parts.offsets,
        orders=parts.state.orders,
        compensation=parts.state.compensation,
        hold=parts.pop_hold,
        stats=parts.stats,
        clock=parts.clock,
    )


def _ack(parts: Parts) -> Acknowledge:
    return Acknowledge(
        config=parts.config,
        topics=parts.topics,
        store=parts.store,
        revive_log=parts.revive_log,
        offsets=parts.offsets,
        orders=parts.state.orders,
        hold=parts.pop_hold,
        clock=parts.clock,
    )


def _notification(parts: Parts, reader: PopReader) -> NotificationProcessor:
    return NotificationProcessor(
        access=parts.access, reader=reader, hold=parts.pop_hold, clock=parts.clock
    )


def _assignment(parts: Parts) -> AssignmentProcessor:
    return AssignmentProcessor(
        config=parts.config,
        topics=parts.topics,
        groups=parts.groups,
        clients=parts.clients,
        routes=parts.routes,
        modes=parts.state.request_modes,
        saved=parts.state.mode_file,
    )


def _offset(parts: Parts) -> OffsetProcessor:
    return OffsetProcessor(
        topics=parts.topics,
        groups=parts.groups,
        offsets=parts.offsets,
        delays=parts.state.delays,
        store=parts.store,
        clock=parts.clock,
    )


def _reset(parts: Parts) -> ResetProcessor:
    return ResetProcessor(
        config=parts.config,
        topics=parts.topics,
        groups=parts.groups,
        offsets=parts.offsets,
        clients=parts.clients,
        store=parts.store,
        clock=parts.clock,
    )


def _client(parts: Parts) -> ClientProcessor:
    options = parts.config.broker
    return ClientProcessor(
        clients=parts.clients,
        groups=parts.groups,
        topics=parts.topics,
        broker_name=options.broker_name,
        locks=parts.locks,
        filters=parts.state.filters,
        compensation=parts.state.compensation,
        clock=parts.clock,
        changed=parts.member_changes.changed,
        reject_pull_consumers=lambda: options.reject_pull_consumer_enable,
        property_filter_enabled=lambda: options.enable_property_filter,
        subscription_expired_timeout_ms=lambda: options.subscription_expired_timeout_ms,
    )


def _group(parts: Parts) -> GroupProcessor:
    return GroupProcessor(
        groups=parts.groups,
        offsets=parts.offsets,
        saved=parts.state.group_file,
        stats=parts.stats,
        clock=parts.clock,
    )


def _admin(parts: Parts) -> AdminProcessor:
    return AdminProcessor(
        topics=parts.topics,
        clients=parts.clients,
        offsets=parts.offsets,
        compensation=parts.state.compensation,
        store=parts.store,
        samples=parts.sampling.samples,
        broker_name=parts.config.broker.broker_name,
        broker_address=parts.own_address,
        runtime_info=lambda: parts.runtime_info.figures(parts.reactor.pools),
        settings=as_properties(parts.config),
        settings_version=first_version(parts.clock.now_ms()),
    )


def _cleanup(parts: Parts) -> CleanupProcessor:
    return CleanupProcessor(
        store=parts.store, topics=parts.topics, offsets=parts.offsets, clock=parts.clock
    )


def _route(parts: Parts) -> RouteProcessor:
    options, port = parts.config.broker, parts.config.remoting.listen_port
    explicit = options.broker_ip1 if "brokerIP1" in parts.config.sources else None
    advertised = Advertised(
        listen_port=port,
        host=options.advertised_host or explicit,
        rules=parse_rules(options.advertised, port),
    )
    return RouteProcessor(
        routes=parts.routes,
        kv=parts.kv,
        saved=parts.state.kv_file,
        advertised=advertised,
        settings=parts.config.namesrv,
        clock=parts.clock,
    )
