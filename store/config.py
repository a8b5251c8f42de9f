"""The settings of the store, each with its RocketMQ key, unit, default and range.

A field is one declaration (`aerobee.setting` says what its marks mean); `broker.config` reads,
checks and documents it. A field without `setting` belongs to another field's key.
Source: configuration §3.4.
"""

from dataclasses import dataclass
from enum import StrEnum

from aerobee.setting import setting

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
    store_path_root_dir: str = setting(
        "storePathRootDir", "~/store", kind="path", derived="store in the home directory"
    )
    """Data directory; everything but an explicit storePathCommitLog is below."""
    store_path_commit_log: str = setting("storePathCommitLog", "", kind="path", separator=",")
    """Directory of the commit log. Empty: commitlog below storePathRootDir."""
    mapped_file_size_commit_log_bytes: int = setting(
        "mappedFileSizeCommitLog", 1_073_741_824, ge=4096, le=MAX_FILE_BYTES, unit="B"
    )
    """Size of a commit-log file. Where files are, theirs is kept for new ones."""
    mapped_file_size_consume_queue_bytes: int = setting(
        "mappedFileSizeConsumeQueue", 6_000_000, ge=20, le=MAX_FILE_BYTES, unit="B"
    )
    """Size of a consume-queue file, rounded up to whole units of 20 bytes. Where files are,
    theirs is kept for new ones.
    """
    message_index_enable: bool = setting("messageIndexEnable", True, live=True)
    """Index messages by key. Turned on again, it takes up what it missed."""
    max_hash_slot_num: int = setting("maxHashSlotNum", 5_000_000, ge=1, le=100_000_000)
    """Hash slots of a new index file of 40 + 4·slots + 20·entries bytes."""
    max_index_num: int = setting("maxIndexNum", 20_000_000, ge=2, le=100_000_000)
    """Entries of a new index file."""

    # Flush
    flush_disk_type: FlushDiskType = setting("flushDiskType", FlushDiskType.ASYNC_FLUSH)
    """SYNC_FLUSH answers a send when it is on disk, ASYNC_FLUSH before."""
    flush_interval_commit_log_ms: int = setting(
        "flushIntervalCommitLog", 500, ge=1, le=60_000, unit="ms", live=True
    )
    """Period of the commit-log flush under ASYNC_FLUSH."""
    flush_commit_log_least_pages: int = setting(
        "flushCommitLogLeastPages", 4, ge=0, le=1024, live=True
    )
    """Pages of 4 KiB that must be dirty before a period flushes."""
    flush_commit_log_thorough_interval_ms: int = setting(
        "flushCommitLogThoroughInterval", 10_000, ge=1, le=600_000, unit="ms", live=True
    )
    """After this long whatever there is gets flushed."""
    warm_maped_file_enable: bool = setting("warmMapedFileEnable", True, live=True)
    """Bring the pages of the next appends to memory before they are touched."""
    flush_least_pages_when_warm_maped_file: int = setting(
        "flushLeastPagesWhenWarmMapedFile", 4_096, ge=1, le=262_144, live=True
    )
    """Pages of 4 KiB that are kept warm ahead of the appends."""
    transient_store_pool_enable: bool = setting(
        "transientStorePoolEnable",
        False,
        inert="appends go to the page cache at once, and a kill takes nothing",
    )
    """Append to memory of our own first, then to the file."""
    flush_interval_consume_queue_ms: int = setting(
        "flushIntervalConsumeQueue", 1_000, ge=10, le=60_000, unit="ms", live=True
    )
    """Period of the consume-queue flush; longer, 5 s at most, while more than 1,500 queues get
    messages."""
    flush_consume_queue_least_pages: int = setting(
        "flushConsumeQueueLeastPages", 2, ge=0, le=1024, live=True
    )
    """Pages of a consume queue that must be dirty before a period flushes."""
    flush_consume_queue_thorough_interval_ms: int = setting(
        "flushConsumeQueueThoroughInterval", 60_000, ge=1_000, le=600_000, unit="ms", live=True
    )
    """After this long all consume queues and the checkpoint get flushed."""
    sync_flush_timeout_ms: int = setting(
        "syncFlushTimeout", 5_000, ge=100, le=60_000, unit="ms", live=True
    )
    """How long a SYNC_FLUSH producer waits before FLUSH_DISK_TIMEOUT. A change counts for later
    sends.
    """

    sync_flush_inline: bool = setting("syncFlushInline", True, own=True, live=True)
    """Under SYNC_FLUSH make short syncs that clients wait for in the event loop: senders are
    answered sooner. For 10 s after one of more than 20 ms, and for 1 s when they take more than
    0.5 ms on average, a thread makes them all the same. False: always the thread; for disks
    that may hang (of a network, say), since nobody is served, and syncFlushTimeout does not end
    a wait, during an inline sync.
    """

    # Clean-up and disk
    delete_when: str = setting("deleteWhen", "04", separator=";", live=True, kind="hours_of_day")
    """Hours of the day, local time, in which expired files are deleted."""
    file_reserved_time_h: int = setting("fileReservedTime", 72, ge=1, le=8760, unit="h", live=True)
    """How long a commit-log file is kept after its last change."""
    clean_resource_interval_ms: int = setting(
        "cleanResourceInterval", 10_000, ge=1, le=3_600_000, unit="ms"
    )
    """Period of the clean-up; the first one comes after 60 s."""
    delete_commit_log_files_interval_ms: int = setting(
        "deleteCommitLogFilesInterval", 100, ge=0, le=60_000, unit="ms", live=True
    )
    """Pause between two commit-log files of one clean-up."""
    delete_consume_queue_files_interval_ms: int = setting(
        "deleteConsumeQueueFilesInterval", 100, ge=0, le=60_000, unit="ms", live=True
    )
    """Pause between two consume-queue files of one clean-up."""
    delete_file_batch_max: int = setting("deleteFileBatchMax", 10, ge=1, le=1000, live=True)
    """Commit-log files deleted by one clean-up."""
    destroy_maped_file_interval_forcibly_ms: int = setting(
        "destroyMapedFileIntervalForcibly", 120_000, ge=1_000, le=3_600_000, unit="ms", live=True
    )
    """How long readers may hold a file that is to be deleted."""
    redelete_hanged_file_interval_ms: int = setting(
        "redeleteHangedFileInterval", 120_000, ge=1_000, le=3_600_000, unit="ms", live=True
    )
    """Pause before the next attempt at a file that readers held."""
    clean_file_forcibly_enable: bool = setting("cleanFileForciblyEnable", True, live=True)
    """Above diskSpaceCleanForciblyRatio delete files that are not expired."""
    disk_max_used_space_ratio_percent: int = setting(
        "diskMaxUsedSpaceRatio",
        75,
        ge=10,
        le=95,
        unit="%",
        live=True,
        clamp=True,
        free="disk_max_used_space_free_bytes",
    )
    """Above this use of the disk expired files are deleted at any hour."""
    disk_space_clean_forcibly_ratio_percent: int = setting(
        "diskSpaceCleanForciblyRatio",
        85,
        ge=30,
        le=85,
        unit="%",
        live=True,
        clamp=True,
        free="disk_space_clean_forcibly_free_bytes",
    )
    """Above this use of the disk files are deleted at once, expired or not."""
    disk_space_warning_level_ratio_percent: int = setting(
        "diskSpaceWarningLevelRatio",
        90,
        ge=35,
        le=90,
        unit="%",
        live=True,
        clamp=True,
        free="disk_space_warning_level_free_bytes",
    )
    """Above this use of the disk sends are refused."""
    disk_max_used_space_free_bytes: int = 0
    """Where > 0: space to keep free, instead of diskMaxUsedSpaceRatio's percentage."""
    disk_space_clean_forcibly_free_bytes: int = 0
    """Where > 0: space to keep free, instead of diskSpaceCleanForciblyRatio's percentage."""
    disk_space_warning_level_free_bytes: int = 0
    """Where > 0: space to keep free, instead of diskSpaceWarningLevelRatio's percentage."""
    wait_for_archive: bool = setting("waitForArchive", False, own=True, live=True)
    """Keep a commit-log file without its mark archive/<file>.done until diskMaxUsedSpaceRatio
    is passed.
    """

    # Limits and reads
    max_message_size_bytes: int = setting(
        "maxMessageSize", 4_194_304, ge=1024, le=67_108_864, unit="B", live=True
    )
    """Largest body of a message."""
    max_msgs_num_batch: int = setting("maxMsgsNumBatch", 64, ge=1, le=1024, live=True)
    """Most messages of one query by key."""
    default_query_max_num: int = setting("defaultQueryMaxNum", 32, ge=1, le=1024, live=True)
    """Messages of a query by key that names no number."""
    max_index_entries_of_query: int = setting(
        "maxIndexEntriesOfQuery", 1_000_000, ge=1_000, le=1_000_000_000, own=True, live=True
    )
    """Entries of the index that one query by key looks at. A query that needs more is answered with
    the messages found so far, or refused if there are none; the remark says how to ask on.
    """
    max_transfer_bytes_on_message_in_memory: int = setting(
        "maxTransferBytesOnMessageInMemory", 262_144, ge=1, le=16_777_216, unit="B", live=True
    )
    """Most bytes of one pull that reads from memory."""
    max_transfer_count_on_message_in_memory: int = setting(
        "maxTransferCountOnMessageInMemory", 32, ge=1, le=16_777_216, live=True
    )
    """Most messages of one pull that reads from memory."""
    max_transfer_bytes_on_message_in_disk: int = setting(
        "maxTransferBytesOnMessageInDisk", 65_536, ge=1, le=16_777_216, unit="B", live=True
    )
    """Most bytes of one pull that reads from disk."""
    max_transfer_count_on_message_in_disk: int = setting(
        "maxTransferCountOnMessageInDisk", 8, ge=1, le=16_777_216, live=True
    )
    """Most messages of one pull that reads from disk."""
    access_message_in_memory_max_ratio_percent: int = setting(
        "accessMessageInMemoryMaxRatio", 40, ge=0, le=100, unit="%", live=True
    )
    """Share of the physical memory within which the end of the log is warm."""
    max_filter_message_size_bytes: int = setting(
        "maxFilterMessageSize", 16_000, ge=800, le=1_000_000, unit="B", live=True
    )
    """Bytes of a consume queue that one pull looks through for its tags."""

    # Recovery
    check_crc_on_recover: bool = setting("checkCRCOnRecover", True)
    """Compare the CRC of each body that recovery reads."""

    # Delay
    message_delay_level: str = setting(
        "messageDelayLevel", DEFAULT_DELAY_LEVELS, separator=" ", kind="delays"
    )
    """Delays of the levels from 1 on."""
    flush_delay_offset_interval_ms: int = setting(
        "flushDelayOffsetInterval", 10_000, ge=1, le=3_600_000, unit="ms"
    )
    """Period in which the progress of the delay levels is saved."""

    # Timers
    timer_wheel_enable: bool = setting("timerWheelEnable", True)
    """Deliver messages at any time that they ask for."""
    timer_precision_ms: int = setting("timerPrecisionMs", 1_000, ge=100, le=1_000)
    """Step of the wheel in ms: by so much a timer may come late, never early. Another one
    counts from the first start on that finds no timer waiting.
    """
    timer_roll_window_slot: int = setting("timerRollWindowSlot", 172_800, ge=2, le=604_740)
    """Steps after which a timer that is further away is stored again, at most two thirds of
    fileReservedTime.
    """
    timer_max_delay_s: int = setting(
        "timerMaxDelaySec", 3_456_000, ge=1, le=3_153_600_000, unit="s"
    )
    """Timers further away are refused."""
    timer_flush_interval_ms: int = setting("timerFlushIntervalMs", 1_000, ge=10, le=60_000)
    """Period in ms in which the progress of timers is saved."""
    mapped_file_size_timer_log_bytes: int = setting(
        "mappedFileSizeTimerLog", 104_857_600, ge=4_096, le=MAX_FILE_BYTES, unit="B"
    )
    """Size of a timer-log file. Where files are, theirs is kept for new ones."""

    @property
    def sync_flush(self) -> bool:
        """Whether a send is answered when it is on disk."""
        return self.flush_disk_type is FlushDiskType.SYNC_FLUSH
