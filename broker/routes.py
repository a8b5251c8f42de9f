"""THE TABLE: header · handler · pool. The whole broker on one screen; any other code answers 3."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aerobee.remoting.server.routes import Route
from aerobee.remoting.wire.headers import (
    admin,
    cleanup,
    client,
    group,
    namesrv,
    offset,
    pop,
    pull,
    query,
    send,
    topic,
    transaction,
)

if TYPE_CHECKING:
    from aerobee.broker.admin.admin import AdminProcessor
    from aerobee.broker.admin.cleanup import CleanupProcessor
    from aerobee.broker.assignment.assignment_processor import AssignmentProcessor
    from aerobee.broker.consumers.client_processor import ClientProcessor
    from aerobee.broker.consumers.group_processor import GroupProcessor
    from aerobee.broker.consumers.offset_processor import OffsetProcessor
    from aerobee.broker.consumers.reset import ResetProcessor
    from aerobee.broker.dedupe.deduping_send import DedupingSend
    from aerobee.broker.namesrv.route_processor import RouteProcessor
    from aerobee.broker.pop.ack import Acknowledge
    from aerobee.broker.pop.notification import NotificationProcessor
    from aerobee.broker.pop.pop import Pop
    from aerobee.broker.pull.pull import Pull
    from aerobee.broker.query.query import QueryProcessor
    from aerobee.broker.send.reply import ReplyProcessor
    from aerobee.broker.send.send import Send
    from aerobee.broker.send.send_back import SendBack
    from aerobee.broker.timers.recall import RecallProcessor
    from aerobee.broker.topics.topic_processor import TopicProcessor
    from aerobee.broker.transactions.end_transaction import TransactionProcessor

__all__ = ["Processors", "broker_routes", "namesrv_routes"]


class Processors(NamedTuple):
    """One processor per family of codes."""

    send: Send | DedupingSend
    recall: RecallProcessor
    send_back: SendBack
    transaction: TransactionProcessor
    reply: ReplyProcessor
    pull: Pull
    pop: Pop
    ack: Acknowledge
    notification: NotificationProcessor
    assignment: AssignmentProcessor
    query: QueryProcessor
    offset: OffsetProcessor
    reset: ResetProcessor
    client: ClientProcessor
    topic: TopicProcessor
    group: GroupProcessor
    admin: AdminProcessor
    cleanup: CleanupProcessor
    route: RouteProcessor


def broker_routes(to: Processors) -> tuple[Route, ...]:
    """What the broker's ports answer; those of the name server beside it where it is embedded."""
    return (
        Route(send.SendMessage, to.send.one, "send"),
        Route(send.SendMessageV2, to.send.one, "send"),
        Route(send.SendBatchMessage, to.send.batch, "send"),
        Route(send.RecallMessage, to.recall.recall, "send"),
        Route(send.ConsumerSendMsgBack, to.send_back.take_back, "send"),
        Route(transaction.EndTransaction, to.transaction.end, "transaction"),
        Route(send.SendReplyMessage, to.reply.reply, "reply"),
        Route(send.SendReplyMessageV2, to.reply.reply, "reply"),
        Route(pull.PullMessage, to.pull.pull, "pull"),
        Route(pull.LitePullMessage, to.pull.pull, "lite_pull"),
        Route(pop.PopMessage, to.pop.pop, "pull"),
        Route(pop.PeekMessage, to.pop.peek, "pull"),
        Route(pop.Notification, to.notification.notify, "pull"),
        Route(pop.PollingInfo, to.notification.polling, "pull"),
        Route(pop.AckMessage, to.ack.one, "ack"),
        Route(pop.BatchAckMessage, to.ack.batch, "ack"),
        Route(pop.ChangeInvisibleTime, to.ack.change, "ack"),
        Route(pop.QueryAssignment, to.assignment.query, "load_balance"),
        Route(pop.SetMessageRequestMode, to.assignment.set_mode, "load_balance"),
        Route(query.QueryMessage, to.query.by_key, "query"),
        Route(query.ViewMessageById, to.query.by_id, "query"),
        Route(offset.QueryConsumerOffset, to.offset.query, "consumer_manager"),
        Route(offset.UpdateConsumerOffset, to.offset.update, "consumer_manager"),
        Route(offset.GetMaxOffset, to.offset.max_offset, "admin"),
        Route(offset.GetMinOffset, to.offset.min_offset, "admin"),
        Route(offset.SearchOffset, to.offset.search, "admin"),
        Route(offset.GetEarliestMessageStoreTime, to.offset.earliest_store_time, "admin"),
        Route(offset.GetAllDelayOffset, to.offset.all_delay_offsets, "admin"),
        Route(offset.ResetOffset, to.reset.reset, "admin"),
        Route(client.Heartbeat, to.client.heartbeat, "heartbeat"),
        Route(client.UnregisterClient, to.client.unregister, "client_manager"),
        Route(client.CheckClientConfig, to.client.check_config, "client_manager"),
        Route(client.GetConsumerListByGroup, to.client.consumer_list, "consumer_manager"),
        Route(client.LockBatchMq, to.client.lock, "admin"),
        Route(client.UnlockBatchMq, to.client.unlock, "admin"),
        Route(topic.CreateTopic, to.topic.update, "admin"),
        Route(topic.GetAllTopicConfig, to.topic.all_configs, "admin"),
        Route(topic.GetTopicConfig, to.topic.config, "admin"),
        Route(group.CreateGroup, to.group.update, "admin"),
        Route(group.GetAllGroupConfig, to.group.all_configs, "admin"),
        Route(group.DeleteGroup, to.group.delete, "admin"),
        Route(group.GetGroupConfig, to.group.config, "admin"),
        Route(admin.GetBrokerConfig, to.admin.settings, "admin"),
        Route(admin.GetBrokerRuntimeInfo, to.admin.runtime, "admin"),
        Route(admin.GetTopicStatsInfo, to.admin.topic_stats, "admin"),
        Route(admin.GetConsumerConnectionList, to.admin.consumer_connections, "admin"),
        Route(admin.GetProducerConnectionList, to.admin.producer_connections, "admin"),
        Route(admin.GetConsumeStats, to.admin.consume_stats, "admin"),
        Route(admin.QueryTopicConsumeByWho, to.admin.groups_of, "admin"),
        Route(admin.QueryTopicsByConsumer, to.admin.topics_with_offsets, "admin"),
        Route(admin.ViewBrokerStatsData, to.admin.stats_data, "admin"),
        Route(cleanup.DeleteExpiredCommitLog, to.cleanup.delete_expired_log, "admin"),
        Route(cleanup.CleanExpiredConsumeQueue, to.cleanup.clean_expired_queues, "admin"),
        Route(cleanup.CleanUnusedTopic, to.cleanup.clean_unused_topics, "admin"),
    )


def namesrv_routes(to: RouteProcessor) -> tuple[Route, ...]:
    """What the name server's port answers."""
    return (
        Route(namesrv.GetRouteInfo, to.route, "admin"),
        Route(namesrv.RegisterBroker, to.register, "admin"),
        Route(namesrv.UnregisterBroker, to.unregister, "admin"),
        Route(namesrv.QueryDataVersion, to.query_data_version, "admin"),
        Route(namesrv.GetBrokerClusterInfo, to.cluster_info, "admin"),
        Route(namesrv.GetAllTopicList, to.topic_list, "admin"),
        Route(namesrv.GetTopicsByCluster, to.topics_of_cluster, "admin"),
        Route(namesrv.GetSystemTopicListFromNs, to.system_topics, "admin"),
        Route(namesrv.DeleteTopicInNamesrv, to.delete_topic, "admin"),
        Route(namesrv.WipeWritePermOfBroker, to.wipe_write_perm, "admin"),
        Route(namesrv.AddWritePermOfBroker, to.add_write_perm, "admin"),
        Route(namesrv.PutKvConfig, to.put_kv, "admin"),
        Route(namesrv.GetKvConfig, to.get_kv, "admin"),
        Route(namesrv.DeleteKvConfig, to.delete_kv, "admin"),
        Route(namesrv.GetKvListByNamespace, to.kv_list, "admin"),
    )
