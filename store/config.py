"""The settings of the store, each with its RocketMQ key, unit, default and range.

A field is one declaration: `broker.config` reads, checks and documents it from the annotation.
What stands in `extra`: `key` (RocketMQ's name), `unit` (of the number in a file), `hot` (may change
while running), `list` (separator of a text that is a list), `clamp` (the Java broker bends a value
into the range instead of taking it), `own` (not a RocketMQ key), `later` (no effect yet),
`derived` (how the default comes about when nobody sets it), `kind` (a check of the text).
A field without `key` belongs to another field's key. Source: configuration §3.4.
Long because every setting stands here whole.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from msgspec import Meta

__all__ = ["DEFAULT_DELAY_LEVELS", "FlushDiskType", "StoreConfig"]

DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
MAX_FILE_BYTES = 2_147_483_647  # positions inside one file are signed 32-bit integers


class FlushDiskType(StrEnum):
    """When an acknowledged message is on disk: before the answer, or a little later."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """Paths and sizes, flushing, clean-up, limits of reads, recovery, delay levels."""

    # Paths and sizes
    store_path_root_dir: Annotated[
        str,
        Meta(
            description="Data directory; everything but an explicit storePathCommitLog is below.",
            extra={
                "key": "storePathRootDir",
                "kind": "path",
                "derived": "store in the home directory",
            },
        ),
    ] = "~/store"
    store_path_commit_log: Annotated[
        str,
        Meta(
            description="Directory of the commit log. Empty: commitlog below storePathRootDir.",
            extra={"key": "storePathCommitLog", "kind": "path", "list": ","},
        ),
    ] = ""
    mapped_file_size_commit_log_bytes: Annotated[
        int,
        Meta(
            ge=4096,
            le=MAX_FILE_BYTES,
            description="Size of a commit-log file. Where files are, theirs is kept for new ones.",
            extra={"key": "mappedFileSizeCommitLog", "unit": "B"},
        ),
    ] = 1_073_741_824
    mapped_file_size_consume_queue_bytes: Annotated[
        int,
        Meta(
            ge=20,
            le=MAX_FILE_BYTES,
            description="Size of a consume-queue file, rounded up to whole units of 20 bytes. "
            "Where files are, theirs is kept for new ones.",
            extra={"key": "mappedFileSizeConsumeQueue", "unit": "B"},
        ),
    ] = 6_000_000
    message_index_enable: Annotated[
        bool,
        Meta(
            description="Index messages by key. Turned on again, it takes up what it missed.",
            extra={"key": "messageIndexEnable", "hot": True},
        ),
    ] = True
    message_index_safe: Annotated[
        bool,
        Meta(
            description="Without effect: what a crash takes of the index is always built again.",
            extra={"key": "messageIndexSafe"},
        ),
    ] = False
    max_hash_slot_num: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000_000,
            description="Hash slots of a new index file of 40 + 4·slots + 20·entries bytes.",
            extra={"key": "maxHashSlotNum"},
        ),
    ] = 5_000_000
    max_index_num: Annotated[
        int,
        Meta(
            ge=2,
            le=100_000_000,
            description="Entries of a new index file.",
            extra={"key": "maxIndexNum"},
        ),
    ] = 20_000_000

    # Flush
    flush_disk_type: Annotated[
        FlushDiskType,
        Meta(
            description="SYNC_FLUSH answers a send when it is on disk, ASYNC_FLUSH before.",
            extra={"key": "flushDiskType"},
        ),
    ] = FlushDiskType.ASYNC_FLUSH
    flush_interval_commit_log_ms: Annotated[
        int,
        Meta(
            ge=1,
            le=60_000,
            description="Period of the commit-log flush under ASYNC_FLUSH.",
            extra={"key": "flushIntervalCommitLog", "unit": "ms", "hot": True},
        ),
    ] = 500
    flush_commit_log_timed: Annotated[
        bool,
        Meta(
            description="True: flush on the period only. False: an append may wake the flush.",
            extra={"key": "flushCommitLogTimed", "hot": True, "later": True},
        ),
    ] = True
    flush_commit_log_least_pages: Annotated[
        int,
        Meta(
            ge=0,
            le=1024,
            description="Pages of 4 KiB that must be dirty before a period flushes.",
            extra={"key": "flushCommitLogLeastPages", "hot": True},
        ),
    ] = 4
    flush_commit_log_thorough_interval_ms: Annotated[
        int,
        Meta(
            ge=1,
            le=600_000,
            description="After this long whatever there is gets flushed.",
            extra={"key": "flushCommitLogThoroughInterval", "unit": "ms", "hot": True},
        ),
    ] = 10_000
    warm_maped_file_enable: Annotated[
        bool,
        Meta(
            description="Bring the pages of the next appends to memory before they are touched.",
            extra={"key": "warmMapedFileEnable", "hot": True},
        ),
    ] = True
    flush_least_pages_when_warm_maped_file: Annotated[
        int,
        Meta(
            ge=1,
            le=262_144,
            description="Pages of 4 KiB that are kept warm ahead of the appends.",
            extra={"key": "flushLeastPagesWhenWarmMapedFile", "hot": True},
        ),
    ] = 4_096
    transient_store_pool_enable: Annotated[
        bool,
        Meta(
            description="Accepted, without effect: appends go to the page cache at once, "
            "and a kill takes nothing.",
            extra={"key": "transientStorePoolEnable"},
        ),
    ] = False
    commit_interval_commit_log_ms: Annotated[
        int,
        Meta(
            ge=1,
            le=60_000,
            description="Period in which the transient pool goes to the page cache.",
            extra={"key": "commitIntervalCommitLog", "unit": "ms", "hot": True, "later": True},
        ),
    ] = 200
    commit_commit_log_thorough_interval_ms: Annotated[
        int,
        Meta(
            ge=1,
            le=60_000,
            description="After this long the whole transient pool goes to the page cache.",
            extra={
                "key": "commitCommitLogThoroughInterval",
                "unit": "ms",
                "hot": True,
                "later": True,
            },
        ),
    ] = 200
    commit_commit_log_least_pages: Annotated[
        int,
        Meta(
            ge=0,
            le=1024,
            description="Pages the transient pool must hold before a period commits it.",
            extra={"key": "commitCommitLogLeastPages", "hot": True, "later": True},
        ),
    ] = 4
    flush_interval_consume_queue_ms: Annotated[
        int,
        Meta(
            ge=10,
            le=60_000,
            description="Period of the consume-queue flush.",
            extra={"key": "flushIntervalConsumeQueue", "unit": "ms", "hot": True},
        ),
    ] = 1_000
    flush_consume_queue_least_pages: Annotated[
        int,
        Meta(
            ge=0,
            le=1024,
            description="Pages of a consume queue that must be dirty before a period flushes.",
            extra={"key": "flushConsumeQueueLeastPages", "hot": True},
        ),
    ] = 2
    flush_consume_queue_thorough_interval_ms: Annotated[
        int,
        Meta(
            ge=1_000,
            le=600_000,
            description="After this long all consume queues and the checkpoint get flushed.",
            extra={"key": "flushConsumeQueueThoroughInterval", "unit": "ms", "hot": True},
        ),
    ] = 60_000
    sync_flush_timeout_ms: Annotated[
        int,
        Meta(
            ge=100,
            le=60_000,
            description="How long a SYNC_FLUSH producer waits before FLUSH_DISK_TIMEOUT.",
            extra={"key": "syncFlushTimeout", "unit": "ms", "hot": True},
        ),
    ] = 5_000

    # Clean-up and disk
    delete_when: Annotated[
        str,
        Meta(
            description="Hours of the day, local time, in which expired files are deleted.",
            extra={"key": "deleteWhen", "list": ";", "hot": True, "kind": "hours_of_day"},
        ),
    ] = "04"
    file_reserved_time_h: Annotated[
        int,
        Meta(
            ge=1,
            le=8760,
            description="How long a commit-log file is kept after its last change.",
            extra={"key": "fileReservedTime", "unit": "h", "hot": True},
        ),
    ] = 72
    clean_resource_interval_ms: Annotated[
        int,
        Meta(
            ge=1,
            le=3_600_000,
            description="Period of the clean-up; the first one comes after 60 s.",
            extra={"key": "cleanResourceInterval", "unit": "ms"},
        ),
    ] = 10_000
    delete_commit_log_files_interval_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=60_000,
            description="Pause between two commit-log files of one clean-up.",
            extra={"key": "deleteCommitLogFilesInterval", "unit": "ms", "hot": True},
        ),
    ] = 100
    delete_consume_queue_files_interval_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=60_000,
            description="Pause between two consume-queue files of one clean-up.",
            extra={"key": "deleteConsumeQueueFilesInterval", "unit": "ms", "hot": True},
        ),
    ] = 100
    delete_file_batch_max: Annotated[
        int,
        Meta(
            ge=1,
            le=1000,
            description="Commit-log files deleted by one clean-up.",
            extra={"key": "deleteFileBatchMax", "hot": True},
        ),
    ] = 10
    destroy_maped_file_interval_forcibly_ms: Annotated[
        int,
        Meta(
            ge=1_000,
            le=3_600_000,
            description="How long readers may hold a file that is to be deleted.",
            extra={"key": "destroyMapedFileIntervalForcibly", "unit": "ms", "hot": True},
        ),
    ] = 120_000
    redelete_hanged_file_interval_ms: Annotated[
        int,
        Meta(
            ge=1_000,
            le=3_600_000,
            description="Pause before the next attempt at a file that readers held.",
            extra={"key": "redeleteHangedFileInterval", "unit": "ms", "hot": True},
        ),
    ] = 120_000
    clean_file_forcibly_enable: Annotated[
        bool,
        Meta(
            description="Above diskSpaceCleanForciblyRatio delete files that are not expired.",
            extra={"key": "cleanFileForciblyEnable", "hot": True},
        ),
    ] = True
    disk_max_used_space_ratio_percent: Annotated[
        int,
        Meta(
            ge=10,
            le=95,
            description="Above this use of the disk expired files are deleted at any hour.",
            extra={
                "key": "diskMaxUsedSpaceRatio",
                "unit": "%",
                "hot": True,
                "clamp": True,
                "free": "disk_max_used_space_free_bytes",
            },
        ),
    ] = 75
    disk_space_clean_forcibly_ratio_percent: Annotated[
        int,
        Meta(
            ge=30,
            le=85,
            description="Above this use of the disk files are deleted at once, expired or not.",
            extra={
                "key": "diskSpaceCleanForciblyRatio",
                "unit": "%",
                "hot": True,
                "clamp": True,
                "free": "disk_space_clean_forcibly_free_bytes",
            },
        ),
    ] = 85
    disk_space_warning_level_ratio_percent: Annotated[
        int,
        Meta(
            ge=35,
            le=90,
            description="Above this use of the disk sends are refused.",
            extra={
                "key": "diskSpaceWarningLevelRatio",
                "unit": "%",
                "hot": True,
                "clamp": True,
                "free": "disk_space_warning_level_free_bytes",
            },
        ),
    ] = 90
    disk_max_used_space_free_bytes: int = 0
    """Where > 0: space to keep free, instead of diskMaxUsedSpaceRatio's percentage."""
    disk_space_clean_forcibly_free_bytes: int = 0
    """Where > 0: space to keep free, instead of diskSpaceCleanForciblyRatio's percentage."""
    disk_space_warning_level_free_bytes: int = 0
    """Where > 0: space to keep free, instead of diskSpaceWarningLevelRatio's percentage."""
    wait_for_archive: Annotated[
        bool,
        Meta(
            description="Keep a commit-log file without its mark archive/<file>.done until "
            "diskMaxUsedSpaceRatio is passed.",
            extra={"key": "waitForArchive", "own": True, "hot": True},
        ),
    ] = False
    disk_fall_recorded: Annotated[
        bool,
        Meta(
            description="Count how far each group reads behind the end of the log.",
            extra={"key": "diskFallRecorded"},
        ),
    ] = True

    # Limits and reads
    max_message_size_bytes: Annotated[
        int,
        Meta(
            ge=1024,
            le=67_108_864,
            description="Largest body of a message.",
            extra={"key": "maxMessageSize", "unit": "B", "hot": True},
        ),
    ] = 4_194_304
    max_msgs_num_batch: Annotated[
        int,
        Meta(
            ge=1,
            le=1024,
            description="Most messages of one query by key.",
            extra={"key": "maxMsgsNumBatch", "hot": True},
        ),
    ] = 64
    default_query_max_num: Annotated[
        int,
        Meta(
            ge=1,
            le=1024,
            description="Messages of a query by key that names no number.",
            extra={"key": "defaultQueryMaxNum", "hot": True},
        ),
    ] = 32
    max_transfer_bytes_on_message_in_memory: Annotated[
        int,
        Meta(
            ge=1,
            le=16_777_216,
            description="Most bytes of one pull that reads from memory.",
            extra={"key": "maxTransferBytesOnMessageInMemory", "unit": "B", "hot": True},
        ),
    ] = 262_144
    max_transfer_count_on_message_in_memory: Annotated[
        int,
        Meta(
            ge=1,
            le=16_777_216,
            description="Most messages of one pull that reads from memory.",
            extra={"key": "maxTransferCountOnMessageInMemory", "hot": True},
        ),
    ] = 32
    max_transfer_bytes_on_message_in_disk: Annotated[
        int,
        Meta(
            ge=1,
            le=16_777_216,
            description="Most bytes of one pull that reads from disk.",
            extra={"key": "maxTransferBytesOnMessageInDisk", "unit": "B", "hot": True},
        ),
    ] = 65_536
    max_transfer_count_on_message_in_disk: Annotated[
        int,
        Meta(
            ge=1,
            le=16_777_216,
            description="Most messages of one pull that reads from disk.",
            extra={"key": "maxTransferCountOnMessageInDisk", "hot": True},
        ),
    ] = 8
    access_message_in_memory_max_ratio_percent: Annotated[
        int,
        Meta(
            ge=0,
            le=100,
            description="Share of the physical memory within which the end of the log is warm.",
            extra={"key": "accessMessageInMemoryMaxRatio", "unit": "%", "hot": True},
        ),
    ] = 40
    max_filter_message_size_bytes: Annotated[
        int,
        Meta(
            ge=800,
            le=1_000_000,
            description="Bytes of a consume queue that one pull looks through for its tags.",
            extra={"key": "maxFilterMessageSize", "unit": "B", "hot": True},
        ),
    ] = 16_000

    # Recovery
    check_crc_on_recover: Annotated[
        bool,
        Meta(
            description="Compare the CRC of each body that recovery reads.",
            extra={"key": "checkCRCOnRecover"},
        ),
    ] = True

    # Delay
    message_delay_level: Annotated[
        str,
        Meta(
            description="Delays of the levels from 1 on.",
            extra={"key": "messageDelayLevel", "list": " ", "kind": "delays"},
        ),
    ] = DEFAULT_DELAY_LEVELS
    flush_delay_offset_interval_ms: Annotated[
        int,
        Meta(
            ge=1,
            le=3_600_000,
            description="Period in which the progress of the delay levels is saved.",
            extra={"key": "flushDelayOffsetInterval", "unit": "ms"},
        ),
    ] = 10_000

    # Timers
    timer_wheel_enable: Annotated[
        bool,
        Meta(
            description="Deliver messages at any time that they ask for.",
            extra={"key": "timerWheelEnable"},
        ),
    ] = True
    timer_precision_ms: Annotated[
        int,
        Meta(
            ge=100,
            le=1_000,
            description="Step of the wheel in ms: by so much a timer may come late, never early. "
            "Another one counts from the first start on that finds no timer waiting.",
            extra={"key": "timerPrecisionMs"},
        ),
    ] = 1_000
    timer_roll_window_slot: Annotated[
        int,
        Meta(
            ge=2,
            le=604_740,
            description="Steps after which a timer that is further away is stored again, at most "
            "two thirds of fileReservedTime.",
            extra={"key": "timerRollWindowSlot"},
        ),
    ] = 172_800
    timer_max_delay_s: Annotated[
        int,
        Meta(
            ge=1,
            le=3_153_600_000,
            description="Timers further away are refused.",
            extra={"key": "timerMaxDelaySec", "unit": "s"},
        ),
    ] = 3_456_000
    timer_flush_interval_ms: Annotated[
        int,
        Meta(
            ge=10,
            le=60_000,
            description="Period in ms in which the progress of timers is saved.",
            extra={"key": "timerFlushIntervalMs"},
        ),
    ] = 1_000
    mapped_file_size_timer_log_bytes: Annotated[
        int,
        Meta(
            ge=4_096,
            le=MAX_FILE_BYTES,
            description="Size of a timer-log file. Where files are, theirs is kept for new ones.",
            extra={"key": "mappedFileSizeTimerLog", "unit": "B"},
        ),
    ] = 104_857_600

    @property
    def sync_flush(self) -> bool:
        """Whether a send is answered when it is on disk."""
        return self.flush_disk_type is FlushDiskType.SYNC_FLUSH
