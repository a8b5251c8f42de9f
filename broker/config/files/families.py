"""The reasons why RocketMQ keys without a setting here have no effect, by family of keys.

`tests/broker/config/files/test_families.py` checks that each of them has a family.
Source: configuration §3, §3.9.
"""

from __future__ import annotations

import re
from typing import Final

FAMILIES: Final[tuple[tuple[str, str], ...]] = (
    (
        "RocksDB stores are not there: tables are files, as with storeType=default",
        "rocksdb|storeType|combine|bottomMost|memTable|KVService|FSService|timeline",
    ),
    (
        "lite topics, compaction topics, light queues and batch queues are not there",
        "lite[A-Z]|LiteTTl|ClientEventCount|compaction|OffsetMapSize|lmq|multiDispatch|bcq"
        "|BatchConsumeQueue|batchPush|maxChecksum",
    ),
    (
        "replication and failover have settings of their own here, of which this is none",
        "controller|d_?leger|DLedger|syncstate|replica|^ha[A-Z]|HaTransfer|slave|electionPriority|preferredLeader"
        "|asyncLearner|epoch|BrokerIdentity|syncBroker|offsetCheck|syncMaster|syncFrom|duplication"
        "|inSync|preOnline|brokerHeartbeat|brokerNotActive|sendHeartbeatTimeout|oldNameSrv"
        "|cleanOfflineBroker|escape|appendAckAsync|appendCkAsync|OriginTransHalf|readUnCommitted"
        "|enableCreateSysGroup|disappearTime|inBrokerContainer|isBrokerContainer|isolateLog",
    ),
    (
        "users and policies are in tables of their own, held in memory and saved with each change",
        "^auth|Auth|^acl|^user[CA]",
    ),
    (
        "cold reads have threads of their own and hold up nobody; there is nothing to limit",
        "cold|readAhead|usePID",
    ),
    (
        "segments that are not in use are unmapped by themselves",
        "swap|InMemoryHot",
    ),
    (
        "the metrics are those of docs/metrics.md, served for Prometheus and counted at all times",
        "metric|stats|^account|commercial|^sample|estimateAccumulation|printChannel|enableDetailStat"
        "|checkMetrics",
    ),
    (
        "connections through proxies are not there",
        "socks",
    ),
    (
        "name servers are named by namesrvAddr, whose addresses are looked up anew each time",
        "NamesrvInterval|fetchName|rmqAddress|updateNameServer|scanAvailable|loadBalancePollName"
        "|^configBlackList|configManager|configName|clusterTest|productEnv|unRegisterBrokerQueue",
    ),
    (
        "a registration goes out whole, or only with what changed; it is never split or packed",
        "splitReg|compressedRegister|enableRegisterProducer",
    ),
    (
        "the network layer is no Netty: it has selectors in one loop, and pools that are counts",
        "netty|semaphore|executor|threadPool|threads|epoll|ByteBuf|^client|channelNotActive|goAway"
        "|reconnect|serverLoadBalancer|FastChannel|NetWorkFlow|shutdown|transferMsgByHeap|putThread"
        "|forwardTimeout|asyncSend|ThreadNum|callback",
    ),
    (
        "appends go to the page cache at once, by one writer that takes no lock",
        "commitCommitLog|commitInterval|wakeCommit|wakeFlush|transientStorePool|BufferInStorePool"
        "|writeWithoutMmap|lockNum|ReentrantLock|spinLock|ABSLock|AsyncPutMessage|FileChannel|sharedByteBuffer"
        "|FlagsInFlush|flushCommitLogTimed|debugLock|PropCRC|putMessageTimeout",
    ),
    (
        "POP keeps what it hands out in the log, and revives from there",
        "pop|revive|ReachMaxTimes|longAwaitingAck|OrderLock|useSeparateRetry|ForNotification",
    ),
    (
        "recovery and dispatch are built otherwise: they follow the log from the recovery point",
        "recover|reput|dispatch|BuildConsumeQueue|AcceleratedRecovery|correctLogic|indexSafe"
        "|recheck|indexFile(Read|Write)",
    ),
    (
        "consume queues have plain units, and filters are evaluated when messages are read",
        "ConsumeQueueExt|bitMap|calcFilter|BloomFilter|consumerNumUseFilter|filterSupport"
        "|filterData|filterServer|maxConsumeQueueScan|travelCq",
    ),
    (
        "delay levels and timers are delivered by one loop that keeps up by itself",
        "schedule|^timer|delayTime|TimerDelete|recall",
    ),
    (
        "open halves are known from the log; no op messages are gathered",
        "transactionOp|transactionMetric",
    ),
    (
        "a disk of the store is one file system with the limits of the three disk ratios",
        "logicalDisk|readOnlyCommitLog|storePlugIn",
    ),
    (
        "it names a place or a thing that this broker does not have, or RocketMQ reads it no more",
        "^highSpeed|HistoryInterval|maxTopicLength|BatchMaxMessage|BatchDelete|HightWater"
        "|messageVersionOnTopicLen|useStaticSubscription|rocketmqHome|brokerConfigPath"
        "|configStorePath|clusterName|authConfigPath",
    ),
    (
        "always so here, or decided by the broker itself",
        "broadcastOffset|splitMetadata|clearRetryTopic|realTimeNotify|fallRecorded|expiredOffset"
        "|lockInStrict|mixedMessageType|registrationDelete|Incrementally",
    ),
)
"""Reason, and parts of the keys' names; the first match counts."""


def why_inert(name: str) -> str:
    """The reason why a known key without a setting has no effect; empty: it is in no family."""
    for reason, pattern in FAMILIES:
        if re.search(pattern, name, re.IGNORECASE):
            return reason
    return ""
