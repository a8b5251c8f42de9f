"""The offsets of a master are read in parts, and what is malformed is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aerobee.broker.consumers.consumer_offsets import offsets_of
from aerobee.broker.consumers.offset_answer import PART, offsets_in_parts
from aerobee.remoting.wire import relaxed_json

OF_JAVA = (
    b'{"dataVersion":{"counter":3,"stateVersion":0,"timestamp":1},'
    b'"groupTopicMap":{"G":["T"],"offsetTable":["T"]},'
    b'"offsetTable":{"T@G":{0:17,1:0},"T@offsetTable":{3:9},"%RETRY%G@G":{}}}'
)
ENTRIES = 20_000


def read(body: bytes) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for key, queues in offsets_in_parts(body):
        found.setdefault(key, {}).update(queues)
    return found


@pytest.mark.parametrize(
    "body",
    [
        OF_JAVA,
        OF_JAVA.replace(b":{", b" : {\n ").replace(b",", b" ,\t"),
        b'{"offsetTable":{"T@G":{"0":17,"1":-1}}}',
        b'{"offsetTable":{}}',
        b'{"offsetTable":{"no separator":{"0":1},"T@\\u00e4\\"{":{"0":9223372036854775807}}}',
        '{"offsetTable":{"T@ä":{"0":1}}}'.encode(),
    ],
)
def test_it_is_what_the_whole_document_says(body: bytes) -> None:
    assert read(body) == offsets_of(relaxed_json.decode(body))


def test_a_great_table_is_read_in_small_parts() -> None:
    table: dict[str, Any] = {f"T{number}@G": {"0": number} for number in range(ENTRIES)}
    table["wide@G"] = {str(queue): queue for queue in range(5 * PART + 1)}
    parts = list(offsets_in_parts(json.dumps({"offsetTable": table}).encode()))
    assert max(len(queues) for _, queues in parts) == PART
    assert len(parts) == ENTRIES + 6
    assert sum(len(queues) for _, queues in parts) == ENTRIES + 5 * PART + 1


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "it has no offsetTable"),
        (b"{}", "it has no offsetTable"),
        (b'{"offsetTable":{"T@G":{"0":1}', "no offset of a queue at byte 2"),
        (b'{"offsetTable":{"T@G":{"0":1}}'[:-1] + b" x}", "no offset of a queue"),
        (b'{"offsetTable":{"T@G":{"0":"1"}}}', "no offset of a queue at byte 23 of .* 'T@G'"),
        (b'{"offsetTable":{"T@G":{"0":12345678901234567890}}}', "no offset of a queue"),
        (b'{"offsetTable":{"T@G":[1]}}', "no topic and group at byte 16"),
        (b'{"offsetTable":{"T@G', "no topic and group"),
        (b'{"offsetTable":{"T@\xff":{"0":1}}}', "can't decode"),
        (b'{"offsetTable":{"T@\\x":{"0":1}}}', "[Ii]nvalid"),
    ],
)
def test_what_is_malformed_is_refused(body: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        read(body)
