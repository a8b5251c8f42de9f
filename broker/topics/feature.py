"""Topics: their table with queues, permissions and attributes; creation, lists, saving."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from aerobee.broker.core.feature import Feature
from aerobee.broker.saved.save import SavedTable
from aerobee.broker.topics.topic_processor import TopicProcessor
from aerobee.broker.topics.topics_file import TopicsFile
from aerobee.remoting.server.routes import Route, finished
from aerobee.remoting.wire.headers import topic as headers
from aerobee.store.errors import StoreDamaged, StoreForeign
from aerobee.store.format.names import OLD_TABLES
from aerobee.store.recovery.start_check import lost_tables

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence
    from pathlib import Path

    from aerobee.broker.core.core import Core
    from aerobee.broker.topics.topics import TopicTable
    from aerobee.store.results import Recovery

log = structlog.stdlib.get_logger(__name__)


class TopicsFeature(Feature):
    """The table of topics, its file, and the requests about it."""

    def __init__(self, core: Core, table: TopicTable) -> None:
        self.table = table
        root, disk = core.store.root, core.disk
        self._on_disk = TopicsFile(root, disk, core.clock, table.is_system)
        self.file = SavedTable(table, self._on_disk)
        self._config, self._disk, self._root = core.config, disk, root
        self._store = core.store
        self._clock = core.clock
        table.listeners.append(self._changed)
        requests = TopicProcessor(
            topics=table, saved=self.file, clock=core.clock, times=core.stats.topic_creations
        )
        self.routes = (
            Route(headers.CreateTopic, requests.update, "admin"),
            Route(headers.CreateTopics, requests.update_all, "admin"),
            Route(headers.GetSystemTopicsOfBroker, requests.system_topics, "admin"),
            Route(headers.GetAllTopicConfig, requests.all_configs, "admin"),
            Route(headers.GetTopicConfig, requests.config, "admin"),
        )
        self.saved = (self.file,)

    def _changed(self, names: Iterable[str]) -> None:
        self.file.request(names)

    def settings_changed(self) -> Iterator[None]:
        """Take the limits on topics from the settings."""
        self.table.settings_changed()
        yield

    def load(self) -> None:
        """Load the table; refuse unsupported topics, and to begin anew a table that was saved."""
        lost = lost_tables(self._disk, self._root)
        if lost:
            self._without_tables(lost)
        for path in lost:
            log.error("table.gone", path=str(path))
        self.file.load(self.table.load)
        batches = self.table.with_attribute("queue.type", "BatchCQ")
        if batches:
            raise StoreForeign(
                f"{self.file.file.path}: topic {batches[0]} has queue.type=BatchCQ, whose inner "
                "batches are not served here: run this directory with the broker that wrote it"
            )
        for topic in self.table.with_attribute("cleanup.policy", "COMPACTION"):
            log.warning("topic.not_compacted", topic=topic)

    def _without_tables(self, lost: Sequence[Path]) -> None:
        """Go on as a slave, whose tables are its master's; it is not promoted before they are here.
        In a group any member may be elected: this one may not before it has copied them. Raises:
        StoreDamaged, OSError.
        """
        if self._config.failover.is_on:
            self._disk.write_atomically(self._root / OLD_TABLES, b"", backup=False)
        elif self._config.is_slave:
            self._on_disk.waits_for_topics = lambda: not self.table.copied
        else:
            raise StoreDamaged(self._on_disk.refusal(lost))

    def recovered(self, recovery: Recovery) -> None:
        """Add topics that a crash has lost; make the deleted ones agree with the log.

        After a crash between the creation of a topic and its save, its first messages are in the
        log.
        """
        log_now = self._store.commit_log
        fitted = self.table.deleted.fit(range(log_now.min_offset, log_now.max_offset))
        if fitted or self._on_disk.lacks_mark(self.table.configs):
            try:
                # On disk before a message is stored where a deleted one was.
                self.file.file.write_now(self.table.document())
            except OSError:
                self.file.request()
        if not recovery.clean:
            finished(self.copy_ended())

    def copy_ended(self) -> Generator[None, None, None]:
        """Add topics whose messages are in the queues and whose config has never come here, as that
        of a topic that the old master made in its last second.
        """
        queues: dict[str, int] = {}
        for (topic, queue_id), queue in list(self._store.queues.table.items()):
            last = max(queue.max_physical_offset - 1, 0)
            if not self.table.deleted.covers(topic, last):
                queues[topic] = max(queues.get(topic, 0), queue_id + 1)
            yield
        now_ms = self._clock.now_ms()
        for topic, count in queues.items():
            if self.table.adopt(topic, count, now_ms):
                log.warning("topic.adopted", topic=topic, queues=count)
            yield
