"""Joins the metrics of several processes into one text for Prometheus.

A family of metrics is told once, with the series of all processes behind it. Every series of ours
has the name of its broker as `node_id`; the figures of a process get it here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

HEAD: Final = b"# HELP "
OF_PROCESS: Final = b"process_"


def joined(texts: Iterable[tuple[str, bytes]]) -> Iterator[bytes]:
    """The families of all texts, each in one piece, in the order of their first appearance.

    `texts`: node id and exposition of each process. Series that are the same in all of them, such
    as `target_info`, are told once.
    """
    families: dict[bytes, tuple[bytes, dict[bytes, None]]] = {}
    for node, text in texts:
        for chunk in (b"\n" + text).split(b"\n" + HEAD)[1:]:
            head, kind, *lines = chunk.rstrip(b"\n").split(b"\n")
            name = head.partition(b" ")[0]
            _, samples = families.setdefault(name, (b"%b%b\n%b\n" % (HEAD, head, kind), {}))
            if name.startswith(OF_PROCESS):
                lines = [_labelled(line, node) for line in lines]
            samples.update(dict.fromkeys(lines))
    for head, samples in families.values():
        yield head + b"".join(b"%b\n" % line for line in samples)


def _labelled(line: bytes, node: str) -> bytes:
    """A sample without labels, with that of its process."""
    name, _, value = line.partition(b" ")
    return b'%b{node_id="%b"} %b' % (name, node.encode(), value)
