"""What administrators want gone from the disk. No fields. Source: admin §4.1."""

from __future__ import annotations

from aerobee.remoting.wire.codes import RequestCode
from aerobee.remoting.wire.header import Header

__all__ = ["CleanExpiredConsumeQueue", "CleanUnusedTopic", "DeleteExpiredCommitLog"]


class CleanExpiredConsumeQueue(Header):
    """CLEAN_EXPIRED_CONSUMEQUEUE (306): queues none of whose messages is left."""

    code = RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE


class CleanUnusedTopic(Header):
    """CLEAN_UNUSED_TOPIC (316): queues of topics that are no more."""

    code = RequestCode.CLEAN_UNUSED_TOPIC


class DeleteExpiredCommitLog(Header):
    """DELETE_EXPIRED_COMMITLOG (329): expired segments, whatever the hour is."""

    code = RequestCode.DELETE_EXPIRED_COMMITLOG
