from __future__ import annotations

from hyperframe.frame import Frame, GoAwayFrame

from aerobee.remoting.http2.events import ErrorCode
from aerobee.remoting.http2.floods import Floods, go_away
from aerobee.remoting.http2.limits import Http2Limits


def test_what_comes_too_often_is_told_once_with_its_name() -> None:
    floods = Floods(Http2Limits(pings_per_s=3))

    told = [floods.count("pings_per_s", 0) for _ in range(5)]

    assert told == [True, True, True, False, True]
    assert floods.reason == "pings: more than 3 a second"


def test_a_limit_is_for_each_kind_and_comes_back_with_time() -> None:
    floods = Floods(Http2Limits(pings_per_s=2, settings_per_s=2))

    assert all(floods.count("pings_per_s", 0) for _ in range(2))
    assert all(floods.count("settings_per_s", 0) for _ in range(2))
    assert all(floods.count("pings_per_s", 1_000) for _ in range(2))
    assert not floods.reason


def test_our_frame_is_one_that_others_read() -> None:
    data = memoryview(go_away(7, ErrorCode.ENHANCE_YOUR_CALM))

    frame, length = Frame.parse_frame_header(data[:9])
    frame.parse_body(data[9:])

    assert isinstance(frame, GoAwayFrame)
    assert (length, frame.last_stream_id, frame.error_code) == (8, 7, 11)
