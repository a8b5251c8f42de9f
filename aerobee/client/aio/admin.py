"""The async admin client: one method for each function of `steps.admin`, which decides."""

from __future__ import annotations

from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack

from aerobee.client.aio.part import Part
from aerobee.client.steps.admin import brokers as broker_steps
from aerobee.client.steps.admin import clients as client_steps
from aerobee.client.steps.admin import consumption as consumption_steps
from aerobee.client.steps.admin import definitions as definition_steps
from aerobee.client.steps.admin import diagnosing as diagnosing_steps
from aerobee.client.steps.admin import groups as group_steps
from aerobee.client.steps.admin import messages as message_steps
from aerobee.client.steps.admin import name_servers as name_server_steps
from aerobee.client.steps.admin import offsets as offset_steps
from aerobee.client.steps.admin import replication as replication_steps
from aerobee.client.steps.admin import topics as topic_steps
from aerobee.client.steps.admin import users as user_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from aerobee.client.aio.client import Client
    from aerobee.client.settings.client import ClientOptions
    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.routes import Routes

P = ParamSpec("P")
T = TypeVar("T")


def method(
    steps: Callable[Concatenate[Routes, P], Steps[T]],
) -> Callable[Concatenate[AdminClient, P], Coroutine[Any, Any, T]]:
    """The method that runs the steps, with their parameters, defaults and docstring."""

    async def run_steps(self: AdminClient, /, *args: P.args, **named: P.kwargs) -> T:
        return await self._perform(steps(self._client.instance, *args, **named))

    update_wrapper(run_steps, steps)
    return run_steps


class AdminClient(Part):
    """Administers a cluster: topics, groups, offsets, messages, clients, brokers.

    The values that it returns are those of `aerobee.admin`.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        client: Client | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        super().__init__(namesrv, client, options)
        self._left_out: frozenset[str] = frozenset()

    async def _perform(self, steps: Steps[T]) -> T:
        if self._left_out:
            steps = broker_steps.leaving_out(self._client.instance, self._left_out, steps)
        return await super()._perform(steps)

    # ── Topics ──

    topics = method(topic_steps.topics)
    system_topics = method(topic_steps.system_topics)
    topic_configs = method(topic_steps.topic_configs)
    describe_topic = method(topic_steps.describe_topic)
    topic_groups = method(topic_steps.topic_groups)
    create_topic = method(topic_steps.create_topic)
    change_topic = method(topic_steps.change_topic)
    delete_topic = method(topic_steps.delete_topic)

    # ── Groups ──

    groups = method(group_steps.groups)
    describe_group = method(group_steps.describe_group)
    group_topics = method(group_steps.group_topics)
    create_group = method(group_steps.create_group)
    enable_group = method(group_steps.enable_group)
    limit_group = method(group_steps.limit_group)
    delete_group = method(group_steps.delete_group)
    consumer_lag = method(group_steps.consumer_lag)
    all_consumer_lag = method(group_steps.all_consumer_lag)
    lag_history = method(group_steps.lag_history)
    consume_time_spans = method(group_steps.consume_time_spans)
    request_modes = method(consumption_steps.request_modes)
    set_request_mode = method(consumption_steps.set_request_mode)
    readable = method(consumption_steps.readable)
    set_readable = method(consumption_steps.set_readable)
    diagnose_group = method(diagnosing_steps.diagnose_group)

    # ── Offsets ──

    committed_offsets = method(offset_steps.committed_offsets)
    offsets_for_time = method(offset_steps.offsets_for_time)
    reset_offsets = method(offset_steps.reset_offsets)
    clone_offsets = method(offset_steps.clone_offsets)

    # ── Messages ──

    view_message = method(message_steps.view_message)
    query_messages = method(message_steps.query_messages)
    message_at = method(message_steps.message_at)
    read_messages = method(message_steps.read_messages)
    find_messages = method(message_steps.find_messages)
    queue_units = method(message_steps.queue_units)
    explain_message = method(diagnosing_steps.explain_message)
    explain_messages = method(diagnosing_steps.explain_messages)

    # ── Clients ──

    consumers = method(client_steps.consumers)
    producers = method(client_steps.producers)
    all_producers = method(client_steps.all_producers)
    close_client = method(client_steps.close_client)
    running_info = method(client_steps.running_info)
    consume_directly = method(client_steps.consume_directly)

    # ── Brokers ──

    async def leave_out(self, brokers: Iterable[str]) -> None:
        """Ask the brokers at these addresses nothing from now on: what is about all brokers is then
        about the others. For brokers that do not answer; an empty list asks all of them again. A
        name stands for the master that a broker has not: only slaves of it are registered.

        Others at the same client ask them as before.
        """
        self._left_out = frozenset(brokers)

    cluster_info = method(broker_steps.cluster_info)
    broker_config = method(broker_steps.broker_config)
    update_broker_config = method(broker_steps.update_broker_config)
    broker_stats = method(broker_steps.broker_stats)
    stats_item = method(broker_steps.stats_item)
    delete_expired_files = method(broker_steps.delete_expired_files)
    delete_expired_queues = method(broker_steps.delete_expired_queues)
    clean_unused_topics = method(broker_steps.clean_unused_topics)
    replication_status = method(replication_steps.replication_status)
    promote = method(replication_steps.promote)
    switch = method(replication_steps.switch)
    follow = method(replication_steps.follow)

    # ── Name servers ──

    kv = method(name_server_steps.kv)
    put_kv = method(name_server_steps.put_kv)
    delete_kv = method(name_server_steps.delete_kv)
    set_write_permission = method(name_server_steps.set_write_permission)

    # ── Users ──

    users = method(user_steps.users)
    create_user = method(user_steps.create_user)
    change_user = method(user_steps.change_user)
    delete_user = method(user_steps.delete_user)
    acl = method(user_steps.acl)
    grant = method(user_steps.grant)
    revoke = method(user_steps.revoke)

    # ── Definitions ──

    topic_definitions = method(definition_steps.topic_definitions)
    group_definitions = method(definition_steps.group_definitions)
    define_topic = method(definition_steps.define_topic)
    define_group = method(definition_steps.define_group)
