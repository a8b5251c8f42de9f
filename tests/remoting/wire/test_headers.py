"""The order of fields is part of the protocol: it is what a positional header means.

A row may grow at its end. Nothing else here may ever change.
"""

from __future__ import annotations

import pytest

from aerobee.remoting.wire.header import Header, fields_of
from aerobee.remoting.wire.headers import (
    admin,
    auth,
    cleanup,
    client,
    controller,
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
from tests.kit.strategies import HEADERS

ORDER: dict[type[Header], str] = {
    admin.GetBrokerConfig: "",
    admin.GetBrokerConfigResponse: "version",
    admin.GetBrokerRuntimeInfo: "",
    admin.GetTopicStatsInfo: "topic",
    admin.CloseClient: "clientId",
    admin.CloseClientResponse: "closed",
    admin.GetConsumerConnectionList: "consumerGroup",
    admin.GetProducerConnectionList: "producerGroup",
    admin.GetConsumeStats: "consumerGroup topic topicList history",
    admin.QueryTopicConsumeByWho: "topic",
    admin.QueryTopicsByConsumer: "group",
    admin.ViewBrokerStatsData: "statsName statsKey",
    auth.CreateUser: "username",
    auth.UpdateUser: "username",
    auth.DeleteUser: "username",
    auth.GetUser: "username",
    auth.ListUser: "filter",
    auth.CreateAcl: "subject",
    auth.UpdateAcl: "subject",
    auth.DeleteAcl: "subject policyType resource",
    auth.GetAcl: "subject",
    auth.ListAcl: "subjectFilter resourceFilter",
    send.SendMessage: "producerGroup topic defaultTopic defaultTopicQueueNums queueId sysFlag"
    " bornTimestamp flag properties reconsumeTimes unitMode maxReconsumeTimes batch bname",
    send.SendMessageV2: "a b c d e f g h i j k l m n",
    send.SendBatchMessage: "a b c d e f g h i j k l m n",
    send.SendMessageResponse: "msgId queueId queueOffset transactionId batchUniqId recallHandle"
    " MSG_REGION TRACE_ON",
    send.SendMessageRefused: "MSG_REGION TRACE_ON",
    send.RecallMessage: "producerGroup topic recallHandle",
    send.RecallMessageResponse: "msgId MSG_REGION",
    send.ConsumerSendMsgBack: "offset group delayLevel originMsgId originTopic unitMode"
    " maxReconsumeTimes",
    send.SendReplyMessage: "producerGroup topic defaultTopic defaultTopicQueueNums queueId sysFlag"
    " bornTimestamp flag properties reconsumeTimes unitMode maxReconsumeTimes batch bname",
    send.SendReplyMessageV2: "a b c d e f g h i j k l m n",
    send.PushReplyMessage: "producerGroup topic defaultTopic defaultTopicQueueNums queueId sysFlag"
    " bornTimestamp flag properties reconsumeTimes unitMode bornHost storeHost storeTimestamp",
    transaction.EndTransaction: "topic producerGroup tranStateTableOffset commitLogOffset"
    " commitOrRollback fromTransactionCheck msgId transactionId",
    transaction.CheckTransactionState: "topic commitLogOffset tranStateTableOffset msgId"
    " transactionId offsetMsgId bname",
    offset.GetAllDelayOffset: "",
    offset.ResetOffset: "topic group timestamp isForce queueId offset",
    offset.GetAllConsumerOffset: "",
    offset.CloneGroupOffset: "srcGroup destGroup topic offline",
    offset.ResetOffsetInClient: "topic group timestamp queueId isForce",
    pop.PopMessage: "consumerGroup topic queueId maxMsgNums invisibleTime pollTime bornTime"
    " initMode expType exp order attemptId",
    pop.PopMessageResponse: "popTime invisibleTime reviveQid restNum startOffsetInfo msgOffsetInfo"
    " orderCountInfo",
    pop.AckMessage: "consumerGroup topic queueId extraInfo offset",
    pop.BatchAckMessage: "",
    pop.ChangeInvisibleTime: "consumerGroup topic queueId extraInfo offset invisibleTime",
    pop.ChangeInvisibleTimeResponse: "popTime invisibleTime reviveQid",
    pop.PeekMessage: "consumerGroup topic queueId maxMsgNums",
    pop.Notification: "consumerGroup topic queueId pollTime bornTime order attemptId",
    pop.NotificationResponse: "hasMsg pollingFull",
    pop.PollingInfo: "consumerGroup topic queueId",
    pop.PollingInfoResponse: "pollingNum",
    pop.QueryAssignment: "",
    pop.SetMessageRequestMode: "",
    pop.GetAllMessageRequestMode: "",
    pull.PullMessage: "consumerGroup topic queueId queueOffset maxMsgNums sysFlag commitOffset"
    " suspendTimeoutMillis subscription subVersion expressionType maxMsgBytes requestSource"
    " proxyFrowardClientId bulkBytes",
    pull.LitePullMessage: "consumerGroup topic queueId queueOffset maxMsgNums sysFlag commitOffset"
    " suspendTimeoutMillis subscription subVersion expressionType maxMsgBytes requestSource"
    " proxyFrowardClientId bulkBytes",
    pull.PullAnswer: "suggestWhichBrokerId nextBeginOffset minOffset maxOffset",
    pull.PullMessageResponse: "suggestWhichBrokerId nextBeginOffset minOffset maxOffset offsetDelta"
    " topicSysFlag groupSysFlag forbiddenType",
    pull.PullMessageRefused: "forbiddenType",
    offset.OffsetResponse: "offset",
    offset.QueryConsumerOffset: "consumerGroup topic queueId setZeroIfNotFound",
    offset.QueryConsumerOffsetResponse: "offset",
    offset.UpdateConsumerOffset: "consumerGroup topic queueId commitOffset",
    offset.SearchOffset: "topic queueId timestamp boundaryType",
    offset.SearchOffsetResponse: "offset",
    offset.GetMaxOffset: "topic queueId committed",
    offset.GetMaxOffsetResponse: "offset",
    offset.GetMinOffset: "topic queueId",
    offset.GetMinOffsetResponse: "offset",
    offset.GetEarliestMessageStoreTime: "topic queueId",
    offset.GetEarliestMessageStoreTimeResponse: "timestamp",
    query.QueryMessage: "topic key maxNum beginTimestamp endTimestamp _UNIQUE_KEY_QUERY",
    query.QueryMessageResponse: "indexLastUpdateTimestamp indexLastUpdatePhyoffset",
    query.ViewMessageById: "offset topic",
    client.Heartbeat: "",
    client.HeartbeatResponse: "IS_SUPPORT_HEART_BEAT_V2 IS_SUB_CHANGE",
    client.UnregisterClient: "clientID producerGroup consumerGroup",
    client.CheckClientConfig: "",
    client.GetConsumerListByGroup: "consumerGroup",
    client.NotifyConsumerIdsChanged: "consumerGroup",
    client.LockBatchMq: "",
    client.UnlockBatchMq: "",
    topic.CreateTopic: "topic defaultTopic readQueueNums writeQueueNums perm topicFilterType"
    " topicSysFlag order attributes force",
    topic.GetAllTopicConfig: "topicSeq dataVersion maxTopicNum",
    topic.GetAllTopicConfigResponse: "totalTopicNum",
    topic.GetTopicConfig: "topic",
    topic.DeleteTopicInBroker: "topic",
    topic.CreateTopics: "",
    topic.GetSystemTopicsOfBroker: "",
    group.CreateGroup: "",
    group.GetAllGroupConfig: "groupSeq dataVersion maxGroupNum",
    group.GetAllGroupConfigResponse: "totalGroupNum",
    group.DeleteGroup: "groupName cleanOffset removeOffset",
    group.GetGroupConfig: "group",
    group.CreateGroups: "",
    group.UpdateGroupForbidden: "group topic readable",
    admin.UpdateBrokerConfig: "",
    controller.AlterSyncStateSet: "brokerName masterBrokerId masterEpoch",
    controller.AlterSyncStateSetResponse: "newSyncStateSetEpoch",
    controller.ElectMaster: "clusterName brokerName brokerId designateElect",
    controller.RegisterBrokerToController: "clusterName brokerName brokerId brokerAddress",
    controller.GetReplicaInfo: "brokerName",
    controller.GetReplicaInfoResponse: "masterBrokerId masterAddress masterEpoch",
    controller.GetMetadataInfo: "",
    controller.GetMetadataInfoResponse: "group controllerLeaderId controllerLeaderAddress"
    " isLeader peers",
    controller.GetSyncStateData: "",
    controller.GetBrokerEpochCache: "",
    controller.NotifyBrokerRoleChanged: "masterAddress masterEpoch syncStateSetEpoch"
    " masterBrokerId",
    controller.GetControllerConfig: "",
    controller.GetNextBrokerId: "clusterName brokerName",
    controller.GetNextBrokerIdResponse: "clusterName brokerName nextBrokerId",
    controller.ApplyBrokerId: "clusterName brokerName appliedBrokerId registerCheckCode",
    namesrv.GetNamesrvConfig: "",
    namesrv.UpdateNamesrvConfig: "",
    admin.GetAllProducerInfo: "",
    admin.GetConsumerRunningInfo: "consumerGroup clientId jstackEnable",
    admin.GetConsumerStatusFromClient: "topic group",
    admin.ConsumeMessageDirectly: "consumerGroup clientId msgId brokerName topic topicSysFlag"
    " groupSysFlag",
    admin.GetBrokerConsumeStats: "isOrder",
    admin.GetBrokerHaStatus: "",
    admin.ExchangeBrokerHaInfo: "masterAddress masterFlushOffset masterHaAddress",
    admin.ExchangeBrokerHaInfoResponse: "masterAddress masterFlushOffset masterHaAddress",
    admin.ResetMasterFlushOffset: "masterFlushOffset",
    admin.GetTimerCheckPoint: "",
    admin.GetTimerMetrics: "",
    admin.Promote: "accepted offset",
    admin.PromoteResponse: "maxOffset epoch",
    admin.Switch: "to checkOnly",
    admin.SwitchResponse: "maxOffset epoch pausedMs",
    admin.Follow: "master checkOnly cut",
    admin.FollowResponse: "epoch maxOffset commonOffset messages sizeBytes keptIn refused",
    admin.QueryConsumeQueue: "topic queueId index count consumerGroup",
    admin.QueryConsumeTimeSpan: "topic group",
    admin.QuerySubscriptionByConsumer: "group topic",
    cleanup.CleanExpiredConsumeQueue: "",
    cleanup.CleanUnusedTopic: "",
    cleanup.DeleteExpiredCommitLog: "",
    namesrv.GetRouteInfo: "topic acceptStandardJsonOnly __ZONE_MODE __ZONE_NAME",
    namesrv.RegisterBroker: "brokerName brokerAddr clusterName haServerAddr brokerId"
    " heartbeatTimeoutMillis enableActingMaster compressed bodyCrc32 __ZONE_NAME",
    namesrv.RegisterBrokerResponse: "haServerAddr masterAddr",
    namesrv.UnregisterBroker: "brokerName brokerAddr clusterName brokerId",
    namesrv.QueryDataVersion: "brokerName brokerAddr clusterName brokerId",
    namesrv.QueryDataVersionResponse: "changed",
    namesrv.BrokerHeartbeat: "clusterName brokerAddr brokerName brokerId epoch maxOffset"
    " confirmOffset heartbeatTimeoutMills electionPriority",
    namesrv.GetBrokerMemberGroup: "clusterName brokerName",
    namesrv.NotifyMinBrokerIdChange: "minBrokerId brokerName minBrokerAddr offlineBrokerAddr"
    " haBrokerAddr",
    namesrv.GetUnitTopicList: "",
    namesrv.GetHasUnitSubTopicList: "",
    namesrv.GetHasUnitSubUnunitTopicList: "",
    namesrv.RegisterTopicInNamesrv: "topic",
    namesrv.GetBrokerClusterInfo: "",
    namesrv.GetAllTopicList: "",
    namesrv.GetTopicsByCluster: "cluster",
    namesrv.GetSystemTopicListFromNs: "",
    namesrv.WipeWritePermOfBroker: "brokerName",
    namesrv.WipeWritePermOfBrokerResponse: "wipeTopicCount",
    namesrv.AddWritePermOfBroker: "brokerName",
    namesrv.AddWritePermOfBrokerResponse: "addTopicCount",
    namesrv.DeleteTopicInNamesrv: "topic clusterName",
    namesrv.PutKvConfig: "namespace key value",
    namesrv.GetKvConfig: "namespace key",
    namesrv.GetKvConfigResponse: "value",
    namesrv.DeleteKvConfig: "namespace key",
    namesrv.GetKvListByNamespace: "namespace",
}


@pytest.mark.parametrize("cls", HEADERS, ids=lambda cls: cls.__name__)
def test_fields_stand_in_the_order_of_the_protocol(cls: type[Header]) -> None:
    assert " ".join(field.name for field in fields_of(cls)) == ORDER[cls]


REQUIRED = {
    send.SendMessageV2: "a b c d e f g h",
    pull.PullMessage: "consumerGroup topic queueId queueOffset maxMsgNums sysFlag commitOffset"
    " suspendTimeoutMillis subVersion",
    pull.PullAnswer: "suggestWhichBrokerId nextBeginOffset minOffset maxOffset",
    pull.PullMessageResponse: "suggestWhichBrokerId nextBeginOffset minOffset maxOffset",
    send.SendMessageResponse: "msgId queueId queueOffset",
    offset.QueryConsumerOffset: "consumerGroup topic queueId",
    topic.CreateTopic: "topic defaultTopic readQueueNums writeQueueNums perm topicFilterType order",
    namesrv.RegisterBroker: "brokerName brokerAddr clusterName haServerAddr brokerId",
}


@pytest.mark.parametrize("cls", REQUIRED, ids=lambda cls: cls.__name__)
def test_what_is_required_is_what_java_requires(cls: type[Header]) -> None:
    required = [field.name for field in fields_of(cls) if field.required]
    assert " ".join(required) == REQUIRED[cls]
