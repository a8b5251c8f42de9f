"""The local offset file of a broadcasting group, in the format of the Java client.

It is `<folder>/<client id>/<group>/offsets.json`, with the previous version beside it as
`offsets.json.bak`; both are replaced by a rename, so that a complete one survives a crash.
Source: client §10.2 (LocalFileOffsetStore).
"""

from __future__ import annotations

import logging
import os
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING

from aerobee.client.namespaces import plain, wrapped
from aerobee.client.wire_queues import from_wire, to_wire
from aerobee.remoting.errors import RemotingError
from aerobee.remoting.wire.bodies import queue as bodies
from aerobee.remoting.wire.bodies.queue import ResetOffsets, offset_row, offset_table, queue_of
from aerobee.remoting.wire.relaxed_json import decode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aerobee.client.send_result import MessageQueue
    from aerobee.client.settings.consumers import ConsumerConfig
    from aerobee.client.steps.instance import Instance

log = logging.getLogger("aerobee.client")

FOLDER = "~/.rocketmq_offsets"


class OffsetFile:
    """The file with the offsets of one group on this machine."""

    def __init__(self, path: Path, namespace: str | None = None) -> None:
        self.path = path
        self.namespace = namespace
        """The namespace of the names in the file; users see them without it."""
        self.failing = False
        """Whether the last save has failed."""
        self.backup = path.with_name(f"{path.name}.bak")

    def load(self) -> dict[MessageQueue, int]:
        """The stored offsets, from the backup if the file is damaged; empty without either."""
        for path in (self.path, self.backup):
            try:
                offsets = read_offsets(path.read_bytes())
            except FileNotFoundError:
                continue
            except (OSError, RemotingError, ValueError, TypeError) as error:
                log.warning("offsets in %s cannot be read: %s", path, error)
            else:
                names = self.namespace
                return {q._replace(topic=plain(q.topic, names)): at for q, at in offsets.items()}
        return {}

    def save(self, offsets: Mapping[MessageQueue, int]) -> bool:
        """Replace the stored offsets; False after a disk error, which is logged once."""
        named = {
            to_wire(queue._replace(topic=wrapped(queue.topic, self.namespace))): offset
            for queue, offset in offsets.items()
        }
        try:
            self._replace(offset_table(starmap(offset_row, named.items())))
        except OSError as error:
            if not self.failing:
                log.warning("offsets not written to %s, tried again: %s", self.path, error)
            self.failing = True
        else:
            self.failing = False
        return not self.failing

    def _replace(self, text: bytes) -> None:
        """Replace the file, which becomes the backup. Raises: OSError."""
        new = self.path.with_name(f"{self.path.name}.new")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new.write_bytes(text)
        if self.path.exists():
            os.replace(self.path, self.backup)
        os.replace(new, self.path)


def read_offsets(data: bytes) -> dict[MessageQueue, int]:
    """Parse offsets by queue: with queues as keys, as objects or strings, or as a list of pairs.

    Raises: RemotingError, ValueError, TypeError for other content.
    """
    document = decode(data)
    table = document.get("offsetTable") if isinstance(document, dict) else None
    if isinstance(table, list):
        offsets = [
            (bodies.MessageQueue.from_document(document), int(offset)) for document, offset in table
        ]
    else:
        texts = ResetOffsets.from_bytes(data).offset_table
        offsets = [(queue_of(text), offset) for text, offset in texts.items()]
    return {from_wire(queue): at for queue, at in offsets}


def offset_file(instance: Instance, config: ConsumerConfig) -> OffsetFile:
    """The offset file of a broadcasting group of a client.

    A generated instance name is not part of the path, so that the next process finds the file.
    """
    host, _, name = instance.config.client_id.partition("@")
    if name.startswith(f"{instance.config.process_id}#"):
        name = "DEFAULT"
    folder = Path(config.offset_dir or FOLDER).expanduser()
    namespace = instance.config.namespace
    group = wrapped(config.group, namespace)
    return OffsetFile(folder / f"{host}@{name}" / group / "offsets.json", namespace)
