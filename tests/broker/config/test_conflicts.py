"""Settings that contradict each other: one warning each, that names the other key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aerobee.broker.config.files.entries import ConfigurationError
from aerobee.broker.config.load import load_config
from aerobee.broker.config.report import check_report

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.broker.config.model import BrokerConfig


def load(*overrides: str, file: Path | None = None) -> BrokerConfig:
    return load_config(
        file,
        overrides=list(overrides),
        environ={"HOME": "/home/me"},
        cpu_count=4,
        host_addresses=["10.0.0.5"],
        host_name="box",
    )


@pytest.mark.parametrize(
    ("overrides", "key", "names"),
    [
        (["diskMaxUsedSpaceRatio=88"], "diskMaxUsedSpaceRatio", "diskSpaceCleanForciblyRatio, 85"),
        (
            ["diskSpaceWarningLevelRatio=80"],
            "diskSpaceCleanForciblyRatio",
            "diskSpaceWarningLevelRatio, 80 %",
        ),
        (
            ["diskMaxUsedSpaceRatio=1GiB", "diskSpaceCleanForciblyRatio=2GiB"],
            "diskMaxUsedSpaceRatio",
            "diskSpaceCleanForciblyRatio, 2147483648",
        ),
        (
            [
                "diskMaxUsedSpaceRatio=80",
                "diskSpaceCleanForciblyRatio=2GiB",
                "diskSpaceWarningLevelRatio=70",
            ],
            "diskMaxUsedSpaceRatio",
            "80 % is above diskSpaceWarningLevelRatio, 70 %",
        ),
        (
            ["diskMaxUsedSpaceRatio=1GiB", "diskSpaceWarningLevelRatio=2GiB"],
            "diskMaxUsedSpaceRatio",
            "diskSpaceWarningLevelRatio, 2147483648",
        ),
        (
            ["diskSpaceCleanForciblyRatio=80", "cleanFileForciblyEnable=false"],
            "diskSpaceCleanForciblyRatio",
            "cleanFileForciblyEnable",
        ),
        (
            ["flushIntervalCommitLog=20s"],
            "flushIntervalCommitLog",
            "flushCommitLogThoroughInterval",
        ),
        (
            ["flushConsumeQueueThoroughInterval=1s", "flushIntervalConsumeQueue=2s"],
            "flushIntervalConsumeQueue",
            "flushConsumeQueueThoroughInterval, 1000",
        ),
        (["mappedFileSizeCommitLog=1MiB"], "maxMessageSize", "mappedFileSizeCommitLog, 1048576"),
        (["maxMsgsNumBatch=16"], "defaultQueryMaxNum", "maxMsgsNumBatch, 16"),
        (
            ["maxTransferBytesOnMessageInMemory=16MiB", "maxFrameBytes=8MiB"],
            "maxTransferBytesOnMessageInMemory",
            "maxFrameBytes, 8388608",
        ),
        (
            ["maxTransferBytesOnMessageInDisk=1MiB"],
            "maxTransferBytesOnMessageInDisk",
            "maxTransferBytesOnMessageInMemory, 262144",
        ),
        (
            ["registerBrokerTimeoutMills=20s", "registerNameServerPeriod=10s"],
            "registerBrokerTimeoutMills",
            "registerNameServerPeriod, 10000",
        ),
        (
            ["transactionCheckInterval=1h", "transactionCheckMax=100"],
            "transactionCheckInterval",
            "fileReservedTime, 72 h",
        ),
        (["maxIndexNum=1000000"], "maxHashSlotNum", "maxIndexNum, 1000000"),
        (["maxHashSlotNum=100000"], "maxIndexNum", "maxHashSlotNum, 100000"),
        (["maxHeaderBytes=15MiB", "maxFrameBytes=8MiB"], "maxHeaderBytes", "maxFrameBytes"),
        (["maxInboundBufferBytes=8MiB"], "maxFrameBytes", "maxInboundBufferBytes"),
        (
            ["writeBufferHighWaterMark=8MiB", "maxOutboundBufferBytes=4MiB"],
            "writeBufferHighWaterMark",
            "maxOutboundBufferBytes",
        ),
        (
            ["maxHeldPulls=1000", "maxHeldRequestsOfConnection=2000"],
            "maxHeldRequestsOfConnection",
            "maxHeldPulls, 1000",
        ),
        (
            ["maxHeldPulls=1000", "maxHeldRequestsOfGroup=2000"],
            "maxHeldRequestsOfGroup",
            "maxHeldPulls, 1000",
        ),
        (["maxPopPollingSize=10", "popPollingSize=20"], "popPollingSize", "maxPopPollingSize"),
        (
            ["timerRollWindowSlot=172800", "fileReservedTime=48"],
            "timerRollWindowSlot",
            "fileReservedTime",
        ),
        (["fileReservedTime=1"], "messageDelayLevel", "level 17, 18 wait"),
        (["messageDelayLevel=1s 4d"], "messageDelayLevel", "fileReservedTime, 72 h"),
        (
            ["recallMessageEnable=true", "timerWheelEnable=false"],
            "recallMessageEnable",
            "timerWheelEnable",
        ),
        (
            ["startDeliverTimeCompat=true", "timerWheelEnable=false"],
            "startDeliverTimeCompat",
            "timerWheelEnable",
        ),
        (["channelExpiredTimeout=20s"], "channelExpiredTimeout", "every 30 s"),
        (["serverChannelMaxIdleTimeSeconds=30"], "serverChannelMaxIdleTimeSeconds", "every 30 s"),
        (["embeddedNamesrv=false"], "embeddedNamesrv", "namesrvAddr"),
        (
            ["haSendHeartbeatInterval=30s", "haHousekeepingInterval=20s"],
            "haSendHeartbeatInterval",
            "haHousekeepingInterval, 20000",
        ),
        (["forceOldMaster=true"], "forceOldMaster", "for one start"),
        (["forceEmptyMaster=true"], "forceEmptyMaster", "for one start"),
    ],
)
def test_what_is_surely_not_meant_is_taken_with_a_warning(
    overrides: list[str], key: str, names: str
) -> None:
    (warning,) = load(*overrides).warnings
    assert f"{key}: " in warning
    assert names in warning


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["maxHeldPulls=1000"],
        ["fileReservedTime=48"],
        ["diskMaxUsedSpaceRatio=60", "diskSpaceCleanForciblyRatio=20GiB"],
        ["embeddedNamesrv=false", "namesrvAddr=ns:9876"],
        ["maxMessageSize=32MiB", "maxFrameBytes=33MiB"],
        ["mappedFileSizeCommitLog=1MiB", "maxMessageSize=512KiB"],
    ],
)
def test_what_fits_is_taken_without_a_word(overrides: list[str]) -> None:
    assert load(*overrides).warnings == ()


def test_config_check_shows_them(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("diskMaxUsedSpaceRatio=88\n")
    (line,) = [line for line in check_report(load(file=file)).splitlines() if "warning" in line]
    assert "broker.conf:1" in line
    assert "diskSpaceCleanForciblyRatio" in line


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (
            ["configOverlayPath=/d/config/topics.json"],
            "configOverlayPath: /d/config/topics.json is",
        ),
        (["configOverlayPath=/d/a.yaml", "kvConfigPath=/d/a.yaml"], "the file of kvConfigPath"),
        (["storePathRootDir=/d", "storePathCommitLog=/d"], "storePathCommitLog: /d holds other"),
        (["storePathRootDir=/d", "storePathCommitLog=/d/index/"], "/d/index/ holds other files"),
    ],
)
def test_no_file_is_written_over_another(overrides: list[str], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        load(*overrides)


def test_the_file_of_the_operator_is_never_the_one_that_is_written(tmp_path: Path) -> None:
    file = tmp_path / "broker.yaml"
    file.write_text(f"config_overlay_path: {file}\ntrace_on: false\n")
    with pytest.raises(ConfigurationError, match="is the configuration itself"):
        load(file=file)


@pytest.mark.parametrize(
    ("more", "needs"),
    [
        ([], ["tlsServerCertPath", "useTLS"]),
        (["useTLS=true"], ["tlsServerCertPath"]),
        (["tlsServerCertPath=/c.pem"], ["useTLS"]),
        (["tlsServerCertPath=/c.pem", "tlsServerMode=disabled", "useTLS=true"], ["tlsServerMode"]),
        (["tlsServerCertPath=/c.pem", "useTLS=true"], []),
    ],
)
def test_an_encrypted_log_needs_what_either_role_needs(more: list[str], needs: list[str]) -> None:
    if not needs:
        assert load("haTls=true", *more).replication.ha_tls
        return
    with pytest.raises(ConfigurationError, match="haTls") as refused:
        load("haTls=true", *more)
    assert all(name in str(refused.value) for name in needs)
