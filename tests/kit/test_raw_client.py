"""The raw client against the golden bytes of the protocol, so that it may judge others."""

import socket
import threading
from collections.abc import Iterator

import pytest

from tests.kit.plain_frames import read_plainly
from tests.kit.playbook import Playbook
from tests.kit.raw_client import batch_body, properties_text, records, request_frame

GOLDEN_RECORD = bytes.fromhex(
    "00000065daa320a758932aac00000001000000000000000000000002000000000000012c00000000"
    "0000018bcfe568007f0000010000c3500000018bcfe568017f00000100002a9f0000000000000000"
    "0000000000000002686901540007544147530141"
    "02"
)
"""Topic T, body "hi", queue 1, offset 2, physical 300, tag A. Source: remoting §4.1."""

GOLDEN_ITEM = (
    "0000002c000000000000000000000000000000026869001457414954017472756502544147530174616741" + "02"
)


def test_a_golden_record_is_read_field_by_field() -> None:
    [record] = records(GOLDEN_RECORD)
    assert (record.topic, record.body, record.properties) == ("T", b"hi", "TAGS\x01A\x02")
    assert (record.queue_id, record.queue_offset, record.physical_offset) == (1, 2, 300)
    assert record.store_timestamp == 1_700_000_000_001


def test_a_changed_body_is_noticed() -> None:
    with pytest.raises(AssertionError, match="CRC"):
        list(records(GOLDEN_RECORD.replace(b"hi", b"ho")))


def test_a_batch_item_has_the_golden_bytes() -> None:
    text = properties_text(WAIT="true", TAGS="tagA")
    assert batch_body({b"hi": text}).hex() == GOLDEN_ITEM


def test_a_request_reads_back_as_it_was_meant() -> None:
    plain = read_plainly(request_frame(310, 7, {"b": "T", "k": False, "l": None, "e": 3}, b"x"))
    assert (plain.code, plain.opaque, plain.flag, plain.body) == (310, 7, 0, b"x")
    assert plain.ext == {"b": "T", "k": "false", "e": "3"}


@pytest.fixture
def echo() -> Iterator[str]:
    """A server that answers the first request with success and then closes."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            opaque = read_plainly(connection.recv(65_536)).opaque
            connection.sendall(request_frame(0, opaque, {"queueOffset": 5}, flag=1))

    thread = threading.Thread(target=serve)
    thread.start()
    yield f"127.0.0.1:{server.getsockname()[1]}"
    thread.join()
    server.close()


def test_a_playbook_hears_the_answer_and_the_close(echo: str) -> None:
    with Playbook(echo) as play:
        opaque = play.says(310, {"b": "T"})
        play.hears(0, opaque=opaque, queueOffset="5")
        play.hears_close()


def expect_a_refusal(address: str) -> None:
    with Playbook(address) as play:
        play.says(310, {"b": "T"})
        play.hears(13)


def test_a_play_that_goes_wrong_is_shown_as_far_as_it_went(echo: str) -> None:
    with pytest.raises(AssertionError) as wrong:
        expect_a_refusal(echo)
    assert "we: #1 310" in "".join(wrong.value.__notes__)
