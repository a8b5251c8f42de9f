"""The table of every metric: name, kind, labels, help, and how it is read.

RocketMQ's names, labels and label values are those of its 5.x exporter, so dashboards made for it
work. To add a metric is to add a line. Source: semantics §20.1.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from aerobee.broker.metrics.figures import Sources
from aerobee.broker.metrics.metric import Metric, one, single
from aerobee.broker.metrics.readings import (
    STORAGE,
    STORAGE_LABELS,
    consumers,
    dead_letters,
    group_creations,
    half_messages,
    lag,
    limits,
    limits_used,
    of_group,
    of_store,
    of_timers,
    per_group,
    per_pool,
    per_revive_queue,
    per_slave,
    per_timer,
    per_topic,
    per_transaction,
    popped,
    producers,
    received_too_fast,
    repeated,
    reserve_time,
    segments_deleted,
    send_stages,
    set_aside,
    sizes,
    slave_states,
    timers_due,
    timing,
    too_fast,
    topic_creations,
    unread_deleted,
    unreadable,
    used_bytes,
)
from aerobee.broker.metrics.server_metrics import SERVER_METRICS

_IN: Final = ("topic", "message_type", "is_system")
_OUT: Final = ("topic", "consumer_group", "is_system")
_LAG: Final = ("topic", "consumer_group", "is_retry", "is_system")

_COUNTED_IN: Final = partial(Metric[Sources], kind="counter", labels=_IN)
_COUNTED_OUT: Final = partial(Metric[Sources], kind="counter", labels=_OUT)
_LAGGING: Final = partial(Metric[Sources], kind="gauge", labels=_LAG)
_OF_POOL: Final = partial(Metric[Sources], kind="gauge", labels=("processor",))

METRICS: Final[tuple[Metric[Sources], ...]] = (
    _COUNTED_IN(
        name="rocketmq_messages_in_total",
        help="Messages put by clients and acknowledged.",
        read=per_topic("messages_in"),
    ),
    _COUNTED_IN(
        name="rocketmq_throughput_in_total",
        help="Bytes of the records that clients put.",
        read=per_topic("bytes_in"),
    ),
    Metric(
        "rocketmq_message_size",
        "histogram",
        _IN,
        "Bytes of the records that clients put; those of a batch are taken for equally large.",
        sizes,
    ),
    _COUNTED_OUT(
        name="rocketmq_messages_out_total",
        help="Messages delivered.",
        read=per_group("messages_out"),
    ),
    _COUNTED_OUT(
        name="rocketmq_throughput_out_total",
        help="Bytes of the records delivered.",
        read=per_group("bytes_out"),
    ),
    Metric(
        "rocketmq_commit_messages_total",
        "counter",
        ("topic",),
        "Transactions committed.",
        per_transaction("commits"),
    ),
    Metric(
        "rocketmq_rollback_messages_total",
        "counter",
        ("topic",),
        "Transactions rolled back.",
        per_transaction("rollbacks"),
    ),
    Metric(
        "rocketmq_finish_message_latency_milliseconds",
        "histogram",
        ("topic",),
        "Age of transactions when they were committed; in seconds, as RocketMQ has it.",
        per_transaction("latency"),
    ),
    Metric(
        "rocketmq_half_messages",
        "gauge",
        ("topic",),
        "Transactions that are open, of topics that have any.",
        half_messages,
    ),
    of_store(
        "rocketmq_timer_enqueue_lag",
        "Timers that were stored and have no slot of the wheel yet.",
        of_timers(lambda t: t.unread),
    ),
    of_store(
        "rocketmq_timer_enqueue_latency_milliseconds",
        "How far behind the reading of new timers is.",
        of_timers(lambda t: t.unread_ms),
    ),
    of_store(
        "rocketmq_timer_dequeue_lag",
        "Timers that are due and not delivered yet.",
        of_timers(lambda t: t.late),
    ),
    of_store(
        "rocketmq_timer_dequeue_latency_milliseconds",
        "How far behind the clock the delivery of timers is; in seconds, as RocketMQ has it.",
        of_timers(lambda t: t.late_ms / 1000),
    ),
    Metric(
        "rocketmq_timing_messages", "gauge", (*STORAGE_LABELS, "topic"), "Timers that wait.", timing
    ),
    Metric(
        "rocketmq_timer_enqueue_total",
        "counter",
        (*STORAGE_LABELS, "topic"),
        "Timers put into the wheel.",
        per_timer("enqueued"),
    ),
    Metric(
        "rocketmq_timer_dequeue_total",
        "counter",
        (*STORAGE_LABELS, "topic"),
        "Timers delivered.",
        per_timer("dequeued"),
    ),
    Metric(
        "rocketmq_timer_message_snapshot",
        "gauge",
        (*STORAGE_LABELS, "timer_bound_s"),
        "Timers that are due within so many seconds.",
        timers_due,
    ),
    Metric(
        "rocketmq_delay_message_latency_seconds",
        "histogram",
        (*STORAGE_LABELS, "topic"),
        "How long timers were to wait.",
        per_timer("latency"),
    ),
    Metric(
        "rocketmq_producer_connections",
        "gauge",
        ("language", "version", "protocol_type"),
        "Connections of producers.",
        producers,
    ),
    Metric(
        "rocketmq_consumer_connections",
        "gauge",
        ("consumer_group", "language", "version", "consume_mode", "protocol_type", "is_system"),
        "Connections of consumers.",
        consumers,
    ),
    _LAGGING(
        name="rocketmq_consumer_lag_messages",
        help="Messages that the group has not consumed: those in flight and those that are ready.",
        read=lag("behind"),
    ),
    _LAGGING(
        name="rocketmq_consumer_lag_latency_milliseconds",
        help="Age of the oldest message that the group has not consumed; 0 without any.",
        read=lag("behind_ms"),
    ),
    _LAGGING(
        name="rocketmq_consumer_inflight_messages",
        help="Messages handed out and not yet committed or acknowledged.",
        read=lag("in_flight"),
    ),
    _LAGGING(
        name="rocketmq_consumer_ready_messages",
        help="Messages that no member of the group has been given yet.",
        read=lag("ready"),
    ),
    _LAGGING(
        name="rocketmq_consumer_queueing_latency_milliseconds",
        help="Age of the oldest message that is ready; 0 without any.",
        read=lag("queueing_ms"),
    ),
    _OF_POOL(
        name="rocketmq_processor_watermark",
        help="Requests read and not yet answered, per processor pool.",
        read=per_pool(lambda s, pool: pool.depth),
    ),
    _OF_POOL(
        name="aerobee_pool_capacity",
        help="Requests that a processor pool takes; further ones are refused with SYSTEM_BUSY.",
        read=per_pool(lambda s, pool: pool.capacity),
    ),
    _OF_POOL(
        name="aerobee_pool_head_wait_seconds",
        help="How long the oldest queued request of a processor pool has waited.",
        read=per_pool(lambda s, pool: pool.head_wait_s(s.now())),
    ),
    Metric(
        "aerobee_pool_refused_total",
        "counter",
        ("processor",),
        "Requests refused with SYSTEM_BUSY: their pool was full, or they had waited too long.",
        per_pool(lambda s, pool: pool.refused + pool.timed_out),
    ),
    single(
        "rocketmq_broker_permission",
        "gauge",
        "Permission bits of the broker: 4 read, 2 write.",
        lambda s: s.broker_permission(),
    ),
    Metric(
        "aerobee_send_stage_seconds",
        "histogram",
        ("stage",),
        "One send of each round of the loop, followed through its stages: queued (until its turn),"
        " appended (until it is in the log), flushed (until it is on disk, where its answer waits"
        " for that), answered (until its answer was sent).",
        send_stages,
    ),
    Metric(
        "rocketmq_topic_create_execution_time_milliseconds",
        "histogram",
        ("invocation_status", "is_system"),
        "Time of a request that creates or changes a topic.",
        topic_creations,
    ),
    Metric(
        "rocketmq_consumer_group_create_execution_time_milliseconds",
        "histogram",
        ("invocation_status",),
        "Time of a request that creates or changes a consumer group.",
        group_creations,
    ),
    Metric("rocketmq_topic_number", "gauge", (), "Topics known.", one(lambda s: s.topic_number())),
    single(
        "rocketmq_consumer_group_number",
        "gauge",
        "Consumer groups known.",
        lambda s: s.consumer_group_number(),
    ),
    of_store(
        "rocketmq_storage_size_bytes",
        "Used space of the file system that the store lies on.",
        one(used_bytes, *STORAGE),
    ),
    single(
        "aerobee_storage_capacity_bytes",
        "gauge",
        "Size of the file system that the store lies on.",
        lambda s: s.space().total_bytes,
    ),
    single(
        "aerobee_storage_available_bytes",
        "gauge",
        "What the broker may still take of it; the system keeps a reserve besides.",
        lambda s: s.space().available_bytes,
    ),
    single(
        "aerobee_store_refuses_puts",
        "gauge",
        "1 while the store takes no messages (disk full, a failed sync, no segment), else 0.",
        lambda s: float(s.refuses_puts()),
    ),
    of_store(
        "rocketmq_storage_flush_behind_bytes",
        "Bytes of the log written and not yet known to be on disk.",
        one(lambda s: s.flush_behind_bytes(), *STORAGE),
    ),
    of_store(
        "rocketmq_storage_dispatch_behind_bytes",
        "Bytes of the log written and not yet in their consume queues.",
        one(lambda s: s.dispatch_behind_bytes(), *STORAGE),
    ),
    single(
        "aerobee_replication_slaves",
        "gauge",
        "Slaves that are connected, by their addresses.",
        lambda s: len(s.slaves()),
    ),
    single(
        "aerobee_replication_slaves_in_sync",
        "gauge",
        "Slaves that follow and are not further behind than haMaxGapNotInSync.",
        lambda s: sum(slave.in_sync for slave in s.slaves().values()),
    ),
    Metric(
        "aerobee_replication_slave_lag_bytes",
        "gauge",
        ("slave",),
        "Bytes of the log that a slave has not acknowledged; all of it while it does not follow.",
        per_slave(lambda slave: slave.lag_bytes),
    ),
    Metric(
        "aerobee_replication_slave_lag_seconds",
        "gauge",
        ("slave",),
        "How long ago a slave had everything that was in the log then; 0 while it has.",
        per_slave(lambda slave: slave.lag_s),
    ),
    single(
        "aerobee_replication_sent_bytes_total",
        "counter",
        "Bytes of the log sent to slaves; what two of them get counts twice.",
        lambda s: s.store.replicated_out_bytes,
    ),
    single(
        "aerobee_replication_received_bytes_total",
        "counter",
        "Bytes of the log that came from the master of this slave.",
        lambda s: s.store.replicated_in_bytes,
    ),
    Metric(
        "aerobee_replication_state",
        "gauge",
        ("state",),
        "Of a slave, 1 for how it stands to its master: searching, unreachable, following, stuck or"
        " diverged.",
        slave_states,
    ),
    Metric(
        "aerobee_failover_epoch",
        "gauge",
        (),
        "Of a member of a group: how often the master has changed.",
        of_group(lambda record: record.epoch),
    ),
    Metric(
        "aerobee_failover_leads",
        "gauge",
        (),
        "Of a member: 1 while it is the master, else 0.",
        of_group(lambda record: record.held and record.master == record.member),
    ),
    Metric(
        "aerobee_failover_master_known",
        "gauge",
        (),
        "Of a member: 1 while etcd answers and some member has the lease, else 0.",
        of_group(lambda record: record.held and not record.problem),
    ),
    Metric(
        "aerobee_failover_sync_set_members",
        "gauge",
        (),
        "Of a member: how many members have every acknowledged message.",
        of_group(lambda record: len(record.sync_set)),
    ),
    Metric(
        "rocketmq_storage_message_reserve_time_milliseconds",
        "gauge",
        STORAGE_LABELS,
        "Age of the first message of the log.",
        reserve_time,
    ),
    Metric(
        "rocketmq_pop_revive_in_message_total",
        "counter",
        ("topic", "consumer_group", "revive_message_type", "put_status"),
        "Check points (CK) and acknowledgements (ACK) written for the revive log.",
        popped("revive_in"),
    ),
    Metric(
        "rocketmq_pop_revive_out_message_total",
        "counter",
        ("topic", "consumer_group", "queue_id", "revive_message_type"),
        "Check points and acknowledgements read back from it.",
        popped("revive_out"),
    ),
    Metric(
        "rocketmq_pop_revive_retry_messages_total",
        "counter",
        ("topic", "consumer_group", "put_status"),
        "Popped messages put again because nobody acknowledged them in time.",
        popped("retried"),
    ),
    Metric(
        "rocketmq_pop_revive_lag_milliseconds",
        "gauge",
        ("queue_id",),
        "Records of the revive log that are not done with; a number, as RocketMQ has it.",
        per_revive_queue("behind"),
    ),
    Metric(
        "rocketmq_pop_revive_latency_milliseconds",
        "gauge",
        ("queue_id",),
        "How long ago the oldest message that is out should have come again.",
        per_revive_queue("late_ms"),
    ),
    single(
        "rocketmq_pop_checkpoint_buffer_size",
        "gauge",
        "Always 0: check points are not buffered here, they go into the log.",
        lambda s: 0,
    ),
    single(
        "rocketmq_pop_offset_buffer_size", "gauge", "Always 0, for the same reason.", lambda s: 0
    ),
    single(
        "aerobee_index_behind_bytes",
        "gauge",
        "Bytes of the log that consumers see and queries by key do not yet.",
        lambda s: s.store.index_behind_bytes,
    ),
    single(
        "aerobee_index_keys_total",
        "counter",
        "Keys of messages put into the index.",
        lambda s: s.store.keys_indexed,
    ),
    single(
        "aerobee_damaged_records_total",
        "counter",
        "Times that a record was left out of an answer because it is not what was written.",
        lambda s: s.store.records_damaged,
    ),
    single(
        "aerobee_cold_reads_total",
        "counter",
        "Pieces of the log and of queues that a thread had to read from disk.",
        lambda s: s.store.cold_reads,
    ),
    Metric(
        "aerobee_set_aside_messages_total",
        "counter",
        ("service",),
        "Messages that a service could not handle because of what they say, and left where they"
        " are.",
        set_aside,
    ),
    Metric(
        "aerobee_unreadable_messages_total",
        "counter",
        ("service",),
        "Messages that the disk could not read for a service, each counted once in a run.",
        unreadable,
    ),
    *SERVER_METRICS,
    Metric(
        "aerobee_limit",
        "gauge",
        ("limit",),
        "The limits on clients, by the key of the setting (docs/limits.md); without those that"
        " are off.",
        limits,
    ),
    Metric(
        "aerobee_limit_used",
        "gauge",
        ("limit",),
        "What is used of each of them; of a limit on one client, group or topic, by the one that"
        " uses most.",
        limits_used,
    ),
    Metric(
        "aerobee_repeated_messages_total",
        "counter",
        ("topic",),
        "Messages sent again within the window of dedupe, and not stored again.",
        repeated,
    ),
    Metric(
        "aerobee_sends_too_fast_total",
        "counter",
        ("topic",),
        "Sends refused because their topic takes no more messages or bytes in this second.",
        too_fast,
    ),
    Metric(
        "aerobee_receives_too_fast_total",
        "counter",
        ("consumer_group",),
        "Pulls and pops refused because their group gets no more messages or bytes now.",
        received_too_fast,
    ),
    Metric(
        "rocketmq_send_to_dlq_messages_total",
        "counter",
        ("consumer_group", "topic", "is_system"),
        "Messages that a group gave up, by the topic it had them from.",
        dead_letters,
    ),
    _COUNTED_OUT(
        name="aerobee_unread_deleted_messages_total",
        help="Messages deleted before the group had consumed them.",
        read=unread_deleted,
    ),
    Metric(
        "aerobee_log_segments_deleted_total",
        "counter",
        ("reason",),
        "Log segments deleted because they were expired, or for space before their time.",
        segments_deleted,
    ),
    single(
        "aerobee_log_segments_waiting_for_archive",
        "gauge",
        "Full log segments that waitForArchive keeps because they have no mark.",
        lambda s: s.store.segments_waiting,
    ),
    single(
        "aerobee_log_segments_unarchived_total",
        "counter",
        "Log segments deleted without their archive because the disk was too full to wait.",
        lambda s: s.store.segments_unarchived,
    ),
    single(
        "aerobee_fdatasync_seconds",
        "histogram",
        "Time of one sync of a store file.",
        lambda s: s.store.sync_seconds,
    ),
    single(
        "aerobee_inline_syncs_total",
        "counter",
        "Syncs of the log that were made in the event loop: syncFlushInline.",
        lambda s: s.store.inline_syncs,
    ),
)
"""All metrics, in the order of the exposition; process_* figures follow."""
