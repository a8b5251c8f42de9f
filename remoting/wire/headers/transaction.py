"""The end of a transaction, and the check of an open one. Source: remoting §3.10."""

from __future__ import annotations

from aerobee.remoting.wire.codes import RequestCode
from aerobee.remoting.wire.header import I32, I64, Header, wire


class EndTransaction(Header, kw_only=True):
    """END_TRANSACTION (37). `commit_or_rollback` holds transaction bits of a sysFlag, or 0.

    `tran_state_table_offset` is the half's queue offset, `commit_log_offset` its physical offset.
    """

    code = RequestCode.END_TRANSACTION
    topic: str | None = None
    producer_group: str
    tran_state_table_offset: I64
    commit_log_offset: I64
    commit_or_rollback: I32
    from_transaction_check: bool | None = None
    msg_id: str
    transaction_id: str | None = None


class CheckTransactionState(Header, kw_only=True):
    """CHECK_TRANSACTION_STATE (39), from the broker: commit or roll back? The body is the half."""

    code = RequestCode.CHECK_TRANSACTION_STATE
    topic: str | None = None
    commit_log_offset: I64
    tran_state_table_offset: I64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    broker_name: str | None = wire("bname", default=None)
