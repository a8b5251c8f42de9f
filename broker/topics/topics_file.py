"""The file of the topics, and the mark outside `config/` that says that they were saved there.

Without it nothing tells a directory whose `config/` is on a disk that is not mounted from one that
never had tables. New tables would come up in silence: topics that nobody finds, and groups that
begin anew behind what they have not read; slaves would copy them. The mark is made behind the first
save of a topic that is not the broker's own, and has the names of other tables that were saved
since (`NotedFile`). So it is neither in a new directory, nor in that of
another broker, nor where a kill came before any topic was saved.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from aerobee.broker.saved.json_file import JsonFile
from aerobee.store.format.names import ABORT, CONFIG, SAVED_TOPICS
from aerobee.store.recovery.start_check import TOPICS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from aerobee.store.clock import Clock
    from aerobee.store.files.disk import Disk


class TopicsFile(JsonFile):
    """`config/topics.json` of a data directory. Invariant: no mark is there before the file."""

    def __init__(
        self, root: Path, disk: Disk, clock: Clock, is_system: Callable[[str], bool]
    ) -> None:
        super().__init__(root / CONFIG / TOPICS, disk, clock)
        self.mark = root / SAVED_TOPICS
        self._abort = root / ABORT
        self.waits_for_topics: Callable[[], bool] = lambda: False
        """Whether a table without topics of people is not saved: the topics of the master have not
        come yet, and who finds it would take it for the table that was lost."""
        self._is_system = is_system

    def lacks_mark(self, topics: Iterable[str]) -> bool:
        """Whether the mark is to be made behind a save of these topics. Raises: OSError."""
        made = not all(map(self._is_system, topics))
        return made and not self.disk.exists(self.mark)

    def write_now(self, content: Mapping[str, Any] | list[bytes]) -> None:
        """As `JsonFile.write_now`, then the mark."""
        assert not isinstance(content, list)
        if self.waits_for_topics() and all(map(self._is_system, content["topicConfigTable"])):
            return
        super().write_now(content)
        if self.lacks_mark(content["topicConfigTable"]):
            self.disk.write_atomically(self.mark, b"", backup=False)

    def refusal(self, lost: Iterable[Path]) -> str:
        """The text for a start without some tables: the likely cause, and the ways out."""
        config, mark, abort = self.path.parent, self.mark, self._abort
        return (
            f"{' and '.join(map(str, lost))}, backups too, are missing or empty, and by {mark} they"
            f" were saved there: mount the disk of {config}, restore that directory from a backup,"
            " or have a slave be the master. With new tables groups begin anew, and may pass over"
            " messages. To go on all the same, with what is there and the topics that the queues"
            f" tell: rm {shlex.quote(str(mark))} && touch {shlex.quote(str(abort))}"
        )
