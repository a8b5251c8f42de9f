from collections.abc import Generator, Iterable
from itertools import zip_longest
from typing import Any

import pytest

from aerobee.broker.errors import LimitReached, Refusal
from aerobee.broker.namesrv.registrations import (
    LOST_KEPT_MS,
    LOST_MAX,
    QUEUES_MAX,
    LiveKey,
    LostBrokers,
    MinIdChange,
    Registration,
    RegistrationAnswer,
    timeout_ms,
)
from aerobee.broker.namesrv.route_table import ADDRESSES_MAX, RouteTable
from aerobee.broker.namesrv.topic_queues import TOPICS_STEP
from aerobee.remoting.server.routes import finished
from aerobee.remoting.wire.bodies.data_version import DataVersion
from aerobee.remoting.wire.bodies.route import QueueData
from aerobee.remoting.wire.bodies.topic import TopicConfig
from tests.broker.peers import Peer


def topic(name: str, perm: int = 6, queues: int = 4) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)


def version(counter: int = 1, state_version: int = 0) -> DataVersion:
    return DataVersion(state_version=state_version, timestamp=1, counter=counter)


def registration(
    topics: Iterable[TopicConfig] = (topic("T1"), topic("T2")),
    *,
    broker: str = "py-a",
    address: str = "127.0.0.1:30911",
    broker_id: int = 0,
    **fields: Any,
) -> Registration:
    defaults: dict[str, Any] = {
        "cluster": "PyC",
        "ha_address": "127.0.0.1:30912",
        "version": version(),
    }
    return Registration(
        broker=broker,
        address=address,
        broker_id=broker_id,
        topics={config.topic_name: config for config in topics},
        **{**defaults, **fields},
    )


def slave(**fields: Any) -> Registration:
    return registration(address="127.0.0.1:30931", broker_id=1, **fields)


def perms(routes: RouteTable, name: str) -> dict[str, int]:
    route = routes.route(name)
    return {} if route is None else {queue.broker_name: queue.perm for queue in route.queue_datas}


def addresses(routes: RouteTable, broker: str = "py-a") -> dict[int, str]:
    return routes.brokers[broker].addresses if broker in routes.brokers else {}


def test_a_registered_broker_has_routes() -> None:
    routes = RouteTable()
    assert finished(routes.register(registration(), 0)) == RegistrationAnswer()
    route = routes.route("T1")
    assert route is not None
    [data] = route.broker_datas
    assert (data.broker_name, data.cluster) == ("py-a", "PyC")
    assert dict(data.broker_addrs) == {0: "127.0.0.1:30911"}
    [queue] = route.queue_datas
    assert (queue.perm, queue.read_queue_nums, queue.write_queue_nums) == (6, 4, 4)
    assert route.filter_server_table == {}


def test_an_unknown_topic_has_no_route() -> None:
    assert RouteTable().route("T") is None


def test_brokers_of_a_route_come_in_the_same_order_whoever_registered_first() -> None:
    routes = RouteTable()
    for name in ("c", "a", "b"):
        finished(routes.register(registration(broker=name, address=f"{name}:1"), 0))
    route = routes.route("T1")
    assert route is not None
    assert [data.broker_name for data in route.broker_datas] == ["a", "b", "c"]
    assert [queue.broker_name for queue in route.queue_datas] == ["a", "b", "c"]


def test_a_slave_learns_where_its_master_is() -> None:
    routes = RouteTable()
    assert finished(routes.register(slave(), 0)) == RegistrationAnswer()
    finished(routes.register(registration(), 0))
    assert finished(routes.register(slave(), 0)) == RegistrationAnswer(
        "127.0.0.1:30912", "127.0.0.1:30911"
    )
    assert addresses(routes) == {0: "127.0.0.1:30911", 1: "127.0.0.1:30931"}


def test_a_first_registration_with_one_topic_is_refused_and_leaves_nothing() -> None:
    routes = RouteTable()
    with pytest.raises(Refusal, match="register broker failed") as caught:
        finished(routes.register(registration([topic("T1")]), 0))
    assert caught.value.code == 1
    assert routes.brokers == {}
    assert routes.cluster_info().broker_addr_table == {}


def test_an_increment_of_one_topic_adds_it() -> None:
    routes = RouteTable()
    finished(routes.register(registration(), 0))
    finished(routes.register(registration([topic("T3")], version=version(2)), 0))
    assert finished(routes.topics()) == ["T1", "T2", "T3"]


def test_topics_are_read_again_only_when_the_version_differs() -> None:
    routes = RouteTable()
    finished(routes.register(registration(), 0))
    assert finished(routes.wipe_write_perm("py-a")) == 2
    finished(routes.register(registration(), 0))
    assert perms(routes, "T1") == {"py-a": 4}
    finished(routes.register(registration(version=version(2)), 0))
    assert perms(routes, "T1") == {"py-a": 6}


def test_a_topic_that_is_new_to_the_broker_is_read_under_the_same_version_too() -> None:
    routes = RouteTable()
    finished(routes.register(registration(), 0))
    finished(routes.register(registration([topic("T1", perm=4), topic("T3")]), 0))
    assert perms(routes, "T1") == {"py-a": 6}
    assert perms(routes, "T3") == {"py-a": 6}


def test_topics_missing_from_a_registration_stay() -> None:
    routes = RouteTable()
    finished(routes.register(registration(), 0))
    finished(routes.register(registration([topic("T1")], version=version(2)), 0))
    assert finished(routes.topics()) == ["T1", "T2"]


def test_topics_missing_from_a_registration_go_where_that_is_wanted() -> None:
    routes = RouteTable(deletes_missing=lambda: True)
    finished(routes.register(registration(), 0))
    other = registration([topic("T1"), topic("T3")], broker="py-b", address="127.0.0.1:30921")
    finished(routes.register(other, 0))
    finished(routes.register(slave(topics=[]), 0))
    assert finished(routes.topics()) == ["T1", "T2", "T3"]
    finished(routes.register(registration([topic("T2")], mapped=True), 0))
    assert perms(routes, "T1") == {"py-a": 6, "py-b": 6}, "not while static topics are mapped"
    # Under the same version, too, and by an increment that should have been a 217.
    finished(routes.register(registration([topic("T2"), topic("T4")]), 0))
    assert finished(routes.topics()) == ["T1", "T2", "T3", "T4"]
    assert perms(routes, "T1") == {"py-b": 6}
    finished(routes.register(registration([]), 0))
    assert finished(routes.topics()) == ["T1", "T3"]


def test_a_slaves_topics_do_not_count() -> None:
    routes = RouteTable()
    finished(routes.register(registration(), 0))
    finished(routes.register(slave(topics=[topic("S1"), topic("S2")]), 0))
    assert finished(routes.topics()) == ["T1", "T2"]


def test_the_smallest_id_gives_the_topics_where_a_slave_may_act_as_master() -> None:
    routes = RouteTable()
    finished(routes.register(slave(enable_acting_master=True), 0))
    assert perms(routes, "T1") == {"py-a": 4}
    routes = RouteTable()
    finished(routes.register(slave(enable_acting_master=False), 0))
    assert perms(routes, "T1") == {"py-a": 6}
    routes = RouteTable()
    finished(routes.register(slave(), 0))
    assert perms(routes, "T1") == {}


def test_a_promoted_slave_leaves_its_old_id() -> None:
    routes = RouteTable()
    finished(routes.register(registration(), 0))
    finished(routes.register(slave(), 0))
    finished(routes.register(registration(address="127.0.0.1:30931"), 0))
    assert addresses(routes) == {0: "127.0.0.1:30931"}


def test_an_address_of_an_older_state_does_not_take_an_id() -> None:
    routes = RouteTable()
    finished(routes.register(registration(version=version(state_version=2)), 0))
    other = registration(address="127.0.0.1:9", version=version(state_version=1))
    assert finished(routes.register(other, 0)) == RegistrationAnswer()
    assert addresses(routes) == {0: "127.0.0.1:30911"}
    finished(
        routes.register(registration(address="127.0.0.1:9", version=version(state_version=3)), 0)
    )
    assert addresses(routes) == {0: "127.0.0.1:9"}


def test_a_slave_that_takes_itself_for_the_old_master_leaves_no_address_behind() -> None:
    routes = RouteTable()
    new = registration(address="127.0.0.1:1", version=version(state_version=2))
    finished(routes.register(new, 0))
    finished(routes.register(slave(), 0))
    outdated = registration(address=slave().address)
    assert finished(routes.register(outdated, 0)) == RegistrationAnswer()
    # Nothing would take it away any more.
    assert routes.brokers["py-a"].addresses == {0: "127.0.0.1:1"}


def test_a_broker_whose_place_another_address_took_is_asked_for_everything() -> None:
    routes = RouteTable()
    finished(routes.register(registration(), 0))
    finished(routes.register(registration(address="127.0.0.1:9"), 0))
    assert routes.stored_version("PyC", "127.0.0.1:30911", 0) is None
    routes.unregister("PyC", "127.0.0.1:9")
    # Its data are those of before: it would never be in a route again.
    assert routes.stored_version("PyC", "127.0.0.1:30911", 0) is None
    finished(routes.register(registration(), 0))
    assert routes.stored_version("PyC", "127.0.0.1:30911", 0) == version()


def test_one_broker_name_is_one_broker_whatever_the_cluster() -> None:
    routes = RouteTable()
    finished(routes.register(registration(), 0))
    finished(routes.register(registration(cluster="Other", broker_id=1, address="127.0.0.1:9"), 0))
    info = routes.cluster_info()
    assert info.cluster_addr_table == {"PyC": ["py-a"]}
    assert dict(info.broker_addr_table["py-a"].broker_addrs) == {
        0: "127.0.0.1:30911",
        1: "127.0.0.1:9",
    }


def test_a_good_bye_takes_the_broker_and_its_topics() -> None:
    routes = RouteTable()
    finished(routes.register(registration(), 0))
    finished(routes.register(registration(broker="py-b", address="127.0.0.1:9"), 0))
    routes.unregister("PyC", "127.0.0.1:30911")
    assert perms(routes, "T1") == {"py-b": 6}
    routes.unregister("PyC", "127.0.0.1:9")
    assert finished(routes.topics()) == []
    assert routes.cluster_info().cluster_addr_table == {}
    routes.unregister("PyC", "127.0.0.1:9")


def test_when_a_slave_remains_the_topics_stay() -> None:
    routes = RouteTable()
    finished(routes.register(registration(), 0))
    finished(routes.register(slave(), 0))
    routes.unregister("PyC", "127.0.0.1:30911")
    assert addresses(routes) == {1: "127.0.0.1:30931"}
    assert perms(routes, "T1") == {"py-a": 6}


def test_without_a_master_an_acting_group_is_not_written_to() -> None:
    routes = RouteTable()
    finished(routes.register(registration(enable_acting_master=True), 0))
    finished(routes.register(slave(enable_acting_master=True), 0))
    routes.unregister("PyC", "127.0.0.1:30911")
    assert perms(routes, "T1") == {"py-a": 4}


def test_a_closed_connection_takes_what_registered_over_it_last() -> None:
    routes = RouteTable()
    old, new = Peer(), Peer()
    finished(routes.register(registration(connection=old), 0))
    finished(routes.register(registration(connection=new), 0))
    assert routes.connection_closed(old.id) == []
    assert routes.connection_closed(new.id) == ["127.0.0.1:30911"]
    assert finished(routes.topics()) == []


def test_a_silent_broker_expires_with_its_connection() -> None:
    routes = RouteTable()
    peer = Peer()
    finished(routes.register(registration(connection=peer, timeout_ms=1_000), 0))
    assert routes.expire(1_000) == []
    assert routes.expire(1_001) == [peer]
    assert routes.brokers == {}


def test_a_broker_without_its_own_time_out_has_120_seconds() -> None:
    routes = RouteTable()
    finished(routes.register(registration(), 0))
    routes.expire(120_000)
    assert addresses(routes) != {}
    routes.expire(120_001)
    assert addresses(routes) == {}


def test_asking_for_the_version_is_a_sign_of_life() -> None:
    routes = RouteTable()
    finished(routes.register(registration(), 0))
    assert routes.stored_version("PyC", "127.0.0.1:30911", 100_000) == version()
    assert routes.stored_version("PyC", "unknown:1", 0) is None
    routes.expire(200_000)
    assert addresses(routes) != {}


def test_write_permission_can_be_given_back() -> None:
    routes = RouteTable()
    finished(routes.register(registration([topic("T1", perm=7), topic("T2", perm=4)]), 0))
    assert finished(routes.wipe_write_perm("py-a")) == 2
    assert (perms(routes, "T1"), perms(routes, "T2")) == ({"py-a": 5}, {"py-a": 4})
    assert finished(routes.add_write_perm("py-a")) == 2
    assert (perms(routes, "T1"), perms(routes, "T2")) == ({"py-a": 6}, {"py-a": 6})
    assert finished(routes.wipe_write_perm("unknown")) == 0


def test_a_topic_is_deleted_everywhere_or_in_one_cluster() -> None:
    routes = RouteTable()
    finished(routes.register(registration(), 0))
    finished(routes.register(registration(broker="b", cluster="Other", address="b:1"), 0))
    routes.delete_topic("T1", "Other")
    assert perms(routes, "T1") == {"py-a": 6}
    routes.delete_topic("T1")
    assert routes.route("T1") is None
    routes.delete_topic("T1")
    assert finished(routes.topics("Other")) == ["T2"]
    assert finished(routes.topics("Unknown")) == []


def test_cluster_and_broker_names_are_system_names() -> None:
    routes = RouteTable()
    assert routes.system_names() == ([], None)
    finished(routes.register(registration(), 0))
    assert routes.system_names() == (["PyC", "py-a"], "127.0.0.1:30911")


def test_filter_servers_go_out_with_the_routes_of_their_broker() -> None:
    routes = RouteTable()
    finished(routes.register(registration(filter_servers=["f:1"]), 0))
    route = routes.route("T1")
    assert route is not None
    assert route.filter_server_table == {"127.0.0.1:30911": ["f:1"]}


# ── Our own broker ──


def own(
    routes: RouteTable, topics: Iterable[TopicConfig] = (topic("T1"),), broker_id: int = 0
) -> None:
    routes.register_own(
        cluster="PyC",
        broker="own",
        broker_id=broker_id,
        address="10.0.0.1:10911",
        ha_address="10.0.0.1:10912",
        topics=topics,
    )


def test_a_slave_of_our_own_broker_is_told_where_its_master_is() -> None:
    routes = RouteTable()
    own(routes)
    slave = registration(cluster="PyC", broker="own", broker_id=1, address="10.0.0.2:10911")
    told = finished(routes.register(slave, 0))
    assert (told.ha_address, told.master_address) == ("10.0.0.1:10912", "10.0.0.1:10911")


def test_our_own_broker_never_expires() -> None:
    routes = RouteTable()
    own(routes)
    assert routes.expire(10**12) == []
    assert perms(routes, "T1") == {"own": 6}


def test_our_own_address_is_the_one_the_client_can_reach() -> None:
    routes = RouteTable()
    own(routes)
    shown = {"own": "192.168.1.5:10911"}
    route = routes.route("T1", shown.get)
    assert route is not None
    assert dict(route.broker_datas[0].broker_addrs) == {0: "192.168.1.5:10911"}
    info = routes.cluster_info(shown.get)
    assert dict(info.broker_addr_table["own"].broker_addrs) == {0: "192.168.1.5:10911"}
    assert addresses(routes, "own") == {0: "10.0.0.1:10911"}


def test_a_slave_of_our_own_is_never_shown_as_its_master() -> None:
    routes = RouteTable()
    own(routes, broker_id=1)
    finished(routes.register(registration(broker="own", address="10.0.0.9:10911"), 0))
    data = routes.broker_data("own", {"own": "192.168.1.5:10911"}.get)
    assert dict(data.broker_addrs) == {0: "10.0.0.9:10911", 1: "192.168.1.5:10911"}


def test_our_own_topics_follow_every_change() -> None:
    routes = RouteTable()
    own(routes)
    routes.update_own([topic("T2", queues=8)])
    assert finished(routes.topics()) == ["T1", "T2"]
    routes.delete_own("T1")
    assert finished(routes.topics()) == ["T2"]


@pytest.mark.parametrize(("cluster", "noted"), [(None, {"T1"}), ("PyC", {"T1"}), ("Other", set())])
def test_a_route_of_our_own_broker_that_is_deleted_is_noted(
    cluster: str | None, noted: set[str]
) -> None:
    routes = RouteTable()
    routes.delete_topic("T1", cluster)
    assert routes.own_deleted == set()
    own(routes)
    routes.delete_topic("T1", cluster)
    assert routes.own_deleted == noted
    assert perms(routes, "T1") == ({} if noted else {"own": 6})


def test_no_one_takes_the_name_of_our_own_broker_or_its_address() -> None:
    routes = RouteTable()
    own(routes)
    with pytest.raises(Refusal, match="brokerName"):
        finished(routes.register(registration(broker="own", address="evil:1"), 0))
    routes.unregister("PyC", "10.0.0.1:10911")
    assert addresses(routes, "own") == {0: "10.0.0.1:10911"}


def test_a_slave_of_our_own_broker_comes_and_goes() -> None:
    routes = RouteTable()
    own(routes)
    finished(routes.register(slave(broker="own"), 0))
    assert addresses(routes, "own") == {0: "10.0.0.1:10911", 1: "127.0.0.1:30931"}
    routes.expire(10**9)
    assert addresses(routes, "own") == {0: "10.0.0.1:10911"}


def test_a_slave_that_claims_our_own_address_does_not_take_it_away() -> None:
    routes = RouteTable()
    own(routes)
    finished(routes.register(registration(broker="own", broker_id=1, address="10.0.0.1:10911"), 0))
    assert addresses(routes, "own")[0] == "10.0.0.1:10911"
    routes.expire(10**9)
    assert addresses(routes, "own") == {0: "10.0.0.1:10911"}


def test_our_own_broker_leaves_when_it_stops() -> None:
    routes = RouteTable()
    own(routes)
    routes.leave_own()
    assert finished(routes.topics()) == []
    assert routes.brokers == {}
    routes.leave_own()


def test_our_own_slave_that_becomes_the_master_keeps_its_topics() -> None:
    routes = RouteTable()
    own(routes, broker_id=1)
    routes.leave_own()
    own(routes)
    list(routes.settle())
    assert perms(routes, "T1") == {"own": 6}
    assert addresses(routes, "own") == {0: "10.0.0.1:10911"}


def test_our_own_slave_that_takes_the_place_of_an_acting_group_s_master_is_written_to() -> None:
    routes = RouteTable()
    own(routes, broker_id=1)
    master = registration(broker="own", broker_id=0, enable_acting_master=True)
    finished(routes.register(master, 0))
    assert routes.unregister(master.cluster, master.address)
    routes.leave_own()
    own(routes)
    list(routes.settle())
    assert perms(routes, "T1") == {"own": 6}


def test_brokers_and_topics_are_limited() -> None:
    routes = RouteTable(max_topics=2, max_brokers=1)
    finished(routes.register(registration(), 0))
    with pytest.raises(LimitReached):
        finished(routes.register(registration(broker="b", address="b:1"), 0))
    with pytest.raises(LimitReached):
        finished(routes.register(registration([topic("T3")], version=version(2)), 0))
    assert finished(routes.topics()) == ["T1", "T2"]


@pytest.mark.parametrize("queues", [QUEUES_MAX + 1, (1 << 31) - 1, -1])
def test_a_topic_with_queues_beyond_measure_is_refused_and_leaves_nothing(queues: int) -> None:
    routes = RouteTable()
    with pytest.raises(Refusal, match="topic T2 is registered with"):
        finished(routes.register(registration([topic("T1"), topic("T2", queues=queues)]), 0))
    assert not routes.brokers
    assert routes.route("T1") is None


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"cluster": ""}, "clusterName"),
        ({"broker": " "}, "brokerName"),
        ({"broker": "../../etc"}, "brokerName"),
        ({"broker": "a\\b"}, "brokerName"),
        ({"broker": "a\0b"}, "brokerName"),
        ({"address": ""}, "brokerAddr"),
        ({"address": "no-port"}, "brokerAddr"),
        ({"address": "host:0"}, "brokerAddr"),
        ({"address": "host:70000"}, "brokerAddr"),
        ({"address": "host:1;other:2"}, "brokerAddr"),
        ({"address": "http://host/x:1"}, "brokerAddr"),
        ({"address": "ho\nst:1"}, "brokerAddr"),
        ({"ha_address": "host"}, "haServerAddr"),
        ({"broker_id": -1}, "brokerId"),
    ],
)
def test_a_registration_that_makes_no_sense_is_refused_with_its_field(
    fields: dict[str, Any], named: str
) -> None:
    routes = RouteTable()
    with pytest.raises(Refusal, match=f"{named} is .*, not "):
        finished(routes.register(registration(**fields), 0))
    assert not routes.brokers
    assert not routes.live


@pytest.mark.parametrize("address", ["broker.lan:1", "[fd00::1]:10911", "fd00::1:10911"])
def test_addresses_of_all_kinds_are_taken(address: str) -> None:
    routes = RouteTable()
    finished(routes.register(registration(address=address, ha_address="broker.lan:0"), 0))
    finished(routes.register(registration(address=address, ha_address=""), 0))
    assert addresses(routes) == {0: address}


def test_how_long_a_broker_may_be_silent_is_what_it_says_within_reason() -> None:
    said = [None, 0, 10_000, -5, 1, 1 << 62]
    assert list(map(timeout_ms, said)) == [120_000, 120_000, 10_000, 1_000, 1_000, 3_600_000]


def test_a_broker_that_changed_its_name_is_not_left_under_the_old_one() -> None:
    routes = RouteTable()
    finished(routes.register(registration(), 0))
    finished(routes.register(registration(broker="renamed"), 0))
    assert set(routes.brokers) == {"renamed"}
    assert perms(routes, "T1") == {"renamed": 6}


def test_pairs_of_topic_and_broker_are_limited_and_room_comes_back() -> None:
    routes = RouteTable(max_pairs=5)
    for name in ("a", "b"):
        finished(routes.register(registration(broker=name, address=f"{name}:1"), 0))
    third = registration(broker="c", address="c:1")
    with pytest.raises(LimitReached, match="topic of a broker"):
        finished(routes.register(third, 0))
    assert "c" not in routes.brokers
    routes.unregister("PyC", "a:1")
    finished(routes.register(third, 0))
    assert perms(routes, "T1") == {"b": 6, "c": 6}


def test_a_topic_is_registered_by_itself_for_brokers_that_are_here() -> None:
    routes = RouteTable(max_topics=2)
    own(routes)
    finished(routes.register(registration(), 0))

    def queue(broker: str, queues: int = 3) -> QueueData:
        return QueueData(
            broker_name=broker, perm=6, read_queue_nums=queues, write_queue_nums=queues
        )

    routes.register_topic("T2", [queue("py-a"), queue("unknown")])
    assert perms(routes, "T2") == {"py-a": 6}
    routes.register_topic("T1", [queue("py-a", 9), queue("own", 9)])
    route = routes.route("T1")
    assert route is not None
    told = {one.broker_name: one.read_queue_nums for one in route.queue_datas}
    assert told == {"own": 4, "py-a": 9}
    with pytest.raises(Refusal, match="queues to read"):
        routes.register_topic("T1", [queue("py-a", -1)])
    with pytest.raises(LimitReached):
        routes.register_topic("T9", [queue("py-a")])


def test_a_change_of_the_smallest_id_is_told() -> None:
    told: list[MinIdChange] = []
    routes = RouteTable(min_id_changed=told.append)
    finished(routes.register(slave(enable_acting_master=True), 0))
    assert told == []
    both = {1: "127.0.0.1:30931", 0: "127.0.0.1:30911"}
    finished(routes.register(registration(enable_acting_master=True), 0))
    finished(routes.register(registration(enable_acting_master=True), 0))
    assert told == [MinIdChange(both, ("127.0.0.1:30931",), ha_address="127.0.0.1:30912")]
    routes.unregister("PyC", "127.0.0.1:30911")
    left = {1: "127.0.0.1:30931"}
    assert told[1:] == [MinIdChange(left, ("127.0.0.1:30931",), offline="127.0.0.1:30911")]
    routes.unregister("PyC", "127.0.0.1:30931")
    assert len(told) == 2


def register_all(routes: RouteTable, asked: Iterable[Registration]) -> None:
    for one in asked:
        finished(routes.register(one, 0))


def test_ever_new_addresses_and_ids_find_an_end() -> None:
    routes = RouteTable(max_brokers=3 * ADDRESSES_MAX)
    peer, numbers = Peer(), range(1, 1_000)
    of_one_peer = [registration(address=f"10.0.0.1:{n}", connection=peer) for n in numbers]
    with pytest.raises(LimitReached, match="broker address of one connection"):
        register_all(routes, of_one_peer)
    assert len(routes.live) == ADDRESSES_MAX
    ids = [registration(address=f"b:{n}", broker_id=n, connection=Peer()) for n in numbers]
    with pytest.raises(LimitReached, match="address of broker py-a"):
        register_all(routes, ids)
    assert len(addresses(routes)) == ADDRESSES_MAX
    of_many = [registration(address=f"10.0.0.3:{n}", connection=Peer()) for n in numbers]
    with pytest.raises(LimitReached, match="no room for another broker address"):
        register_all(routes, of_many)
    assert len(routes.live) == 3 * ADDRESSES_MAX


@pytest.mark.parametrize(
    "fields",
    [
        {"cluster": "c" * 300},
        {"broker": "b" * 300},
        {"address": "a" * 300},
        {"ha_address": "h" * 300},
        {"filter_servers": ["f" * 300]},
        {"filter_servers": ["f"] * 300},
        {"topics": [topic("T1"), topic("t" * 300)]},
    ],
)
def test_names_beyond_measure_are_refused_and_leave_nothing(fields: dict[str, Any]) -> None:
    routes = RouteTable()
    with pytest.raises(Refusal):
        finished(routes.register(registration(**fields), 0))
    assert not routes.live
    assert not routes.brokers


# ── A registration in steps ──

MANY = [topic(f"T{number:04}") for number in range(2_000)]


def begun(routes: RouteTable, request: Registration) -> Generator[None, None, RegistrationAnswer]:
    """A registration of which some topics are in."""
    steps = routes.register(request, 0)
    while not routes.queues.table:
        next(steps)
    assert 0 < len(routes.queues.table) < len(MANY)
    return steps


def test_a_registration_that_goes_on_shows_whole_routes_and_no_data_version() -> None:
    routes = RouteTable()
    steps = begun(routes, registration(MANY))
    for name in routes.queues.table:
        route = routes.route(name)
        assert route is not None
        assert route.broker_datas[0].broker_addrs == {0: "127.0.0.1:30911"}
    assert routes.stored_version("PyC", "127.0.0.1:30911", 0) != version()
    assert finished(steps) == RegistrationAnswer()
    assert routes.stored_version("PyC", "127.0.0.1:30911", 0) == version()
    assert len(routes.queues.table) == len(MANY)


def test_a_broker_that_leaves_while_it_registers_leaves_nothing() -> None:
    routes = RouteTable()
    steps = begun(routes, registration(MANY))
    routes.unregister("PyC", "127.0.0.1:30911")
    finished(steps)
    list(routes.settle())
    assert (routes.queues.table, routes.brokers, routes.live) == ({}, {}, {})


def test_a_broker_whose_connection_ends_while_it_registers_leaves_nothing() -> None:
    routes = RouteTable()
    peer = Peer()
    steps = begun(routes, registration(MANY, connection=peer))
    steps.close()
    routes.connection_closed(peer.id)
    list(routes.settle())
    assert (routes.queues.table, routes.brokers, routes.live) == ({}, {}, {})


def test_who_leaves_is_in_no_route_from_then_on_and_its_topics_are_cleared_away_in_steps() -> None:
    routes = RouteTable()
    finished(routes.register(registration(MANY), 0))
    finished(routes.register(registration(MANY[:3], broker="py-b", address="127.0.0.1:9"), 0))
    routes.unregister("PyC", "127.0.0.1:30911")
    assert routes.route("T0100") is None
    assert perms(routes, "T0000") == {"py-b": 6}
    one, other = routes.settle(), routes.settle()
    steps = sum(1 for pair in zip_longest(one, other) for _ in pair)
    assert steps >= len(MANY) // TOPICS_STEP
    assert set(routes.queues.table) == {"T0000", "T0001", "T0002"}
    assert (routes.queues.gone, routes.queues.settling) == (set(), None)


def test_a_broker_that_comes_back_before_its_topics_are_cleared_away_keeps_the_new_ones() -> None:
    routes = RouteTable(max_topics=len(MANY))
    finished(routes.register(registration(MANY), 0))
    routes.unregister("PyC", "127.0.0.1:30911")
    clearing = routes.settle()
    next(clearing)
    again = [topic(f"N{number:04}") for number in range(len(MANY) - 10)] + MANY[:10]
    finished(routes.register(registration(again, version=version(9)), 0))
    list(clearing)
    assert set(routes.queues.table) == {one.topic_name for one in again}
    assert perms(routes, "T0001") == perms(routes, "N0001") == {"py-a": 6}


def test_an_acting_group_that_got_its_master_back_is_written_to_again() -> None:
    routes = RouteTable()
    finished(routes.register(registration(MANY, enable_acting_master=True), 0))
    finished(routes.register(slave(enable_acting_master=True), 0))
    routes.unregister("PyC", "127.0.0.1:30911")
    assert perms(routes, "T1000") == {"py-a": 4}
    next(routes.settle())
    finished(routes.register(registration(MANY, enable_acting_master=True), 0))
    list(routes.settle())
    assert perms(routes, "T1000") == perms(routes, "T0001") == {"py-a": 6}


def test_a_broker_that_registers_anew_meanwhile_has_all_its_topics() -> None:
    routes = RouteTable()
    steps = begun(routes, registration(MANY))
    finished(routes.register(registration([topic(one.topic_name, perm=4) for one in MANY]), 0))
    finished(steps)
    assert {perms(routes, one.topic_name)["py-a"] for one in MANY} == {4}
    assert routes.stored_version("PyC", "127.0.0.1:30911", 0) == version()


def test_an_address_that_lost_its_place_meanwhile_writes_no_routes_of_nobody() -> None:
    routes = RouteTable()
    steps = begun(routes, registration(MANY))
    finished(routes.register(registration(address="127.0.0.1:9", version=version(9)), 0))
    routes.unregister("PyC", "127.0.0.1:9")
    finished(steps)
    list(routes.settle())
    assert not routes.brokers
    assert not routes.queues.table


def test_an_address_that_lost_its_place_writes_none_when_all_is_cleared_away_either() -> None:
    routes = RouteTable()
    steps = begun(routes, registration(MANY))
    finished(routes.register(registration(address="127.0.0.1:9", version=version(9)), 0))
    routes.unregister("PyC", "127.0.0.1:9")
    list(routes.settle())
    finished(steps)
    assert not routes.queues.table


def test_a_broker_that_leaves_while_its_topics_are_checked_keeps_what_comes_then() -> None:
    routes = RouteTable()
    finished(routes.register(registration(MANY), 0))
    steps = routes.register(registration(MANY, version=version(2)), 0)
    next(steps)
    routes.expire(130_000)
    assert perms(routes, "T1999") == {}
    finished(steps)
    assert lost(routes) == []
    list(routes.settle())
    assert perms(routes, "T0000") == perms(routes, "T1999") == {"py-a": 6}


def missing_are_going(
    routes: RouteTable, request: Registration
) -> Generator[None, None, RegistrationAnswer]:
    """A registration which removes the topics that it lacks, and has stored none of its own."""
    finished(routes.register(registration(MANY, broker="py-b", address="127.0.0.1:9"), 0))
    steps = routes.register(request, 0)
    while request.broker not in routes.brokers:
        next(steps)
    assert routes.route("T1") is None
    return steps


def test_a_broker_that_leaves_while_missing_topics_go_leaves_nothing() -> None:
    routes = RouteTable(deletes_missing=lambda: True)
    steps = missing_are_going(routes, registration(connection=Peer()))
    routes.expire(130_000)
    finished(steps)
    assert "py-a" in {name for name, *_ in lost(routes)}
    list(routes.settle())
    assert not routes.brokers
    assert not routes.queues.table


def test_a_registration_that_comes_meanwhile_is_not_undone_by_the_one_before() -> None:
    routes = RouteTable(deletes_missing=lambda: True)
    steps = missing_are_going(routes, registration())
    newer = registration([topic("T1", perm=4), topic("T2", perm=4)], version=version(2))
    finished(routes.register(newer, 0))
    finished(steps)
    assert perms(routes, "T1") == {"py-a": 4}
    assert routes.stored_version("PyC", "127.0.0.1:30911", 0) == version(2)


def test_a_registration_deletes_no_topic_of_the_one_that_comes_meanwhile() -> None:
    routes = RouteTable(deletes_missing=lambda: True)
    steps = missing_are_going(routes, registration())
    newer = registration([topic("T1"), topic("T1999")], version=version(2))
    finished(routes.register(newer, 0))
    finished(steps)
    assert perms(routes, "T1999") == {"py-a": 6, "py-b": 6}
    assert perms(routes, "T2") == {}


def test_the_limit_on_topics_holds_when_others_register_meanwhile() -> None:
    routes = RouteTable(max_topics=2_500)
    steps = begun(routes, registration(MANY))
    others = [topic(f"U{number:04}") for number in range(1_500)]
    finished(routes.register(registration(others, broker="py-b", address="127.0.0.1:9"), 0))
    with pytest.raises(LimitReached):
        finished(steps)
    assert len(routes.queues.table) == 2_500
    assert routes.stored_version("PyC", "127.0.0.1:30911", 0) != version()


def lost(routes: RouteTable, now_ms: int = 0) -> list[tuple[str, int, str, int]]:
    listed = routes.cluster_info(now_ms=now_ms).lost_brokers or []
    return [(one.broker_name, one.broker_id, one.broker_addr, one.silent_ms) for one in listed]


def test_a_broker_whose_connection_ends_is_lost_until_it_comes_back() -> None:
    routes = RouteTable()
    peer = Peer()
    finished(routes.register(registration(connection=peer), 1_000))
    assert lost(routes) == []
    assert b"lostBrokers" not in routes.cluster_info().to_bytes()
    routes.connection_closed(peer.id)
    assert lost(routes, 36_000) == [("py-a", 0, "127.0.0.1:30911", 35_000)]
    finished(routes.register(registration(), 40_000))
    assert lost(routes, 40_000) == []


def test_a_silent_broker_is_lost_and_a_replacement_elsewhere_takes_its_place() -> None:
    routes = RouteTable()
    finished(routes.register(registration(), 0))
    routes.expire(10**6)
    assert lost(routes, 10**6) == [("py-a", 0, "127.0.0.1:30911", 10**6)]
    finished(routes.register(registration(address="127.0.0.1:1"), 10**6))
    assert lost(routes, 10**6) == []


def test_a_broker_that_unregisters_is_not_lost_even_if_its_connection_ended_first() -> None:
    routes = RouteTable()
    finished(routes.register(registration(), 0))
    routes.unregister("PyC", "127.0.0.1:30911")
    assert lost(routes) == []
    peer = Peer()
    finished(routes.register(registration(connection=peer), 0))
    routes.connection_closed(peer.id)
    assert not routes.unregister("PyC", "127.0.0.1:30911")
    assert lost(routes) == []


def test_lost_brokers_are_bounded_and_forgotten_after_a_day() -> None:
    brokers = LostBrokers()
    for number in range(LOST_MAX + 1):
        brokers.add(LiveKey("c", f"a:{number}"), f"b{number}", 0, number)
    assert len(brokers.table) == LOST_MAX
    assert [one.broker_name for one in brokers.listed(0)][:1] == ["b1"]
    brokers.forget_old(LOST_KEPT_MS + LOST_MAX)
    assert [one.broker_name for one in brokers.listed(0)] == [f"b{LOST_MAX}"]
