"""Administration of topics: create or change, read, list.

The creation of a topic is answered when the table is on disk. Source: admin §4.1, semantics §4.4
(AdminBrokerProcessor).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

import msgspec
import structlog

from aerobee.broker.changes import ChangeAnswer, change, changes_of
from aerobee.broker.core.lists import encoded_table
from aerobee.broker.errors import Refusal, TopicNotExist
from aerobee.broker.topics.attributes import parse_edits, signed_edits
from aerobee.remoting.server.routes import PendingAnswer
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.bodies.topic import (
    TopicConfig,
    TopicConfigs,
    TopicConfigSerializeWrapper,
    TopicList,
)
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers import topic as headers

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from aerobee.broker.counters.creation_times import CreationTimes
    from aerobee.broker.topics.topics import TopicTable
    from aerobee.remoting.server.caller import Caller
    from aerobee.remoting.server.routes import Outcome, Plain, Steps
    from aerobee.remoting.wire.bodies.data_version import DataVersion
    from aerobee.remoting.wire.command import Command
    from aerobee.store.clock import Clock

DONE: Final = Answer()
PAGE: Final = 2_000
"""Topics, or groups, in one answer to a client that asks by pages."""
T = TypeVar("T")
C = TypeVar("C")
W = TypeVar("W")

log = structlog.stdlib.get_logger(__name__)


class TableFiles(Protocol):
    """The files of one or more tables."""

    async def catch_up(self) -> None: ...


class TableFile(TableFiles, Protocol):
    """The topic table's file."""

    @property
    def clean(self) -> bool: ...


class TopicProcessor:
    """Codes 17, 18, 21, 305 and 351."""

    def __init__(
        self,
        *,
        topics: TopicTable,
        saved: TableFile,
        clock: Clock,
        times: CreationTimes,
        page: int = PAGE,
    ) -> None:
        self.topics = topics
        self.saved = saved
        self.clock = clock
        self.times = times
        self.page = page

    def update(self, header: headers.CreateTopic, command: Command, connection: Caller) -> Outcome:
        """UPDATE_AND_CREATE_TOPIC; a config equal to the stored one changes nothing."""
        system = self.topics.is_system(header.topic)
        return self.times.measured(
            lambda: self._update(header, connection), self.clock, system=system
        )

    def _update(self, header: headers.CreateTopic, connection: Caller) -> Plain:
        wanted = TopicConfig(
            topic_name=header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_filter_type=header.topic_filter_type,
            topic_sys_flag=header.topic_sys_flag or 0,
            order=header.order,
        )
        before = self.topics.get(header.topic)
        edits = parse_edits(header.attributes)
        answer = DONE
        if self.topics.update(wanted, edits, self.clock.now_ms()):
            answer = ChangeAnswer(
                changes=change(header.topic, before, self.topics.get(header.topic))
            )
            if before is None:
                log.info("topic.created", topic=header.topic, address=connection.address)
            else:
                log.info("topic.changed", topic=header.topic, address=connection.address)
        # Wait for the disk, also without a change: an earlier one may not be saved yet.
        return answer if self.saved.clean else once_saved(self.saved, "topic", answer)

    def update_all(
        self, header: headers.CreateTopics, command: Command, connection: Caller
    ) -> Steps:
        """UPDATE_AND_CREATE_TOPIC_LIST: all of them, or none when one is refused.

        The Java broker stops at the first unchanged topic, and answers success.
        """
        wanted = TopicConfigs.from_client(command.body).topic_config_list
        before, configs = yield from undisturbed(partial(self._edited, wanted), self.topics.get)
        changed = self.topics.put_all(configs.values(), self.clock.now_ms())
        answer = ChangeAnswer(
            changes=changes_of([(name, before[name], configs[name]) for name in changed])
        )
        if changed:
            log.info("topic.list_updated", topics=len(changed), address=connection.address)
        return answer if self.saved.clean else once_saved(self.saved, "topics", answer)

    def _edited(
        self, wanted: list[TopicConfig]
    ) -> Generator[None, None, tuple[Mapping[str, TopicConfig | None], dict[str, TopicConfig]]]:
        """The configs that the topics have now, and those that they are to have."""
        before: dict[str, TopicConfig | None] = {}
        configs: dict[str, TopicConfig] = {}
        for config in wanted:
            name, edits = config.topic_name, signed_edits(config.attributes)
            known = configs.get(name) or before.setdefault(name, self.topics.get(name))
            configs[name] = self.topics.edited(config, edits, known)
            yield
        return before, configs

    def system_topics(
        self, header: headers.GetSystemTopicsOfBroker, command: Command, connection: Caller
    ) -> Answer:
        """GET_SYSTEM_TOPIC_LIST_FROM_BROKER: the broker's own topics."""
        return Answer(body=TopicList(topic_list=sorted(self.topics.system)).to_bytes())

    def config(
        self, header: headers.GetTopicConfig, command: Command, connection: Caller
    ) -> Answer:
        """GET_TOPIC_CONFIG: one topic."""
        config = self.topics.get(header.topic)
        if config is None:
            raise TopicNotExist(header.topic)
        return Answer(body=msgspec.json.encode(config))

    def all_configs(
        self, header: headers.GetAllTopicConfig, command: Command, connection: Caller
    ) -> Steps:
        """GET_ALL_TOPIC_CONFIG: every topic, or one page of them."""
        table = self.topics.configs
        page = PageRequest(header.topic_seq, header.data_version, header.max_topic_num)
        configs = page_of(table, page, self.topics.version, self.page)
        total = headers.GetAllTopicConfigResponse(total_topic_num=len(table))
        around = TopicConfigSerializeWrapper(data_version=self.topics.version).to_bytes()
        before, name, behind = around.partition(b'"topicConfigTable":')
        body = yield from encoded_table(configs)
        return Answer(header=total, body=before + name + body + behind.removeprefix(b"{}"))


def undisturbed(
    edit: Callable[[], Generator[None, None, tuple[Mapping[str, C | None], W]]],
    get: Callable[[str], C | None],
) -> Generator[None, None, tuple[Mapping[str, C | None], W]]:
    """The result of an edit in steps, begun again where others change meanwhile what it is made of.

    `edit` gives the configs that it began with, as `get` has them, and those that are wanted.
    """
    while True:
        before, wanted = yield from edit()
        if all(get(name) is config for name, config in before.items()):
            return before, wanted


async def when_saved(saved: TableFiles, what: str, answer: Answer = DONE) -> Answer:
    """The answer, once the table as it is now is durable. Raises: Refusal."""
    try:
        await saved.catch_up()
    except OSError as error:
        raise Refusal(
            ResponseCode.SYSTEM_ERROR,
            f"the {what} is served but could not be saved: {error.strerror or error}",
        ) from error
    return answer


def once_saved(saved: TableFiles, what: str, answer: Answer = DONE) -> PendingAnswer:
    """The work of `when_saved` for a change that a handler has made: that is in force, however late
    its answer is.
    """
    return PendingAnswer(when_saved(saved, what, answer))


class PageRequest(NamedTuple):
    """The part of a table that a client asks for; by default all of it."""

    first: int | None = None
    data_version: str | None = None
    number: int | None = None


def page_of(
    table: Mapping[str, T],
    request: PageRequest,
    version: DataVersion,
    page: int,
) -> dict[str, T]:
    """The entries of the requested page.

    A client that names no page gets everything; one with an outdated data version starts again.
    """
    first, data_version, wanted = request
    if request == PageRequest():
        return dict(table)
    begin = max(0, first or 0)
    if begin and not same_version(data_version, version):
        begin = 0
    size = min(wanted, page) if wanted and wanted > 0 else page
    return {name: table[name] for name in sorted(table)[begin : begin + size]}


def same_version(text: str | None, version: DataVersion) -> bool:
    """Whether a data version, as JSON text, is this one."""
    if not text:
        return False
    try:
        return msgspec.json.decode(text, type=type(version), strict=False) == version
    except msgspec.MsgspecError:
        return False
