"""Every key of RocketMQ without a setting here says why."""

import pytest

from aerobee.broker.config.files.families import FAMILIES, why_inert
from aerobee.broker.config.schema import KNOWN, SCHEMA

FOREIGN = [known for name, known in KNOWN.items() if name not in SCHEMA]


def test_every_key_without_effect_has_a_reason() -> None:
    assert not [name for name in FOREIGN if not why_inert(name)]


def test_every_family_has_keys() -> None:
    assert {why_inert(name) for name in FOREIGN} == {reason for reason, _ in FAMILIES}


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("enableDLegerCommitLog", "replication"),
        ("maxHaTransferByteInSecond", "replication"),
        ("rocksdbCompressionType", "RocksDB"),
        ("coldDataFlowControlEnable", "cold"),
        ("serverWorkerThreads", "Netty"),
        ("rocketmqHome", "names a place"),
        ("filterServerNums", "filters"),
        ("transientStorePoolSize", "page cache"),
        ("popCkMaxBufferSize", "POP"),
        ("userCacheMaxNum", "users and policies"),
        ("liteLagLatencyMetricsEnable", "lite topics"),
    ],
)
def test_a_key_is_in_the_family_that_it_belongs_to(name: str, word: str) -> None:
    assert word in why_inert(name)


def test_a_key_that_nobody_knows_has_none() -> None:
    assert why_inert("xyz") == ""
