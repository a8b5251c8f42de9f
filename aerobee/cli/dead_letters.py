"""The dead letters of a group: read, chosen, and marked as done with once sent, edited or dropped.

Two marks say that a letter is done, and a letter with either is not sent again. The offset of a
group says how far all letters of a queue are done: it lies on the broker of the letters and goes
with their topic. The group has the name of a system group, so that it is in no list and raises no
alert. A letter that was picked out of others has an entry in the name servers' key-value table
until the offset has passed it; the entry names the letter's id too, so it counts for no other
message at that place.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING

from aerobee.store.format.system_names import DLQ_PREFIX, REDRIVE_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aerobee.blocking import AdminClient
    from aerobee.cli.connection import Connection
    from aerobee.cli.dead import Look
    from aerobee.cli.output import Output
    from aerobee.client.message import ReceivedMessage
    from aerobee.client.send_result import MessageQueue

ORIGINS = ("DLQ_ORIGIN_TOPIC", "RETRY_TOPIC", "REAL_TOPIC")
READ_AT_ONCE = 256
FORMER_PREFIX = "aerobee_redrive_"
"""Of the groups that held the offsets before: they were listed, and raised alerts."""
SECTION = "AEROBEE_DLQ"
GROUP_MAX_CHARACTERS = 120
MARKS_MAX = 10_000
"""Letters of one group that are done while earlier ones are not."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Which letters a command is about: those that match every option that is given."""

    ids: tuple[str, ...] = ()
    """Message ids, offset ids, and places."""
    tags: tuple[str, ...] = ()
    key: str | None = None
    origin: str | None = None

    @property
    def is_all(self) -> bool:
        """Whether no option is given."""
        return not (self.ids or self.tags or self.key or self.origin)

    def takes(self, letter: ReceivedMessage, namespace: str | None) -> bool:
        """Whether a letter matches."""
        return (
            (not self.ids or not self.ids_of(letter).isdisjoint(self.ids))
            and (not self.tags or letter.tag in self.tags)
            and (self.key is None or self.key in letter.keys)
            and (self.origin is None or origin(letter, namespace) == self.origin)
        )

    @staticmethod
    def ids_of(letter: ReceivedMessage) -> set[str]:
        """The names of a letter: its id, its offset id, the id it was born with, and its place."""
        born = letter.properties.get("ORIGIN_MESSAGE_ID", letter.message_id)
        return {letter.message_id, letter.offset_message_id, born, place_of(letter)}


@contextmanager
def dead_letters(
    connection: Connection, group: str, output: Output
) -> Iterator[DeadLetters | None]:
    """The dead letters of a group; None, which is said, if it never had any.

    Raises: GroupNotFoundError.
    """
    with connection.admin() as admin:
        groups = has_letters(admin, group, output)
        yield DeadLetters(admin, group, connection.namespace) if groups else None


def has_letters(admin: AdminClient, group: str, output: Output, look: Look | None = None) -> bool:
    """Whether a group ever had dead letters; if not, it is said. `look`: has the dead brokers.

    Raises: GroupNotFoundError; TransportError where a dead broker may know the group.
    """
    from aerobee.cli.dead import unknown_group

    if f"{DLQ_PREFIX}{group}" in admin.topics():
        return True
    if group not in admin.groups():
        raise unknown_group(group, look)
    output.rows([])
    output.say(f"group {group} has no dead letters")
    return False


class DeadLetters:
    """The letters of one group, and which of them are done with."""

    def __init__(self, admin: AdminClient, group: str, namespace: str | None) -> None:
        self.admin = admin
        self.topic = f"{DLQ_PREFIX}{group}"
        self.namespace = namespace
        self.marks = Marks(admin, group, namespace)
        self._left: set[MessageQueue] = set()

    def read(self, after: Mapping[MessageQueue, int] | None = None) -> Iterator[ReceivedMessage]:
        """The letters, queue by queue, from the offsets in `after` on.

        Raises: PermissionDeniedError with what to do where the topic may not be read.
        """
        described = self.admin.describe_topic(self.topic)
        if not all(config.perm & 4 for config in described.configs):
            from aerobee.cli.border import complain

            topic = quote(self.topic)
            complain(f"{self.topic} may not be read: aerobee topic alter {topic} --perm rw")
        for queue in described.queues:
            offset = max(queue.first, (after or {}).get(queue.queue) or 0)
            while offset < queue.end:
                letters = self.admin.read_messages(queue.queue, offset, max_messages=READ_AT_ONCE)
                yield from letters
                if not letters:
                    break
                offset = letters[-1].queue_offset + 1

    def chosen(self, choice: Choice, *, again: bool = False) -> Iterator[ReceivedMessage]:
        """The letters that a command is about: not those that are done with, unless `again`."""
        for letter in self.read(None if again else dict(self.marks.offsets)):
            if (again or not self.marks.covers(letter)) and choice.takes(letter, self.namespace):
                yield letter

    def leave(self, letter: ReceivedMessage) -> None:
        """Note that a letter is not done: none behind it in its queue passes it by."""
        self._left.add(letter.queue)

    def prepare(self, letter: ReceivedMessage, choice: Choice) -> None:
        """Have a place for the mark of a letter, before it is sent: one that cannot be marked would
        be sent again by every run.

        Raises: ClickException where too many are marked, BrokerError.
        """
        if self._passes(letter, choice):
            self.marks.keep()
        elif not self.marks.covers(letter):
            self.marks.check_room()

    def settle(self, letter: ReceivedMessage, choice: Choice) -> None:
        """Note that a letter is done: with all before it, or alone where it was picked out."""
        if self._passes(letter, choice):
            self.marks.pass_by(letter)
        elif not self.marks.covers(letter):
            self.marks.pick(letter)

    def _passes(self, letter: ReceivedMessage, choice: Choice) -> bool:
        """Whether the mark of a letter counts for all before it, too."""
        return choice.is_all and letter.queue not in self._left


class Marks:
    """The marks of one group's dead letters, as they were when it was made and as it sets them."""

    def __init__(self, admin: AdminClient, group: str, namespace: str | None) -> None:
        self.admin = admin
        self.topic = f"{DLQ_PREFIX}{group}"
        self.keeper = f"{REDRIVE_PREFIX}{group}"[:GROUP_MAX_CHARACTERS]
        self.former = f"{FORMER_PREFIX}{group}"[:GROUP_MAX_CHARACTERS]
        from aerobee.client.namespaces import wrapped

        self._prefix = f"{wrapped(group, namespace)}/"
        self._kept = False
        self.offsets: dict[MessageQueue, int] = {}
        for keeper in (self.former, self.keeper):
            for queue, offset in admin.committed_offsets(keeper, self.topic).items():
                self.offsets[queue] = max(offset or 0, self.offsets.get(queue, 0))
        self.picked = {
            key: value for key, value in admin.kv(SECTION).items() if key.startswith(self._prefix)
        }

    def covers(self, letter: ReceivedMessage) -> bool:
        """Whether a letter is done with."""
        if letter.queue_offset < self.offsets.get(letter.queue, 0):
            return True
        return self.picked.get(self._key(letter)) == mark_of(letter)

    def check_room(self) -> None:
        """Check that one more letter can be picked. Raises: ClickException."""
        if len(self.picked) >= MARKS_MAX:
            import click

            raise click.ClickException(
                f"{MARKS_MAX} letters are marked one by one: redrive or drop all before them first"
            )

    def pick(self, letter: ReceivedMessage) -> None:
        """Mark one letter, wherever it stands. Raises: ClickException where too many are marked."""
        self.check_room()
        self.admin.put_kv(SECTION, self._key(letter), mark_of(letter))
        self.picked[self._key(letter)] = mark_of(letter)

    def pass_by(self, letter: ReceivedMessage) -> None:
        """Mark a letter and all before it in its queue; their own marks are needed no more."""
        after = letter.queue_offset + 1
        if after <= self.offsets.get(letter.queue, 0):
            return
        self.keep()
        self.admin.reset_offsets(self.keeper, self.topic, after, queues=[letter.queue])
        self.offsets[letter.queue] = after
        for key, mark in list(self.picked.items()):
            queue, _, offset = mark.partition(" ")[0].rpartition("@")
            if queue == str(letter.queue) and int(offset) < after:
                self.admin.delete_kv(SECTION, key)
                del self.picked[key]

    def _key(self, letter: ReceivedMessage) -> str:
        return f"{self._prefix}{letter.offset_message_id}"

    def keep(self) -> None:
        """Make the group of the offsets; one that held them under its former name goes."""
        if self._kept:
            return
        from aerobee.admin import GroupConfig

        self.admin.create_group(GroupConfig(name=self.keeper))
        if self.former in self.admin.groups():
            for queue, offset in self.offsets.items():
                self.admin.reset_offsets(self.keeper, self.topic, offset, queues=[queue])
            self.admin.delete_group(self.former)
        self._kept = True


def mark_of(letter: ReceivedMessage) -> str:
    """The place and the id of a letter: another message at its place is another letter."""
    return f"{letter.queue}@{letter.queue_offset} {letter.message_id}"


def place_of(letter: ReceivedMessage) -> str:
    """Where a letter lies, as `aerobee message get` takes it."""
    return f"{letter.queue}@{letter.queue_offset}"


def origin(letter: ReceivedMessage, namespace: str | None) -> str | None:
    """The topic that a dead letter came from, if known."""
    from aerobee.client.namespaces import plain
    from aerobee.store.format.system_names import RETRY_PREFIX

    for name in ORIGINS:
        topic = letter.properties.get(name, "")
        if topic and not topic.startswith(RETRY_PREFIX):
            return plain(topic, namespace)
    return None
