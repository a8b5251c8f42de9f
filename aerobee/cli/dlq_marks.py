"""Which dead letters are done with: sent again, edited or dropped.

Two marks say so, and a letter with either is not sent again. The offset of a group says how far all
letters of a queue are done: it lies on the broker of the letters and goes with their topic. The
group has the name of a system group, so that it is in no list and raises no alert. A letter that
was picked out of others has an entry in the name servers' key-value table until the offset has
passed it; the entry names the letter's id too, so it counts for no other message at that place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.client.system_names import DLQ_PREFIX

if TYPE_CHECKING:
    from aerobee.blocking import AdminClient
    from aerobee.client.message import ReceivedMessage
    from aerobee.client.send_result import MessageQueue

KEEPER_PREFIX = "CID_RMQ_SYS_REDRIVE_"
FORMER_PREFIX = "aerobee_redrive_"
"""Of the groups that held the offsets before: they were listed, and raised alerts."""
SECTION = "AEROBEE_DLQ"
GROUP_MAX_CHARACTERS = 120
MARKS_MAX = 10_000
"""Letters of one group that are done while earlier ones are not."""


class Marks:
    """The marks of one group's dead letters, as they were when it was made and as it sets them."""

    def __init__(self, admin: AdminClient, group: str, namespace: str | None) -> None:
        self.admin = admin
        self.topic = f"{DLQ_PREFIX}{group}"
        self.keeper = f"{KEEPER_PREFIX}{group}"[:GROUP_MAX_CHARACTERS]
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

    def pick(self, letter: ReceivedMessage) -> None:
        """Mark one letter, wherever it stands. Raises: ClickException where too many are marked."""
        if len(self.picked) >= MARKS_MAX:
            import click

            raise click.ClickException(
                f"{MARKS_MAX} letters are marked one by one: redrive or drop all before them first"
            )
        self.admin.put_kv(SECTION, self._key(letter), mark_of(letter))
        self.picked[self._key(letter)] = mark_of(letter)

    def pass_by(self, letter: ReceivedMessage) -> None:
        """Mark a letter and all before it in its queue; their own marks are needed no more."""
        after = letter.queue_offset + 1
        if after <= self.offsets.get(letter.queue, 0):
            return
        self._keep()
        self.admin.reset_offsets(self.keeper, self.topic, after, queues=[letter.queue])
        self.offsets[letter.queue] = after
        for key, mark in list(self.picked.items()):
            queue, _, offset = mark.partition(" ")[0].rpartition("@")
            if queue == str(letter.queue) and int(offset) < after:
                self.admin.delete_kv(SECTION, key)
                del self.picked[key]

    def _key(self, letter: ReceivedMessage) -> str:
        return f"{self._prefix}{letter.offset_message_id}"

    def _keep(self) -> None:
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
