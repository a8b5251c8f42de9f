"""Findings are listed up to a bound, and counted beyond it."""

from aerobee.store.tools.findings import LISTED_MAX, Finding, Findings


def test_more_damage_of_a_kind_than_is_listed_is_counted() -> None:
    findings = Findings()
    for number in range(LISTED_MAX + 5):
        findings.damaged("crc", "place", "text", number)
    findings.damaged("hole", "elsewhere", "gone")
    assert findings.counts == {"crc": LISTED_MAX + 5, "hole": 1}
    assert len(findings.damage) == LISTED_MAX + 1
    assert findings.damage[-1] == Finding("hole", "elsewhere", "gone")
    assert [one.physical_offset for one in findings.damage[:2]] == [0, 1]


def test_doubts_are_notes_and_no_damage() -> None:
    findings = Findings()
    for _ in range(LISTED_MAX + 5):
        findings.doubted("text", "place", "NUL bytes", 7)
    assert not findings.counts
    assert not findings.damage
    assert findings.doubts == {"text": LISTED_MAX + 5}
    assert len(findings.notes) == LISTED_MAX
    assert findings.notes[0] == Finding("text", "place", "NUL bytes; sent so, or damaged", 7)
