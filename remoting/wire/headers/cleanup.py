"""Deletion of unused files by hand. No fields. Source: admin §4.1."""

from __future__ import annotations

from aerobee.remoting.wire.codes import RequestCode
from aerobee.remoting.wire.header import Header


class CleanExpiredConsumeQueue(Header):
    """CLEAN_EXPIRED_CONSUMEQUEUE (306): delete queues without messages in the log."""

    code = RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE


class CleanUnusedTopic(Header):
    """CLEAN_UNUSED_TOPIC (316): delete the queues of deleted topics."""

    code = RequestCode.CLEAN_UNUSED_TOPIC


class DeleteExpiredCommitLog(Header):
    """DELETE_EXPIRED_COMMITLOG (329): delete expired segments, at any hour."""

    code = RequestCode.DELETE_EXPIRED_COMMITLOG
