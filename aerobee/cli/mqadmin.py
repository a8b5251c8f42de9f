"""Maps the commands of RocketMQ's `mqadmin` to those here.

Its options have other names and meanings, so its commands are explained and not run.
"""

from __future__ import annotations

NAMES = {
    "topic list": "topicList",
    "topic describe": "topicRoute topicStatus topicClusterList",
    "topic create": "updateTopic",
    "topic alter": "updateTopicPerm updateTopicList",
    "topic delete": "deleteTopic",
    "group list": "brokerConsumeStats",
    "group describe": "consumerStatus getConsumerConfig",
    "group lag": "consumerProgress",
    "group create": "updateSubGroup updateSubGroupList",
    "group delete": "deleteSubGroup",
    "group reset": "resetOffsetByTime resetOffsetByTimeOld skipAccumulatedMessage",
    "group clone": "cloneGroupOffset",
    "message get": "queryMsgById queryMsgByUniqueKey queryMsgByOffset",
    "message find": "queryMsgByKey printMsg",
    "produce": "sendMessage",
    "consume": "consumeMessage printMsgByQueue",
    "connections": "consumerConnection producerConnection producer",
    "cluster info": "clusterList brokerStatus",
    "ha status": "haStatus",
    "top": "statsAll startMonitoring",
    "bench produce": "clusterRT checkMsgSendRT",
    "broker clean": "deleteExpiredCommitLog cleanExpiredCQ cleanUnusedTopic",
    "broker write-permission": "wipeWritePerm addWritePerm",
    "cluster kv": "updateKvConfig deleteKvConfig updateOrderConf",
    "broker config get": "getBrokerConfig",
    "broker config set": "updateBrokerConfig",
    "users list": "listUser",
    "users show": "getUser",
    "users create": "createUser copyUser",
    "users update": "updateUser",
    "users delete": "deleteUser",
    "acl list": "listAcl",
    "acl show": "getAcl",
    "acl grant": "createAcl updateAcl copyAcl",
    "acl revoke": "deleteAcl",
    "spark traces": "queryMsgTraceById",
}
"""The commands of `mqadmin` by the command here."""
OURS = {word.lower(): ours for ours, theirs in NAMES.items() for word in theirs.split()}
"""The command here by that of `mqadmin` in lower case."""
