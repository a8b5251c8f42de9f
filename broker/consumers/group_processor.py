"""Administration of consumer groups: create or change, read, list, delete.

A change is answered when the table is on disk. Source: admin §4.1 (AdminBrokerProcessor).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
import structlog

from aerobee.broker.changes import ChangeAnswer, change, changes_of
from aerobee.broker.consumers.consumer_offsets import check_not_own
from aerobee.broker.core.lists import encoded_table
from aerobee.broker.core.names import GROUP_MAX_CHARS, check_group, check_topic
from aerobee.broker.errors import Refusal
from aerobee.broker.topics.attributes import edited_of_group
from aerobee.broker.topics.topic_processor import (
    PAGE,
    PageRequest,
    TableFile,
    TableFiles,
    once_saved,
    page_of,
    undisturbed,
    when_saved,
)
from aerobee.remoting.server.routes import PendingAnswer
from aerobee.remoting.wire import relaxed_json
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.bodies.group import (
    GroupForbidden,
    SubscriptionGroupConfig,
    SubscriptionGroupConfigs,
)
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers import group as headers

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from aerobee.broker.consumers.consumer_offsets import ConsumerOffsetTable
    from aerobee.broker.consumers.groups import GroupTable
    from aerobee.broker.counters.broker_stats import BrokerStats
    from aerobee.remoting.server.caller import Caller
    from aerobee.remoting.server.routes import Outcome, Plain, Steps
    from aerobee.remoting.wire.command import Command
    from aerobee.store.clock import Clock

CONFIG_BYTES_MAX: Final = 16 << 10
CONFIG_DEPTH_MAX: Final = 32
"""In the table's file it is nested some levels deeper, and the file must be readable."""

I32_MAX: Final = (1 << 31) - 1
Id = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Millis = Id

log = structlog.stdlib.get_logger(__name__)


class CustomizedRetry(msgspec.Struct):
    """The delays of the retries, in ms, one for each try."""

    next: list[Millis] | None = None


class ExponentialRetry(msgspec.Struct):
    """Delays that grow: the first one, the factor, and the longest one."""

    initial: Millis | None = None
    max: Millis | None = None
    multiplier: Id | None = None


class RetryPolicy(msgspec.Struct, rename="camel"):
    """The known fields of a retry policy; newer clients may send more."""

    type: Literal["CUSTOMIZED", "EXPONENTIAL"] | None = None
    customized_retry_policy: CustomizedRetry | None = None
    exponential_retry_policy: ExponentialRetry | None = None


class GroupRanges(msgspec.Struct, rename="camel"):
    """The ranges of the numbers of a config, in Java's types; a file may hold others."""

    retry_queue_nums: Annotated[int, msgspec.Meta(ge=0, le=1_024)]
    retry_max_times: Annotated[int, msgspec.Meta(ge=-1, le=I32_MAX)]
    consume_timeout_minute: Annotated[int, msgspec.Meta(ge=0, le=I32_MAX)]
    group_sys_flag: Annotated[int, msgspec.Meta(ge=0, le=I32_MAX)]
    broker_id: Id
    which_broker_when_consume_slowly: Id
    group_retry_policy: RetryPolicy


class GroupProcessor:
    """Codes 200, 201, 207, 225, 352 and 353."""

    def __init__(
        self,
        *,
        groups: GroupTable,
        offsets: ConsumerOffsetTable,
        saved: TableFile,
        changing: TableFiles,
        stats: BrokerStats,
        clock: Clock,
        page: int = PAGE,
    ) -> None:
        self.groups = groups
        self.offsets = offsets
        self.saved = saved
        self.changing = changing
        self.stats = stats
        self.clock = clock
        self.page = page
        self.when_deleted: list[Callable[[str], None]] = []
        """Called with each deleted group."""

    def update(self, header: headers.CreateGroup, command: Command, connection: Caller) -> Outcome:
        """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP; an equal config changes nothing."""
        wanted = SubscriptionGroupConfig.from_client(command.body)
        return self.stats.group_creations.measured(
            lambda: self._update(wanted, connection), self.clock
        )

    def _update(self, wanted: SubscriptionGroupConfig, connection: Caller) -> Plain:
        wanted = self._edited(wanted)
        check_config(wanted)
        name = wanted.group_name
        before = self.groups.get(name)
        if not self.groups.update(wanted, self.clock.now_ms()):
            return self.done()
        log.info("group.configured", group=name, address=connection.address)
        return self.done(change(name, before, self.groups.get(name)))

    def update_all(
        self, header: headers.CreateGroups, command: Command, connection: Caller
    ) -> Steps:
        """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: all of them, or none when one is refused."""
        configs = SubscriptionGroupConfigs.from_client(command.body).group_config_list
        get = self.groups.get
        before, wanted = yield from undisturbed(partial(self._all_edited, configs), get)
        changed = self.groups.put_all(wanted, self.clock.now_ms())
        if changed:
            log.info("group.list_updated", groups=len(changed), address=connection.address)
        return self.done(changes_of([(name, before[name], get(name)) for name in changed]))

    def _all_edited(
        self, configs: list[SubscriptionGroupConfig]
    ) -> Generator[
        None,
        None,
        tuple[Mapping[str, SubscriptionGroupConfig | None], list[SubscriptionGroupConfig]],
    ]:
        """The configs that the groups have, and those that they are to have. Raises: Refusal."""
        before, wanted = {}, []
        for config in configs:
            check_group(config.group_name)
            before[config.group_name] = self.groups.get(config.group_name)
            wanted.append(self._edited(config))
            check_config(wanted[-1])
            yield
        return before, wanted

    def _edited(self, wanted: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
        """A config with the attributes that the group has after this. Raises: AttributesIllegal."""
        before = self.groups.get(wanted.group_name)
        current = {} if before is None else before.attributes
        if not (current or wanted.attributes):
            return wanted
        attributes = edited_of_group(current, wanted.attributes)
        return msgspec.structs.replace(wanted, attributes=attributes)

    async def forbid(
        self, header: headers.UpdateGroupForbidden, command: Command, connection: Caller
    ) -> Answer:
        """UPDATE_AND_GET_GROUP_FORBIDDEN: allow or forbid the group to read the topic. Neither has
        to exist yet, and neither is created.
        """
        if self.groups.get(header.group) is None:
            check_group(header.group)
        check_topic(header.topic)
        before = self.groups.may_read(header.group, header.topic)
        if header.readable is not None:
            self.groups.forbid_read(
                header.group, header.topic, not header.readable, self.clock.now_ms()
            )
            await when_saved(self.saved, "group")
        readable = self.groups.may_read(header.group, header.topic)
        body = GroupForbidden(group=header.group, topic=header.topic, readable=readable)
        answer = change(
            f"{header.group}/{header.topic}", {"readable": before}, {"readable": readable}
        )
        return ChangeAnswer(body=body.to_bytes(), changes=answer)

    def delete(self, header: headers.DeleteGroup, command: Command, connection: Caller) -> Outcome:
        """DELETE_SUBSCRIPTIONGROUP; its retry and dead-letter topics stay."""
        name = header.group_name
        check_not_own(name)
        before = self.groups.get(name)
        if self.groups.delete(name, self.clock.now_ms()):
            log.info("group.deleted", group=name, address=connection.address)
        cleaned = header.clean_offset or header.remove_offset
        if cleaned:
            self.offsets.delete_group(name)
        self.stats.forget_group(name)
        for forget in self.when_deleted:
            forget(name)
        changes = change(name, before, None)
        return PendingAnswer(self._cleaned(changes)) if cleaned else self.done(changes)

    async def _cleaned(self, changes: str) -> Answer:
        """Wait until a kill brings back neither the group nor its offsets."""
        await when_saved(self.changing, "deletion")
        return await when_saved(self.saved, "group", ChangeAnswer(changes=changes))

    def done(self, changes: str = "") -> Plain:
        """Wait for the disk, also without a change: an earlier one may not be saved yet."""
        answer = ChangeAnswer(changes=changes)
        return answer if self.saved.clean else once_saved(self.saved, "group", answer)

    def config(
        self, header: headers.GetGroupConfig, command: Command, connection: Caller
    ) -> Answer:
        """GET_SUBSCRIPTIONGROUP_CONFIG: one group; an unknown one is created where using one
        creates it, as with Java's broker.
        """
        config = self.groups.require(header.group, self.clock.now_ms())
        return Answer(body=msgspec.json.encode(config))

    def all_configs(
        self, header: headers.GetAllGroupConfig, command: Command, connection: Caller
    ) -> Steps:
        """GET_ALL_SUBSCRIPTIONGROUP_CONFIG: every group, or one page of them."""
        document = self.groups.document()
        table = document.pop("subscriptionGroupTable")
        page = PageRequest(header.group_seq, header.data_version, header.max_group_num)
        configs = page_of(table, page, self.groups.version, self.page)
        total = headers.GetAllGroupConfigResponse(total_group_num=len(table))
        around = msgspec.json.encode(document)
        body = yield from encoded_table(configs)
        return Answer(header=total, body=around[:-1] + b',"subscriptionGroupTable":' + body + b"}")


def check_config(config: SubscriptionGroupConfig) -> None:
    """Refuse a config whose free-form parts are too large, or nested too deeply to be read again.

    Raises: Refusal.
    """
    text = config.to_bytes()
    if len(text) > CONFIG_BYTES_MAX:
        raise unfit(config, f"has {len(text)} bytes, at most {CONFIG_BYTES_MAX} are taken")
    try:
        relaxed_json.check_depth(text, CONFIG_DEPTH_MAX)
    except ValueError as error:
        raise unfit(config, f"is {error}") from error
    if relaxed_json.REFERENCE_KEY in text:
        # In the list of all groups it would stand for another part of that list.
        raise unfit(config, 'has a key "$ref", which readers take for a reference')
    try:
        msgspec.convert(msgspec.to_builtins(config), GroupRanges, strict=False)
    except msgspec.ValidationError as error:
        raise unfit(config, f"is not valid: {error}") from error


def unfit(config: SubscriptionGroupConfig, why: str) -> Refusal:
    """The refusal of a config."""
    name = config.group_name[:GROUP_MAX_CHARS]
    return Refusal(ResponseCode.INVALID_PARAMETER, f"the config of group [{name}] {why}")
