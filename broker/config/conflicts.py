"""Settings that are valid one by one and contradict each other.

A pair that cannot work stops the start; a pair that works, but surely not as intended, is accepted
with a warning. RocketMQ accepts all of these silently. Each message names the other key and the
remedy. The module is long because all rules are here. Source: configuration §3.3, §3.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aerobee.remoting.tls_config import TlsMode
from aerobee.store.format.unit import DelayLevels

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from aerobee.broker.config.model import BrokerConfig
    from aerobee.remoting.tls_config import TlsConfig

HOUR_MS = 3_600_000
FILE_BYTES_MAX = 2_147_483_647
"""The limit of a file: other brokers hold positions inside a file as signed 32-bit integers."""
REQUEST_BYTES = 64 << 10
"""The bytes of a frame beside the body of a message: header and properties."""
ENTRIES_PER_SLOT_MAX = 100
"""Index entries for each slot: a query by key reads a chain of this length."""
HEARTBEAT_S = 30
"""The heartbeat period of RocketMQ clients."""


OWN_DIRECTORIES = ("config", "consumequeue", "index", "timerlog", "archive")
"""Subdirectories of the data directory; the commit log has its own setting."""


class Order(NamedTuple):
    """Two settings, where the first may not exceed the second; `why` ends the warning."""

    less: str
    less_value: Callable[[BrokerConfig], int]
    more: str
    more_value: Callable[[BrokerConfig], int]
    why: str
    only_given: bool = False
    """Whether the rule holds only where the first was set explicitly."""


ORDERS = (
    Order(
        "flushIntervalCommitLog",
        lambda c: c.store.flush_interval_commit_log_ms,
        "flushCommitLogThoroughInterval",
        lambda c: c.store.flush_commit_log_thorough_interval_ms,
        "the log is checked only so often; lower the first",
    ),
    Order(
        "flushIntervalConsumeQueue",
        lambda c: c.store.flush_interval_consume_queue_ms,
        "flushConsumeQueueThoroughInterval",
        lambda c: c.store.flush_consume_queue_thorough_interval_ms,
        "consume queues are checked only so often; lower the first",
    ),
    Order(
        "maxMessageSize",
        lambda c: c.store.max_message_size_bytes,
        "mappedFileSizeCommitLog",
        lambda c: c.store.mapped_file_size_commit_log_bytes,
        "a message that does not fit into a file of the log is refused; lower the first",
    ),
    Order(
        "defaultQueryMaxNum",
        lambda c: c.store.default_query_max_num,
        "maxMsgsNumBatch",
        lambda c: c.store.max_msgs_num_batch,
        "no query gets more than that; raise the second",
    ),
    Order(
        "maxHashSlotNum",
        lambda c: c.store.max_hash_slot_num,
        "maxIndexNum",
        lambda c: c.store.max_index_num,
        "an index file would have slots that no entry can use; RocketMQ has four entries a slot",
    ),
    Order(
        "maxHeaderBytes",
        lambda c: c.remoting.max_header_bytes,
        "maxFrameBytes",
        lambda c: c.remoting.max_frame_bytes,
        "a header is part of a frame; lower the first",
    ),
    Order(
        "maxFrameBytes",
        lambda c: c.remoting.max_frame_bytes,
        "maxInboundBufferBytes",
        lambda c: c.remoting.max_inbound_buffer_bytes,
        "one frame alone may stop the reading of all other connections; raise the second",
    ),
    Order(
        "maxTransferBytesOnMessageInMemory",
        lambda c: c.store.max_transfer_bytes_on_message_in_memory,
        "maxFrameBytes",
        lambda c: c.remoting.max_frame_bytes,
        "clients refuse an answer that is larger than the frames that they know; lower the first",
        only_given=True,
    ),
    Order(
        "maxTransferBytesOnMessageInDisk",
        lambda c: c.store.max_transfer_bytes_on_message_in_disk,
        "maxTransferBytesOnMessageInMemory",
        lambda c: c.store.max_transfer_bytes_on_message_in_memory,
        "a pull that waits for the disk gets more than one that does not; lower the first",
        only_given=True,
    ),
    Order(
        "registerBrokerTimeoutMills",
        lambda c: c.broker.register_broker_timeout_ms,
        "registerNameServerPeriod",
        lambda c: c.broker.register_name_server_period_ms,
        "a name server that does not answer delays the next registration; lower the first",
        only_given=True,
    ),
    Order(
        "writeBufferHighWaterMark",
        lambda c: c.remoting.high_water_bytes,
        "maxOutboundBufferBytes",
        lambda c: c.remoting.max_outbound_buffer_bytes,
        "one connection alone may have more unsent than all together; raise the second",
        only_given=True,
    ),
    Order(
        "maxHeldRequestsOfConnection",
        lambda c: c.broker.max_held_requests_of_connection,
        "maxHeldPulls",
        lambda c: c.broker.max_held_pulls,
        "it never counts; lower the first",
        only_given=True,
    ),
    Order(
        "maxHeldRequestsOfGroup",
        lambda c: c.broker.max_held_requests_of_group,
        "maxHeldPulls",
        lambda c: c.broker.max_held_pulls,
        "it never counts; lower the first",
        only_given=True,
    ),
    Order(
        "popPollingSize",
        lambda c: c.broker.pop_polling_size,
        "maxPopPollingSize",
        lambda c: c.broker.max_pop_polling_size,
        "it never counts; lower the first",
        only_given=True,
    ),
    Order(
        "haSendHeartbeatInterval",
        lambda c: c.replication.ha_send_heartbeat_interval_ms,
        "haHousekeepingInterval",
        lambda c: c.replication.ha_housekeeping_interval_ms,
        "a slave that reports so rarely is left in between; lower the first",
    ),
    Order(
        "timerRollWindowSlot",
        lambda c: c.store.timer_roll_window_slot * c.store.timer_precision_ms,
        "two thirds of fileReservedTime",
        lambda c: c.store.file_reserved_time_h * HOUR_MS * 2 // 3,
        "that is used in its place, or messages would be deleted before they are due (in ms)",
        only_given=True,
    ),
)


def contradictions(config: BrokerConfig) -> Iterator[tuple[str, str]]:
    """The key and the message of each pair that cannot work."""
    store, remoting = config.store, config.remoting
    if remoting.low_water_bytes > remoting.high_water_bytes:
        yield (
            "writeBufferLowWaterMark",
            f"{remoting.low_water_bytes} is above writeBufferHighWaterMark,"
            f" {remoting.high_water_bytes}: lower the first",
        )
    needed = store.max_message_size_bytes + REQUEST_BYTES
    if needed > remoting.max_frame_bytes:
        yield (
            "maxMessageSize",
            f"messages of {store.max_message_size_bytes} bytes do not fit into a frame of"
            f" maxFrameBytes, {remoting.max_frame_bytes}: raise that to {needed} at least",
        )
    yield from places(config)
    if config.replication.ha_tls:
        yield from lacking_for_ha_tls(config.tls)
    index_bytes = 40 + 4 * store.max_hash_slot_num + 20 * store.max_index_num
    if index_bytes > FILE_BYTES_MAX:
        yield (
            "maxIndexNum",
            f"an index file would have {index_bytes} bytes, which is more than"
            f" {FILE_BYTES_MAX}: lower it, or maxHashSlotNum",
        )


def lacking_for_ha_tls(tls: TlsConfig) -> Iterator[tuple[str, str]]:
    """Settings of TLS that a pair lacks for an encrypted log, in either role."""
    why = "of a pair each is the slave of the other, once their roles change"
    if not tls.tls_server_cert_path or tls.tls_server_mode is TlsMode.DISABLED:
        yield (
            "haTls",
            "a master needs a certificate: set tlsServerCertPath, and tlsServerMode to permissive"
            f" or enforcing; {why}",
        )
    if not tls.use_tls:
        yield "haTls", f"a slave connects as useTLS says: set it to true; {why}"


def places(config: BrokerConfig) -> Iterator[tuple[str, str]]:
    """Files and directories that would overwrite each other."""
    overlay = config.broker.config_overlay_path
    if overlay and not overlay.endswith((".yaml", ".yml")):
        yield "configOverlayPath", f"{overlay} is to be a file of YAML: let its name end in .yaml"
    if overlay and overlay == config.namesrv.kv_config_path:
        yield "configOverlayPath", f"{overlay} is the file of kvConfigPath already"
    root, log = config.store.store_path_root_dir, config.store.store_path_commit_log
    directories = [root, *(f"{root.rstrip('/')}/{name}" for name in OWN_DIRECTORIES)]
    if log and log.rstrip("/") in (directory.rstrip("/") for directory in directories):
        yield "storePathCommitLog", f"{log} holds other files of the store: give it one of its own"


def oddities(names: Collection[str], config: BrokerConfig) -> Iterator[tuple[str, str]]:
    """The key and the message of each pair that works, but surely not as intended."""
    for order in ORDERS:
        less, more = order.less_value(config), order.more_value(config)
        if less > more and (order.less in names or not order.only_given):
            yield order.less, f"{less} is above {order.more}, {more}: {order.why}"
    yield from disk_limits(config)
    yield from late_deliveries(config)
    yield from silences(config)
    for name, is_set in (
        ("forceOldMaster", config.replication.force_old_master),
        ("forceEmptyMaster", config.replication.force_empty_master),
    ):
        if is_set:
            yield (
                name,
                "it is for one start: remove it again, or a later start asks no other member",
            )
    store = config.store
    if store.max_index_num > ENTRIES_PER_SLOT_MAX * store.max_hash_slot_num:
        yield (
            "maxIndexNum",
            f"{store.max_index_num} entries share maxHashSlotNum, {store.max_hash_slot_num}, slots:"
            " queries by key will be slow; RocketMQ has four entries a slot",
        )
    if not config.namesrv.embedded_namesrv and not config.broker.namesrv_addr.strip():
        yield (
            "embeddedNamesrv",
            "no name server tells clients of this broker: set namesrvAddr, or leave this one true",
        )


def disk_limits(config: BrokerConfig) -> Iterator[tuple[str, str]]:
    """Disk limits in the wrong order, of which one can never take effect."""
    store = config.store
    names = ("diskMaxUsedSpaceRatio", "diskSpaceCleanForciblyRatio", "diskSpaceWarningLevelRatio")
    percents = (
        store.disk_max_used_space_ratio_percent,
        store.disk_space_clean_forcibly_ratio_percent,
        store.disk_space_warning_level_ratio_percent,
    )
    frees = (
        store.disk_max_used_space_free_bytes,
        store.disk_space_clean_forcibly_free_bytes,
        store.disk_space_warning_level_free_bytes,
    )
    whys = {
        (0, 1): "files that are not expired are deleted before only expired ones would be",
        (1, 2): "files that are not expired are deleted as soon as sends are refused, not before",
        (0, 2): "sends are refused before expired files are deleted at any hour",
    }
    for (at, then), why in whys.items():
        if then - at > 1 and bool(frees[at]) == bool(frees[at + 1]):
            continue  # Of one kind with that in between, which was compared with both.
        if frees[at] and frees[then] and frees[at] < frees[then]:
            less, more = f"{frees[at]} bytes free come after", f"{frees[then]}"
        elif not frees[at] and not frees[then] and percents[at] > percents[then]:
            less, more = f"{percents[at]} % is above", f"{percents[then]} %"
        else:
            continue
        yield names[at], f"{less} {names[then]}, {more}: {why}; change one of the two"
    if not store.clean_file_forcibly_enable and "diskSpaceCleanForciblyRatio" in config.sources:
        yield "diskSpaceCleanForciblyRatio", "has no effect with cleanFileForciblyEnable: false"


def late_deliveries(config: BrokerConfig) -> Iterator[tuple[str, str]]:
    """Delays longer than the retention of messages, or of a feature that is switched off."""
    store, broker = config.store, config.broker
    delays_ms = DelayLevels(store.message_delay_level).delays_ms
    if not delays_ms:
        yield "messageDelayLevel", "has no level: each delayed message comes after a second"
    kept_ms = store.file_reserved_time_h * HOUR_MS
    late = [str(level) for level, ms in enumerate(delays_ms, 1) if ms >= kept_ms]
    if late:
        yield (
            "messageDelayLevel",
            f"messages of level {', '.join(late)} wait as long as they are kept, or longer, and may"
            f" be deleted before they are due: raise fileReservedTime, {store.file_reserved_time_h}"
            " h",
        )
    if not store.timer_wheel_enable:
        for name, wanted in (
            ("recallMessageEnable", broker.recall_message_enable),
            ("startDeliverTimeCompat", broker.start_deliver_time_compat),
        ):
            if wanted:
                yield name, "has no effect with timerWheelEnable: false"


def silences(config: BrokerConfig) -> Iterator[tuple[str, str]]:
    """Timeouts shorter than the heartbeats of peers, and half messages that are never checked."""
    kept_s = config.store.file_reserved_time_h * HOUR_MS // 1000
    checks_s = config.broker.transaction_check_interval_ms * config.broker.transaction_check_max
    checks_s //= 1000
    if checks_s >= kept_s:
        yield (
            "transactionCheckInterval",
            f"transactionCheckMax, {config.broker.transaction_check_max}, checks take"
            f" {checks_s} s, and half messages are deleted after fileReservedTime,"
            f" {config.store.file_reserved_time_h} h: lower one of the first two",
        )
    for name, seconds in (
        ("channelExpiredTimeout", config.broker.channel_expired_timeout_ms // 1000),
        ("serverChannelMaxIdleTimeSeconds", config.remoting.server_channel_max_idle_time_s),
    ):
        if seconds <= HEARTBEAT_S:
            yield (
                name,
                f"{seconds} s: clients send a heartbeat every {HEARTBEAT_S} s (their"
                " heartbeatBrokerInterval) and are taken for gone in between; raise it",
            )
