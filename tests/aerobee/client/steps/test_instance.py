"""What a client keeps up to date: routes, heartbeats, and whom it has told."""

from itertools import pairwise

import pytest

from aerobee.client.steps.effects import Ask, Effect, Steps, Wait
from aerobee.errors import ConnectError
from aerobee.remoting.wire.bodies.client import HeartbeatData
from aerobee.remoting.wire.headers.client import Heartbeat, UnregisterClient
from aerobee.remoting.wire.headers.namesrv import GetRouteInfo
from tests.aerobee.client.steps.stage import Stage, answer, no_topic, route


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.answers(GetRouteInfo, route("broker-a", broker_ids="0,1"))
    stage.answers(Heartbeat, answer())
    stage.answers(UnregisterClient, answer())
    stage.instance.add_producer("p")
    return stage


def live(stage: Stage, seconds: float) -> list[tuple[float, str]]:
    """The housekeeping of so many seconds: when it asked whom."""
    end = stage.now_s + seconds
    said: list[tuple[float, str]] = []
    steps = stage.instance.housekeeping()
    effect = next(steps)
    while stage.now_s < end:
        if isinstance(effect, Wait):
            stage.now_s += 0.0 if effect.signal.is_set else max(0.0, effect.seconds)
            effect = steps.send(None)
        else:
            said.append((stage.now_s - end + seconds, effect.address))
            effect = answered(stage, steps, effect)
    steps.close()
    return said


def answered(stage: Stage, steps: Steps[None], ask: Ask) -> Effect:
    try:
        return steps.send(stage.carry_out(ask))
    except ConnectError as error:
        return steps.throw(error)


def test_brokers_hear_of_us_at_once_and_every_30_seconds(stage: Stage) -> None:
    stage.perform(stage.instance.fetch_route("T", 1.0))
    assert [said for said in live(stage, 65) if said[1] != "ns:1"] == [
        (0, "broker-a:10911"),
        (30, "broker-a:10911"),
        (60, "broker-a:10911"),
    ]


def test_routes_in_use_are_asked_for_every_30_seconds(stage: Stage) -> None:
    stage.perform(stage.instance.fetch_route("T", 1.0))
    stage.perform(stage.instance.fetch_route("U", 1.0))
    at = [when for when, whom in live(stage, 65) if whom == "ns:1"]
    assert at == [30, 30, 60, 60]


def test_silent_name_servers_do_not_hold_up_heartbeats(stage: Stage) -> None:
    """With many topics brokers would take the client for gone: after two minutes without one."""
    for number in range(50):
        stage.perform(stage.instance.fetch_route(f"T{number}", 1.0))
    stage.takes_s[GetRouteInfo] = 3.0
    stage.answers(GetRouteInfo, ConnectError("silent"))
    at = [when for when, whom in live(stage, 300) if whom == "broker-a:10911"]
    assert max(after - before for before, after in pairwise(at)) < 60


def test_a_silent_broker_is_told_as_soon_as_it_answers(stage: Stage) -> None:
    stage.perform(stage.instance.fetch_route("T", 1.0))
    stage.answers(Heartbeat, ConnectError("refused"), answer())
    stage.perform(stage.instance.send_heartbeats())
    stage.perform(stage.instance.send_heartbeats())
    stage.perform(stage.instance.send_heartbeats())
    assert len(stage.asked(Heartbeat)) == 2


def test_a_new_connection_means_a_new_heartbeat(stage: Stage) -> None:
    stage.perform(stage.instance.fetch_route("T", 1.0))
    stage.perform(stage.instance.send_heartbeats())
    stage.instance.heartbeat_now.clear()
    stage.instance.connected("broker-a:10911")
    assert stage.instance.heartbeat_now.is_set
    stage.perform(stage.instance.send_heartbeats())
    assert len(stage.asked(Heartbeat)) == 2


def test_a_heartbeat_names_the_groups(stage: Stage) -> None:
    stage.perform(stage.instance.fetch_route("T", 1.0))
    stage.instance.add_producer("other")
    stage.perform(stage.instance.send_heartbeats())
    body = HeartbeatData.from_bytes(stage.asked(Heartbeat)[0].body)
    assert [producer.group_name for producer in body.producer_data_set] == ["other", "p"]
    assert body.consumer_data_set == []


def test_nobody_is_told_of_nothing(stage: Stage) -> None:
    stage.instance.producers.clear()
    stage.perform(stage.instance.fetch_route("T", 1.0))
    stage.perform(stage.instance.send_heartbeats())
    assert not stage.asked(Heartbeat)


def test_the_last_route_is_kept_when_the_name_server_has_none(stage: Stage) -> None:
    known = stage.perform(stage.instance.fetch_route("T", 1.0))
    stage.answers(GetRouteInfo, no_topic())
    stage.perform(stage.instance.refresh_routes())
    assert stage.instance.routes["T"] == known


def test_a_broker_that_is_gone_is_not_waited_for_in_leaving(stage: Stage) -> None:
    stage.answers(GetRouteInfo, route("broker-a", "broker-b"))
    stage.perform(stage.instance.fetch_route("T", 1.0))
    stage.answers(UnregisterClient, ConnectError("refused"), answer())
    stage.perform(stage.instance.leave(producer="p", within_s=4.0))
    left = [ask.header.ext() for ask in stage.asked(UnregisterClient)]
    assert left == [{"clientID": "me@1", "producerGroup": "p"}] * 2
    assert not stage.instance.producers


def test_leaving_waits_for_heartbeats_under_way(stage: Stage) -> None:
    stage.perform(stage.instance.fetch_route("T", 1.0))
    beating = stage.instance.send_heartbeats()
    asked = next(beating)
    leaving = stage.instance.leave(producer="p", within_s=4.0)
    waits = next(leaving)
    assert isinstance(asked, Ask)
    assert isinstance(waits, Wait)
    assert not waits.signal.is_set
    with pytest.raises(StopIteration):
        beating.send(answer())
    assert waits.signal.is_set
    left = leaving.send(None)
    assert isinstance(left, Ask)
    assert isinstance(left.header, UnregisterClient)


def test_leaving_does_not_wait_for_ever(stage: Stage) -> None:
    stage.perform(stage.instance.fetch_route("T", 1.0))
    beating = stage.instance.send_heartbeats()
    next(beating)
    begun = stage.now_s
    stage.perform(stage.instance.leave(producer="p", within_s=4.0))
    assert stage.now_s - begun == 4.0
    beating.close()
