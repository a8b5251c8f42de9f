"""The look of a state on a page: its severity, its word, and where it can be mended. Pure.

Severities are the classes of console.css: ok, note, warning, error, unknown. The words are texts
that templates translate.
"""

from __future__ import annotations

import base64
import binascii
import re
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from aerobee.broker.console.pages.formats import hexadecimal
from aerobee.broker.console.pages.links import link

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

STANDS_S: Final = 30.0
"""A group that has read nothing for a minute, while its oldest message waits for longer."""
SHOWN_MAX_BYTES: Final = 64 * 1024
"""How much of a body its page shows; the rest is left out, which is said."""
DEPTH_MAX: Final = 32
"""Brackets within each other of a JSON document that is shown with a line for each value."""
NO_BRACKET: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[^\[\]{}]', re.DOTALL)
OPENING: Final = b"[{"
GLANCE_CHARACTERS: Final = 120
"""How much of a body a list shows."""
MILLI: Final = 1_000


class State(NamedTuple):
    """A severity and its word."""

    severity: str
    word: str


def group_state(row: Mapping[str, Any]) -> State:
    """The state of a group by its row of a snapshot."""
    lag, members = row["lag_at_least"], row["members"]
    if row["enabled"] is False:
        return State("warning", "paused")
    if lag and members == 0:
        return State("error", "nobody reads")
    if lag and row["per_s"] == 0 and (row["lag_s"] or 0) > STANDS_S:
        return State("error", "stands")
    if row["lag"] is None and not lag:
        return State("unknown", "not known")
    if members == 0:
        return State("unknown", "nobody online")
    return State("note", "behind") if lag else State("ok", "reads all")


def stated(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of groups with their states."""
    return [{**row, **group_state(row)._asdict(), "state": group_state(row).word} for row in rows]


PROPOSED_MAX: Final = 200
"""Names that a field proposes: all of a large cluster would be most of the page."""


def proposed(rows: Iterable[Mapping[str, Any]], column: str, typed: str) -> list[str]:
    """The names that a field proposes: those with what is typed, of groups those behind first."""
    own = [row for row in rows if not row.get("system") and row.get("kind") != "system"]
    own.sort(key=lambda row: (typed not in row[column], -(row.get("lag_at_least") or 0)))
    return sorted(row[column] for row in own[:PROPOSED_MAX])


BROKER_STATES: Final = {
    "up": State("ok", "answers"),
    "dead": State("error", "does not answer"),
    "forbidden": State("error", "not for this account"),
    "failing": State("error", "tells nothing"),
}


def brokers_of(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of brokers with their states, those that tell nothing first."""
    unknown = State("unknown", "not known")
    stated = [(row, BROKER_STATES.get(row["state"], unknown)) for row in rows]
    stated.sort(key=lambda pair: pair[1].severity == "ok")
    return [{**row, "severity": state.severity, "word": state.word} for row, state in stated]


def standing_of(member: Mapping[str, Any]) -> State:
    """Whether a member of a group is in order; else what is known of it."""
    if not member["problem"]:
        return State("ok", "in order")
    if member["role"] is not None:
        return State("warning", "not in order")
    return BROKER_STATES.get(member["state"], State("unknown", "not known"))


ROLES: Final = {"master": "master", "slave": "slave", "shadow": "shadow", None: "not known"}


def master_of(
    members: Sequence[Mapping[str, Any]], address: str
) -> tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]:
    """The member at an address, and the one master of its group; None: there is none such."""
    own = next((row for row in members if row["address"] == address), None)
    if own is None:
        return None, None
    place = (own["cluster"], own["broker"])
    masters = [
        row
        for row in members
        if (row["cluster"], row["broker"]) == place and row["role"] == "master"
    ]
    return own, masters[0] if len(masters) == 1 else None


def with_masters(members: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Members with `master`: whether the one master of their group answers, their `standing`, and
    the word for their role.
    """
    return [
        {
            **row,
            "master": master_of(members, row["address"])[1] is not None,
            "standing": standing_of(row),
            "word": ROLES.get(row["role"], "not known"),
        }
        for row in members
    ]


def worst(findings: Iterable[Mapping[str, Any]]) -> str:
    """The severest of findings; empty without one."""
    severities = {finding["severity"] for finding in findings}
    return next(
        (severity for severity in ("error", "warning", "note") if severity in severities), ""
    )


TITLES: Final = {
    "behind": "It is behind",
    "broadcast_disabled": "Broadcasting is not allowed",
    "broadcasting": "It broadcasts",
    "broker_failing": "A broker does not tell what it knows",
    "broker_forbidden": "A broker does not tell this account anything",
    "broker_not_readable": "The broker may not be read",
    "broker_unreachable": "A broker does not answer",
    "cluster_unknown": "The brokers of the cluster are not known",
    "client_id_twice": "A client id is there twice",
    "consumption_disabled": "The group is paused",
    "dead_letters": "There are dead letters",
    "disk_fills": "A disk fills",
    "disk_full": "A disk is nearly full",
    "late": "It is behind",
    "lock_not_granted": "The lock of a queue is not granted",
    "member_silent": "A member is silent",
    "messages_expired": "Messages were deleted before they were read",
    "no_member": "No member is online",
    "nobody_online": "No member is online",
    "not_pulling": "A member does not pull",
    "offset_beyond_end": "An offset lies behind the end",
    "order_differs": "Members differ in their order",
    "paused": "The group is paused",
    "queue_with_several_owners": "A queue has several owners",
    "queue_without_owner": "A queue has no owner",
    "rebalancing": "Queues are being shared out",
    "refuses_sends": "Sends are refused",
    "retries_wait": "Messages wait to be tried again",
    "slave": "The slave does not follow",
    "slave_behind": "A slave is behind",
    "slow_handler": "A handler is slow or stands",
    "strategies_differ": "Members share queues out differently",
    "subscriptions_differ": "Members subscribe differently",
    "topic_forbidden": "A topic is not allowed",
    "topic_missing": "A topic is not there",
    "topic_not_readable": "A topic may not be read",
    "versions_differ": "Members have different versions",
}
"""The meaning of each kind of finding, for languages in which the broker says nothing itself."""
LABELS: Final = {"error": "error", "warning": "warning", "note": "note"}


def linked(findings: Iterable[Mapping[str, Any]], *, on_group: str = "") -> list[dict[str, Any]]:
    """Findings with the page on which each is mended, and what the button there says.

    `on_group`: the group whose page shows them, which is no way out.
    """
    return [
        {
            **finding,
            **_way_out(finding, on_group),
            "label": LABELS[finding["severity"]],
            "title": TITLES.get(finding.get("kind", ""), ""),
        }
        for finding in findings
    ]


def _way_out(finding: Mapping[str, Any], on_group: str) -> dict[str, str]:
    kind, group = finding.get("kind", ""), finding.get("group") or on_group
    topic = finding.get("topic") or ""
    if "dead" in kind and group:
        return {"path": link("/letters", group=group), "verb": "Look at the letters"}
    if "disabled" in kind or "paused" in kind:
        return {"path": link("/group/resume", name=group), "verb": "Let it go on …"}
    if group and group != on_group:
        return {"path": link("/group", name=group), "verb": "See why"}
    if topic:
        return {"path": link("/topic", name=topic), "verb": "See the topic"}
    if any(
        word in kind
        for word in ("broker", "disk", "space", "store", "flush", "slave", "replica", "refuses")
    ):
        return {"path": "/replication", "verb": "See the store"}
    return {"path": "", "verb": ""}


# ── One message ──

COPIES: Final = {
    "stored": State("done", "Stored in its topic"),
    "delayed": State("waits", "Waits for its delay"),
    "timed": State("waits", "Waits for its time"),
    "recall": State("lost", "Taken back before its time"),
    "half": State("waits", "Half of a transaction that is not ended"),
    "given_up": State("lost", "Its transaction was never ended"),
    "retry": State("waits", "Failed, and tried again"),
    "dead": State("lost", "Given up as a dead letter"),
}
PROGRESS: Final = {
    "passed": State("ok", "read"),
    "filtered": State("note", "left out by the filter"),
    "not_reached": State("note", "not reached yet"),
    "in_flight": State("note", "being handled"),
    "invisible": State("note", "popped"),
    "retrying": State("warning", "tried again"),
    "dead": State("error", "dead letter"),
    "unknown": State("unknown", "not known"),
}


def life_of(history: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The steps of a message in the order of time: where it was stored, and what traces tell."""
    steps = []
    for copy in history.get("copies", ()):
        look, text = COPIES.get(copy["kind"], State("done", copy["kind"]))
        message = copy["message"]
        place = f"{message['topic']} · {message['broker']} · {message['queue_id']}"
        detail = f"{place} @ {message['queue_offset']}"
        steps.append(
            {
                "at": message["stored_at"],
                "look": look if copy["waits"] or look == "lost" else "done",
                "text": text,
                "group": copy.get("group") or "",
                "due": copy.get("due_at"),
                "detail": detail,
            }
        )
    for trace in history.get("traces", ()):
        failed = trace.get("succeeded") is False
        steps.append(
            {
                "at": trace.get("at"),
                "look": "lost" if failed else "done",
                "text": TRACES.get(trace["kind"], trace["kind"]),
                "group": trace.get("group") or "",
                "due": None,
                "detail": "",
            }
        )
    return sorted(steps, key=lambda step: str(step["at"] or ""))


TRACES: Final = {
    "Pub": "Sent by its producer",
    "SubBefore": "Given to a handler",
    "SubAfter": "The handler has ended",
    "EndTransaction": "Its transaction was ended",
    "Recall": "Taken back",
}


def message_state(history: Mapping[str, Any]) -> State:
    """The state of a message in a word."""
    kinds = {copy["kind"] for copy in history.get("copies", ())}
    if not history.get("found"):
        return State("error", "not found")
    if "dead" in kinds:
        return State("error", "dead letter")
    if "stored" in kinds:
        return State("ok", "stored")
    return State("note", "waits") if kinds else State("unknown", "not known")


# ── Contents ──


CONTENT_KINDS: Final = ("JSON", "hex", "text")


class Content(NamedTuple):
    """A body as it is shown; without a text, when it may not be shown."""

    text: str | None
    kind: str
    size: int | None
    cut: int | None = None
    """The bytes that are shown; None: all."""


def content_of(message: Mapping[str, Any], *, may_read: bool) -> Content:
    """The body of a message in the form in which it can be read best."""
    body = body_of(message)
    if body is None or not may_read:
        return Content(None, "", None)
    size = len(body)
    try:
        text = body.decode()
    except UnicodeDecodeError:
        most = SHOWN_MAX_BYTES // 4
        return Content(hexadecimal(body, most), "hex", size, most if size > most else None)
    if text.lstrip()[:1] in ("{", "[") and is_shallow(body):
        try:
            return Content(msgspec.json.format(body, indent=2).decode(), "JSON", size)
        except msgspec.DecodeError:
            pass
    if size <= SHOWN_MAX_BYTES:
        return Content(text, "text", size)
    text = body[:SHOWN_MAX_BYTES].decode(errors="ignore")
    return Content(text, "text", size, SHOWN_MAX_BYTES)


def is_shallow(body: bytes) -> bool:
    """Whether a JSON document may be indented: a line has the more signs the deeper it stands, and
    of 64 KiB so would become as many megabytes.
    """
    if len(body) > SHOWN_MAX_BYTES:
        return False
    brackets = NO_BRACKET.sub(b"", body)
    depths = accumulate(1 if sign in OPENING else -1 for sign in brackets)
    return max(depths, default=0) <= DEPTH_MAX


def body_of(message: Mapping[str, Any]) -> bytes | None:
    """The bytes of a body as the API tells it; None where it does not."""
    text, coded = message.get("body"), message.get("body_base64")
    if isinstance(text, str):
        return text.encode("utf-8", "surrogatepass")
    if isinstance(coded, str):
        try:
            return base64.b64decode(coded)
        except binascii.Error:
            return None
    return None


def glance(message: Mapping[str, Any], *, may_read: bool) -> str | None:
    """The begin of a body on one line."""
    body = body_of(message)
    if body is None or not may_read:
        return None
    text = body[: GLANCE_CHARACTERS * 4].decode(errors="replace").replace("\n", " ")
    return text if len(text) <= GLANCE_CHARACTERS else f"{text[:GLANCE_CHARACTERS]}…"


def place_of(message: Mapping[str, Any]) -> str:
    """The name of a message by the place where it lies."""
    return f"{message['topic']}/{message['broker']}/{message['queue_id']}@{message['queue_offset']}"


# ── Charts ──


def drawn(history: Sequence[tuple[float, float, float]]) -> dict[str, Any]:
    """Rates over time, as uPlot takes them and as lines of an SVG of 600 by 100."""
    times = [round(at) for at, _, _ in history]
    lines = [("in", [row[1] for row in history]), ("out", [row[2] for row in history])]
    most = max((max(values) for _, values in lines if values), default=0) * 1.12 or 1
    first, span = (times[0], max(1, times[-1] - times[0])) if times else (0, 1)

    def points(values: Sequence[float]) -> str:
        return " ".join(
            f"{600 * (at - first) / span:.1f},{100 - 100 * value / most:.1f}"
            for at, value in zip(times, values, strict=True)
        )

    series = {
        "times": times,
        "lines": [{"kind": kind, "label": kind, "values": values} for kind, values in lines],
    }
    return {
        "times": times,
        "series": msgspec.json.encode(series).decode(),
        "lines": [{"kind": kind, "points": points(values)} for kind, values in lines],
    }


def moved(changes: Sequence[Mapping[str, Any]]) -> tuple[int, int, int]:
    """Of changed offsets: messages that come again, messages that are skipped, and queues."""
    known = [(row["before"], row["after"]) for row in changes if row["before"] is not None]
    back = sum(before - after for before, after in known if after < before)
    ahead = sum(after - before for before, after in known if after > before)
    return back, ahead, len(changes)
