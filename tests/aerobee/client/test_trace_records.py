"""Records of a trace as old and new clients write them."""

from aerobee.client.trace_records import FIELD_END, RECORD_END, records_in


def body(*records: str) -> bytes:
    return "".join(one.replace(" ", FIELD_END) + RECORD_END for one in records).encode()


def test_fields_have_names_and_what_is_not_there_has_none() -> None:
    sent = "Pub 7 R g T ID tag null host 5 3 0 OFFSET true client"
    before = "SubBefore 8 R g REQ ID 0 k"
    ((kind, said), (other, begun)) = records_in(body(sent, before))
    assert (kind, said["msgId"], said["success"], said["clientHost"]) == (
        "Pub",
        "ID",
        "true",
        "client",
    )
    assert "keys" not in said
    assert (other, begun["requestId"], begun["retryTimes"]) == ("SubBefore", "REQ", "0")


def test_a_pub_of_an_old_client_ends_with_its_success() -> None:
    ((_, said),) = records_in(body("Pub 7 R g T ID tag k host 5 3 0 false"))
    assert said["success"] == "false"
    assert "offsetMsgId" not in said


def test_unknown_kinds_and_broken_bytes_are_passed_over() -> None:
    assert list(records_in(body("Lunch 1 2"))) == []
    assert list(records_in(b"\xff\xfe\x02Recall")) == [("Recall", {})]
