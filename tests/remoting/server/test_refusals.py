"""Requests taken for alike: their opaques are those that decoding each of them gives."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aerobee.remoting.server.refusals import ALIKE_MIN, alike

ALIKE = "alike"
OTHERS: dict[str, dict[str, object]] = {
    "one-way": {"flag": 2},
    "another code": {"code": 320},
    "another language": {"language": "RUST"},
    "another length": {"version": 1_000},
    "more digits": {"opaque": 100_000},
    "no number": {"opaque": "10001"},
}
"""Members of headers that are not like the first; all but the last three have its length."""


def frame(number: int, *, ordered: bool, **other: object) -> bytes:
    """A send of a Java client, with its members in alphabetical order, or with the ext fields
    behind all others.
    """
    members: dict[str, object] = {
        "code": 310,
        "flag": 0,
        "language": "JAVA",
        "opaque": number,
        "version": 479,
        "extFields": {"b": "Topic", "e": str(number % 7), "i": 'K\x01\x02{}"opaque":1,'},
    }
    header = json.dumps(members | other, separators=(",", ":"), sort_keys=ordered).encode()
    body = b'"opaque":7,"extFields":{}}'
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


@example(kinds=[ALIKE] * 40, ordered=True, left_out=0)
@example(kinds=[ALIKE] * 40, ordered=False, left_out=1)
@example(kinds=[ALIKE] * 20 + ["one-way"] + [ALIKE] * 40, ordered=True, left_out=0)
@given(
    kinds=st.lists(st.sampled_from([ALIKE] * 60 + [*OTHERS]), max_size=80),
    ordered=st.booleans(),
    left_out=st.integers(0, 200),
)
def test_requests_are_alike_up_to_the_first_that_is_not(
    kinds: list[str], ordered: bool, left_out: int
) -> None:
    """R23."""
    kinds.insert(0, ALIKE)
    frames = [
        frame(number, ordered=ordered, **OTHERS.get(kind, {}))
        for number, kind in enumerate(kinds, 10_000)
    ]
    sent = b"".join(frames)
    sent = sent[: len(sent) - left_out]
    whole = len(sent) // len(frames[0])
    same = next((n for n, kind in enumerate(kinds) if kind != ALIKE), len(kinds))
    header_length = struct.unpack_from(">I", sent, 4)[0] if len(sent) > 8 else 0
    header = sent[8 : 8 + header_length]
    found = alike(sent, 0, len(sent), header, b"10000") if whole else []
    assert found == [b"%d" % number for number in range(10_000, 10_000 + len(found))]
    assert len(found) <= min(same, whole)
    if same == len(kinds) and whole >= ALIKE_MIN:
        assert len(found) == whole


def test_those_that_begin_too_late_are_left() -> None:
    frames = [frame(number, ordered=True) for number in range(10_000, 10_040)]
    sent, size = b"".join(frames), len(frames[0])
    header = frames[0][8 : 8 + struct.unpack_from(">I", frames[0], 4)[0]]
    for to, count in ((20 * size, 20), (20 * size + 1, 21), (20 * size - 1, 20)):
        assert len(alike(sent, 0, to, header, b"10000")) == count


def test_an_opaque_with_a_zero_before_it_is_no_number() -> None:
    odd = frame(10_001, ordered=True).replace(b"10001,", b"01001,")
    like = frame(10_000, ordered=True)
    header = like[8 : 8 + struct.unpack_from(">I", like, 4)[0]]
    assert alike(like + odd + like * 40, 0, 9_999, header, b"10000") == []


MISLEADING = {
    "a space at the end": ('{"code":310,"opaque":%d,"extFields":{"b":"T"},"flag":%d} ', 2),
    "a member of members": ('{"code":310,"opaque":%d,"extFields":{},"flag":%d,"x":{}}', 2),
    "a brace in the remark": ('{"opaque":%d,"extFields":{},"flag":%d,"remark":"}"}', 2),
    "an opaque inside another member": ('{"opaque":10000,"a":{"opaque":%d},"extFields":{}}', 1),
    "an opaque in a list": ('{"opaque":10000,"a":[{"opaque":%d}],"extFields":{}}', 1),
    "ext fields inside another member": ('{"opaque":%d,"a":{"extFields":{}},"flag":%d}', 2),
    "another spelling": ('{"opaque":%d,"extFields":{},"opaqu\\u0065":10000}', 1),
}
"""Headers with a number, and perhaps a flag, where a search for texts finds the wrong place."""


@pytest.mark.parametrize("kind", MISLEADING)
def test_headers_that_mislead_a_search_are_decoded_one_by_one(kind: str) -> None:
    """R23: no one-way request is answered, and none with an opaque that is not its own."""
    form, places = MISLEADING[kind]
    headers = [
        (form % (number, 2 * (number == 10_005))[:places]).encode()
        for number in range(10_000, 10_040)
    ]
    sent = b"".join(struct.pack(">II", 4 + len(h), len(h)) + h for h in headers)
    assert alike(sent, 0, len(sent), headers[0], b"10000") == []
