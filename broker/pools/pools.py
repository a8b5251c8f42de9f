"""The processor pools of RocketMQ, by name, sized by their settings. Source: semantics §21.1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aerobee.remoting.server.pools import Pool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aerobee.remoting.config import RemotingConfig

SIZES: Final = {
    # name: (width, capacity, longest wait in ms; None = never shed for age)
    "send": (
        "send_message_thread_pool_nums",
        "send_thread_pool_queue_capacity",
        "wait_time_mills_in_send_queue",
    ),
    "pull": (
        "pull_message_thread_pool_nums",
        "pull_thread_pool_queue_capacity",
        "wait_time_mills_in_pull_queue",
    ),
    "lite_pull": (
        "lite_pull_message_thread_pool_nums",
        "lite_pull_thread_pool_queue_capacity",
        "wait_time_mills_in_lite_pull_queue",
    ),
    "ack": (
        "ack_message_thread_pool_nums",
        "ack_thread_pool_queue_capacity",
        "wait_time_mills_in_ack_queue",
    ),
    "transaction": (
        "end_transaction_thread_pool_nums",
        "end_transaction_pool_queue_capacity",
        "wait_time_mills_in_transaction_queue",
    ),
    "reply": (
        "process_reply_message_thread_pool_nums",
        "reply_thread_pool_queue_capacity",
        None,
    ),
    "query": ("query_message_thread_pool_nums", "query_thread_pool_queue_capacity", None),
    "heartbeat": (
        "heartbeat_thread_pool_nums",
        "heartbeat_thread_pool_queue_capacity",
        "wait_time_mills_in_heartbeat_queue",
    ),
    "client_manager": (
        "client_manage_thread_pool_nums",
        "client_manager_thread_pool_queue_capacity",
        None,
    ),
    "consumer_manager": (
        "consumer_manage_thread_pool_nums",
        "consumer_manager_thread_pool_queue_capacity",
        None,
    ),
    "load_balance": (
        "load_balance_processor_thread_pool_nums",
        "load_balance_thread_pool_queue_capacity",
        None,
    ),
    "admin": (
        "admin_broker_thread_pool_nums",
        "admin_broker_thread_pool_queue_capacity",
        "wait_time_mills_in_admin_broker_queue",
    ),
}


def make_pools(config: RemotingConfig) -> dict[str, Pool]:
    """One pool per line of the table; without `brokerFastFailureEnable` nothing is shed for age."""
    return {
        name: Pool(
            name,
            width=getattr(config, width),
            capacity=getattr(config, capacity),
            max_wait_ms=_wait_ms(config, wait),
        )
        for name, (width, capacity, wait) in SIZES.items()
    }


def set_waits(pools: Mapping[str, Pool], config: RemotingConfig) -> None:
    """How long a request may wait in each pool: settings that may change while running."""
    for name, (_, _, wait) in SIZES.items():
        pools[name].allow_wait(_wait_ms(config, wait))


def _wait_ms(config: RemotingConfig, key: str | None) -> int | None:
    if key is None or not config.broker_fast_failure_enable:
        return None
    return int(getattr(config, key))
