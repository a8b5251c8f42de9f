"""The findings as rows: severity, kind, text, advice, and the topic or group that it is about.

Pure. The advice is a command of `aerobee`.
"""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Any, Final

from aerobee.counted import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Row = Mapping[str, Any]

LATE_S: Final = 60.0
"""A group whose oldest message has waited for so long is a finding."""
CLEANS: Final = "aerobee broker clean files"
"""The command that makes room on a disk."""
RANK: Final = {"error": 0, "warning": 1, "note": 2}
NEARLY_FULL_PERCENT: Final = 85.0
"""From there on a disk is a finding: brokers delete expired messages at 75."""
FILLS_SOON_S: Final = 24 * 3_600.0
FILLS_FROM_PERCENT: Final = 50.0
"""A disk that is emptier than that is not said to fill, however short a burst would make it."""


def finding(severity: str, kind: str, text: str, advice: str, *, group: str | None = None) -> Row:
    """A finding as a row."""
    return {
        "severity": severity,
        "kind": kind,
        "text": text,
        "advice": advice,
        "topic": None,
        "group": group,
    }


def ranked(findings: Iterable[Row]) -> list[Row]:
    """The severest first."""
    return sorted(findings, key=lambda row: RANK[row["severity"]])


def findings_of(row: Row) -> list[Row]:
    """The findings about a group."""
    name, lag = row["group"], row["lag_at_least"]
    advice = f"aerobee group doctor {quote(name)}"
    findings: list[Row] = []
    behind = counted(lag, "message")
    if row["system"]:
        return findings
    if lag > 0 and row["enabled"] is False:
        text = f"group {name} is paused, {behind} behind"
        resume = f"aerobee group resume {quote(name)}"
        findings.append(finding("warning", "paused", text, resume, group=name))
    elif lag > 0 and row["members"] == 0:
        text = f"group {name} has no member online, {behind} behind"
        findings.append(finding("warning", "no_member", text, advice, group=name))
    elif lag > 0 and (row["lag_s"] or 0.0) > LATE_S:
        text = f"group {name} is {row['lag_s']:.0f} s behind, {behind}"
        findings.append(finding("warning", "late", text, advice, group=name))
    if row["dead_letters"]:
        text = f"group {name} has {counted(row['dead_letters'], 'dead letter')}"
        listing = f"aerobee dlq list {quote(name)}"
        findings.append(finding("note", "dead_letters", text, listing, group=name))
    return findings


def disk_findings(broker: str, percent: float | None, full_in_s: float | None) -> list[Row]:
    """The findings about the disk of a broker. `full_in_s`: at this pace; None: not known."""
    if percent is None:
        return []
    if percent >= NEARLY_FULL_PERCENT:
        text = f"the disk of broker {broker} is {percent:.0f} % full"
        return [finding("warning", "disk_full", text, CLEANS)]
    if percent >= FILLS_FROM_PERCENT and full_in_s is not None and full_in_s < FILLS_SOON_S:
        text = f"the disk of broker {broker} is full in {full_in_s / 3_600:.1f} h at this pace"
        return [finding("note", "disk_fills", text, CLEANS)]
    return []
