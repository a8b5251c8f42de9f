"""The table of rights in `docs/operations/access.md`: `python -m tests.rights --write`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aerobee.broker.access.permissions import PERMISSIONS, Kind, Row
from aerobee.remoting.wire.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE: Final = Path(__file__).parents[1] / "docs" / "operations" / "access.md"
BEGIN: Final = "<!-- rights: python -m tests.rights --write -->\n"
END: Final = "<!-- end -->"
BODIES: Final = {
    "heartbeat": "each Group: Sub; each Topic: Sub",
    "client_config": "Group: Sub; Topic: Sub",
    "queue_locks": "Group: Sub; each Topic: Sub",
    "acknowledgements": "each Group: Sub; each Topic: Sub",
    "assignment": "Group: Sub; Topic: Sub",
    "request_mode": "Group: Update",
    "new_topics": "each Topic: Create",
    "new_group": "Group: Create",
    "new_groups": "each Group: Create",
}
"""Reader of a body → what it finds there."""


def actions(names: frozenset[str]) -> str:
    return " or ".join(sorted(name.value if hasattr(name, "value") else name for name in names))


def needs(row: Row) -> Iterator[str]:
    for named in row.named:
        each = "" if named.separator is None else "each listed "
        yield f"{each}{named.kind.value}: {actions(named.actions)}"
    if row.body is not None:
        yield BODIES[row.body.__name__]
    if row.cluster:
        yield f"{Kind.CLUSTER.value}: {actions(row.cluster)}"
    if row.unnamed:
        yield f"without a topic, {Kind.CLUSTER.value}: {actions(row.unnamed)}"


def plain(row: Row) -> str:
    """What ACL 1.0 makes of it."""
    text = "; ".join(needs(row))
    if "Cluster" in text and not row.unnamed:
        return "admin"
    changes = [one for one in text.split("; ") if "Sub" not in one and "Pub" not in one]
    if any(word in one for one in changes for word in ("Create", "Update", "Delete")):
        return "admin"
    found = []
    for one in text.split("; "):
        kind, publishes, subscribes = one.split(":")[0].lower(), "Pub" in one, "Sub" in one
        if publishes != subscribes:
            found.append(f"{kind} {'PUB' if publishes else 'SUB'}")
        elif "Get" in one and "Cluster" not in one and not publishes:
            found.append(f"{kind} PUB or SUB")
    more = ["without a topic, admin"] if row.unnamed else []
    return ", ".join(found + more) or "an account"


def page_with_table() -> str:
    """The page with the table as it has to be."""
    page = PAGE.read_text("utf-8")
    head, _, rest = page.partition(BEGIN)
    lines = ["| code | request | needs | ACL 1.0 |", "|---|---|---|---|"]
    for code, row in sorted(PERMISSIONS.items()):
        name = RequestCode(code).name
        lines.append(
            f"| {int(code)} | {name} | {'; '.join(needs(row)) or 'an account'} | {plain(row)} |"
        )
    return head + BEGIN + "\n".join(lines) + "\n" + END + rest.partition(END)[2]


if __name__ == "__main__":
    text = page_with_table()
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(text, "utf-8")
