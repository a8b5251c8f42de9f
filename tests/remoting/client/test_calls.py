"""The table of calls: every answer to its own call, or to nobody."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import msgpack  # type: ignore[import-untyped] # ships no types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.remoting.client import calls as module
from aerobee.remoting.client.calls import Calls, host_and_port, reason_of, refuse
from aerobee.remoting.errors import ConnectFailed, FrameError, HeaderError, RemotingError
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.codes import Encoding
from aerobee.remoting.wire.frame import MAX_FRAME_BYTES
from aerobee.remoting.wire.headers.namesrv import GetRouteInfo
from aerobee.remoting.wire.headers.offset import OffsetResponse
from tests.kit.plain_frames import read_plainly
from tests.kit.raw_client import request_frame

if TYPE_CHECKING:
    from aerobee.remoting.wire.command import Command

ANSWER = 1
ONEWAY = 2
ROUTE = GetRouteInfo(topic="T")


def answer(opaque: int, body: bytes = b"", **ext: str) -> bytes:
    return request_frame(0, opaque, ext, body, flag=ANSWER)


def received(calls: Calls[str], data: bytes) -> list[tuple[str | None, bytes]]:
    arrived, broken = calls.receive(data)
    assert broken is None
    return [(waiting, bytes(command.body)) for waiting, command in arrived]


def test_a_request_says_what_is_asked_and_who_asks() -> None:
    frame = Calls[str]().request(ROUTE, b"body", "me")[1]
    plain = read_plainly(frame)
    assert plain == (105, 1, 0, 479, None, {"topic": "T"}, b"body")
    assert b'"language":"PYTHON"' in frame


def test_a_one_way_request_has_the_bit_and_waits_for_nothing() -> None:
    calls = Calls[str]()
    assert read_plainly(calls.oneway(ROUTE, b"")).flag == ONEWAY
    assert len(calls) == 0


@given(
    order=st.permutations(range(8)),
    forgotten=st.sets(st.integers(0, 7)),
    cuts=st.lists(st.integers(0, 700)),
)
def test_each_answer_reaches_its_call_in_any_order_and_any_cut_of_the_bytes(
    order: list[int], forgotten: set[int], cuts: list[int]
) -> None:
    calls = Calls[int]()
    opaques = [calls.request(ROUTE, b"", number)[0] for number in range(8)]
    for number in forgotten:
        calls.forget(opaques[number])
    stream = b"".join(answer(opaques[number], b"%d" % number) for number in order)
    heard = []
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    for start, end in pairwise(edges):
        arrived, broken = calls.receive(stream[start:end])
        assert broken is None
        heard += [(waiting, int(command.body)) for waiting, command in arrived]
    assert heard == [(number, number) for number in order if number not in forgotten]
    assert len(calls) == 0


def test_a_late_answer_finds_nobody_and_harms_nobody() -> None:
    calls = Calls[str]()
    first, _ = calls.request(ROUTE, b"", "first")
    calls.forget(first)
    second, _ = calls.request(ROUTE, b"", "second")
    assert received(calls, answer(first)) == []
    assert received(calls, answer(second, b"yours") + answer(second, b"again")) == [
        ("second", b"yours")
    ]


def test_a_request_of_the_server_is_no_answer_whatever_its_number() -> None:
    calls = Calls[str]()
    opaque, _ = calls.request(ROUTE, b"", "me")
    assert received(calls, request_frame(40, opaque, {}, b"x")) == [(None, b"x")]
    assert received(calls, answer(opaque)) == [("me", b"")]


def test_bodies_outlive_the_bytes_that_they_came_in() -> None:
    calls = Calls[str]()
    opaque, _ = calls.request(ROUTE, b"", "me")
    data = bytearray(answer(opaque, b"body", topic="T"))
    ((_, command),), _ = calls.receive(memoryview(data))  # type: ignore[arg-type]  # to overwrite it
    data[:] = bytes(len(data))
    assert type(command.body) is bytes
    assert command.body == b"body"
    assert command.ext_fields() == {"topic": "T"}


def test_numbers_go_round_without_zero_and_without_those_still_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LARGEST_OPAQUE", 3)
    calls = Calls[str]()
    assert [calls.request(ROUTE, b"", "")[0] for _ in range(3)] == [1, 2, 3]
    calls.forget(2)
    assert calls.request(ROUTE, b"", "")[0] == 2


def test_too_many_calls_are_refused_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_IN_FLIGHT", 1)
    calls = Calls[str]()
    opaque, _ = calls.request(ROUTE, b"", "first")
    with pytest.raises(RemotingError, match="1 requests wait"):
        calls.request(ROUTE, b"", "second")
    assert received(calls, answer(opaque)) == [("first", b"")]
    calls.request(ROUTE, b"", "third")


def test_a_request_longer_than_peers_take_makes_no_call() -> None:
    calls = Calls[str](Encoding.MSGPACK)
    with pytest.raises(FrameError):
        calls.request(ROUTE, bytes(MAX_FRAME_BYTES), "me")
    assert len(calls) == 0
    assert read_plainly(calls.request(ROUTE, b"", "me")[1]).ext["aeroSer"] == "2"


def test_closing_names_everyone_who_waits() -> None:
    calls = Calls[str]()
    opaque, _ = calls.request(ROUTE, b"", "a")
    calls.request(ROUTE, b"", "b")
    assert calls.close() == ["a", "b"]
    assert received(calls, answer(opaque)) == []


@pytest.mark.parametrize(
    "nonsense", [b"GET / HTTP/1.1\r\n", request_frame(0, 1).replace(b'"code"', b'"code:')]
)
def test_what_came_before_nonsense_still_counts(nonsense: bytes) -> None:
    calls = Calls[str]()
    opaque, _ = calls.request(ROUTE, b"", "me")
    arrived, broken = calls.receive(answer(opaque) + nonsense)
    assert [waiting for waiting, _ in arrived] == ["me"]
    assert isinstance(broken, FrameError)


# ── Types of headers ──


def test_the_first_request_offers_msgpack_and_a_grant_switches() -> None:
    calls = Calls[str](Encoding.MSGPACK)
    opaque, first = calls.request(ROUTE, b"", "first")
    _, second = calls.request(ROUTE, b"", "second")
    assert read_plainly(first).ext == {"topic": "T", "aeroSer": "2"}
    assert read_plainly(second).ext == {"topic": "T"}
    received(calls, answer(opaque, aeroSer="2"))
    _, third = calls.request(ROUTE, b"", "third")
    assert third[4] == Encoding.MSGPACK
    assert msgpack.unpackb(third[8:]) == [105, 0, 3, ["T"]]


def test_a_grant_counts_even_if_its_call_was_given_up() -> None:
    calls = Calls[str](Encoding.MSGPACK)
    opaque, _ = calls.request(ROUTE, b"", "first")
    calls.forget(opaque)
    assert received(calls, answer(opaque, aeroSer="2")) == []
    assert calls.encoding == Encoding.MSGPACK


@pytest.mark.parametrize("said", ["0", "1", ""])
def test_without_a_grant_headers_stay_json(said: str) -> None:
    calls = Calls[str](Encoding.MSGPACK)
    opaque, _ = calls.request(ROUTE, b"", "first")
    received(calls, answer(opaque, aeroSer=said))
    later, _ = calls.request(ROUTE, b"", "second")
    received(calls, answer(later, aeroSer="2"))
    assert calls.encoding == Encoding.JSON


def test_a_one_way_request_comes_first_and_nothing_is_offered_any_more() -> None:
    calls = Calls[str](Encoding.MSGPACK)
    assert "aeroSer" not in read_plainly(calls.oneway(ROUTE, b"")).ext
    assert "aeroSer" not in read_plainly(calls.request(ROUTE, b"", "")[1]).ext


def test_the_binary_form_is_used_from_the_first_request_when_asked_for() -> None:
    _, frame = Calls[str](Encoding.ROCKETMQ).request(ROUTE, b"", "me")
    assert frame[4] == Encoding.ROCKETMQ
    assert read_plainly(frame).ext == {"topic": "T"}


# ── Requests of the server ──


def asked(*, oneway: bool = False) -> Command:
    ((_, command),), _ = Calls[str]().receive(
        request_frame(40, 9, {}, b"", flag=ONEWAY if oneway else 0)
    )
    return command


def test_a_code_is_answer_enough() -> None:
    plain = read_plainly(Calls[str]().reply(lambda request: request.code, asked()))
    assert (plain.code, plain.opaque, plain.flag) == (40, 9, ANSWER)


@pytest.mark.parametrize("body", [b"whole", [b"wh", memoryview(b"ole")]])
def test_an_answer_leaves_with_all_it_has(body: bytes | list[bytes | memoryview]) -> None:
    given = Answer(0, header=OffsetResponse(offset=7), remark="so it is", body=body)
    plain = read_plainly(Calls[str]().reply(lambda _: given, asked()))
    assert (plain.ext, plain.remark, plain.body) == ({"offset": "7"}, "so it is", b"whole")


def test_nothing_is_said_to_a_one_way_request_nor_without_an_answer() -> None:
    assert Calls[str]().reply(refuse, asked(oneway=True)) == b""
    assert Calls[str]().reply(lambda _: None, asked()) == b""


def test_a_request_that_cannot_be_read_is_told_so() -> None:
    def read(request: Command) -> int:
        raise HeaderError("topic", "is missing")

    plain = read_plainly(Calls[str]().reply(read, asked()))
    assert (plain.code, plain.remark) == (1, "header field topic is missing")


def test_unserved_requests_are_refused_as_not_supported() -> None:
    assert read_plainly(Calls[str]().reply(refuse, asked())).code == 3


# ── Addresses and reasons ──


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("127.0.0.1:10911", ("127.0.0.1", 10911)),
        ("broker.example:1", ("broker.example", 1)),
        ("[::1]:9876", ("::1", 9876)),
        ("::1:9876", ("::1", 9876)),
    ],
)
def test_an_address_has_a_host_and_a_port(address: str, parts: tuple[str, int]) -> None:
    assert host_and_port(address) == parts


@pytest.mark.parametrize(
    "address", ["", "host", ":1", "host:", "host:x", "host:0", "host:65536", f"host:{'1' * 5000}"]
)
def test_what_is_no_address_is_named(address: str) -> None:
    with pytest.raises(ConnectFailed, match=repr(address)):
        host_and_port(address)


def test_the_reason_is_the_deepest_one() -> None:
    outer = OSError("All connection attempts failed")
    outer.__cause__ = ExceptionGroup(
        "several",
        [
            ConnectionRefusedError(111, "Connect call failed"),
            OSError(-2, "no such name"),
            ValueError(),
        ],
    )
    assert reason_of(outer) == "Connection refused; no such name; ValueError"
