import json
import struct
import zlib
from collections.abc import Generator
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest

from aerobee.broker.config.settings.advertised import AdvertisedAddress, parse_rules
from aerobee.broker.errors import Refusal
from aerobee.broker.namesrv.kv_config import KvConfigTable
from aerobee.broker.namesrv.route_processor import RouteProcessor
from aerobee.broker.namesrv.route_table import RouteTable
from aerobee.remoting.errors import BodyError
from aerobee.remoting.server.routes import Steps, finished
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.bodies.topic import TopicConfig
from aerobee.remoting.wire.codes import RequestCode
from aerobee.remoting.wire.command import Command
from aerobee.remoting.wire.headers import namesrv as headers
from aerobee.store.clock import monotonic_ms
from tests.broker.peers import HandClock, Peer, Saved, request
from tests.kit.logged import Logged

VERSION = {"counter": 4, "stateVersion": 0, "timestamp": 1}


@dataclass
class Settings:
    """Those of the name server, with RocketMQ's defaults."""

    order_message_enable: bool = False
    return_order_topic_config_to_broker: bool = True
    enable_all_topic_list: bool = True
    enable_topic_list: bool = True
    support_acting_master: bool = False
    need_wait_for_service: bool = False
    wait_seconds_for_service_s: int = 45


def topic_json(name: str, perm: int = 6, queues: int = 4) -> dict[str, Any]:
    return {
        "attributes": {},
        "order": False,
        "perm": perm,
        "readQueueNums": queues,
        "topicFilterType": "SINGLE_TAG",
        "topicName": name,
        "topicSysFlag": 0,
        "writeQueueNums": queues,
    }


def plain_body(*names: str, **version: int) -> bytes:
    """A registration as a 5.x broker writes it."""
    wrapper = {
        "dataVersion": {**VERSION, **version},
        "mappingDataVersion": VERSION,
        "topicConfigTable": {name: topic_json(name) for name in names},
        "topicQueueMappingDetailMap": {},
        "topicQueueMappingInfoMap": {},
    }
    return json.dumps(
        {"filterServerList": [], "topicConfigSerializeWrapper": wrapper}, separators=(",", ":")
    ).encode()


def old_body(*names: str) -> bytes:
    """A registration as a 4.9 broker writes it."""
    configs = {}
    for name in names:
        configs[name] = topic_json(name)
        del configs[name]["attributes"]
    wrapper = {"dataVersion": {"counter": 4, "timestamp": 1}, "topicConfigTable": configs}
    return json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper}).encode()


def compressed_body(*texts: str, mappings: bool = True) -> bytes:
    def part(text: str) -> bytes:
        return struct.pack(">i", len(text)) + text.encode()

    pieces = [part('{"counter":4,"stateVersion":0,"timestamp":1}'), struct.pack(">i", len(texts))]
    pieces += [part(text) for text in texts]
    pieces.append(part("[]"))
    if mappings:
        pieces.append(struct.pack(">i", 0))
    return zlib.compress(b"".join(pieces), 9)


class Desk:
    def __init__(self) -> None:
        self.clock = HandClock()
        self.routes = RouteTable()
        self.kv = KvConfigTable()
        self.saved = Saved()
        self.settings = Settings()
        self.processor = RouteProcessor(
            routes=self.routes,
            kv=self.kv,
            saved=self.saved,
            advertised={
                "broker-a": AdvertisedAddress(
                    port=10911, rules=parse_rules("10.0.0.0/8=broker.lan")
                )
            },
            settings=self.settings,
            clock=self.clock,
        )
        self.peer: Any = Peer()

    def register(self, body: bytes = plain_body("T1", "T2"), **more: Any) -> Answer:
        answer = finished(self.registering(body, **more))
        assert isinstance(answer, Answer)
        return answer

    def registering(
        self, body: bytes, *, peer: Any = None, version: int = 479, **fields: Any
    ) -> Steps:
        given: dict[str, Any] = {
            "broker_name": "py-a",
            "broker_addr": "127.0.0.1:30911",
            "cluster_name": "PyC",
            "ha_server_addr": "127.0.0.1:30912",
            "broker_id": 0,
            "body_crc32": zlib.crc32(body) & 0x7FFFFFFF,
            **fields,
        }
        command = request(RequestCode.REGISTER_BROKER, body, version=version)
        header = headers.RegisterBroker(**given)
        return self.processor.register(header, command, peer or self.peer)

    def own(self) -> None:
        self.routes.register_own(
            cluster="DefaultCluster",
            broker="broker-a",
            broker_id=0,
            address="192.168.0.9:10911",
            ha_address="192.168.0.9:10912",
            topics=[TopicConfig(topic_name="TopicTest", read_queue_nums=4, write_queue_nums=4)],
        )

    def route(self, topic: str, peer: Any = None) -> bytes:
        command = request(RequestCode.GET_ROUTEINFO_BY_TOPIC)
        header = headers.GetRouteInfo(topic=topic)
        body = self.processor.route(header, command, peer or self.peer).body
        assert isinstance(body, bytes)
        return body

    def ask(self, handler: Any, header: Any, body: bytes = b"", peer: Any = None) -> Answer:
        answer = handler(header, request(header.code, body), peer or self.peer)
        if isinstance(answer, Generator):
            answer = finished(answer)
        assert isinstance(answer, Answer)
        assert answer.code == 0
        return answer

    def asked(self, handler: Any, header: Any, peer: Any = None) -> Any:
        body = self.ask(handler, header, peer=peer).body
        assert isinstance(body, bytes)
        return json.loads(body)


@pytest.fixture
def desk() -> Desk:
    return Desk()


# ── Routes ──


def test_a_route_is_compact_json_with_quoted_ids_in_javas_order(desk: Desk) -> None:
    desk.own()
    assert desk.route("TopicTest") == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:10911"},"brokerName":"broker-a",'
        b'"cluster":"DefaultCluster","enableActingMaster":false}],"filterServerTable":{},'
        b'"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,'
        b'"writeQueueNums":4}]}'
    )


def test_an_unknown_topic_is_not_made_by_asking_for_it(desk: Desk) -> None:
    desk.own()
    for _ in range(2):
        with pytest.raises(Refusal) as caught:
            desk.route("T")
        assert caught.value.code == 17
        assert caught.value.remark.startswith("No topic route info in name server for the topic: T")


def test_our_own_address_follows_who_asks(desk: Desk) -> None:
    desk.own()
    near = Peer("192.168.0.7:4711", "192.168.0.9:9876")
    far = Peer("10.1.2.3:4711", "172.17.0.2:9876")
    assert b'{"0":"192.168.0.9:10911"}' in desk.route("TopicTest", near)
    assert b'{"0":"broker.lan:10911"}' in desk.route("TopicTest", far)


def test_a_topic_that_is_deleted_while_a_registration_is_taken_does_not_come_back(
    desk: Desk,
) -> None:
    """It had a route for good: brokers never take a topic back, and producers were led there."""
    names = [f"T{number:04}" for number in range(2_000)]
    for after in count(1):
        steps, taken = desk.registering(plain_body(*names, counter=after)), 0
        for _ in zip(range(after), steps, strict=False):
            taken += 1
        desk.ask(desk.processor.delete_topic, headers.DeleteTopicInNamesrv(topic=names[-1]))
        finished(steps)
        if taken < after:
            break
        assert names[-1] not in desk.routes.queues.table, after
        assert len(desk.routes.queues.table) == len(names) - 1
    assert after > 4
    desk.register(plain_body(*names, counter=after))
    assert len(desk.routes.queues.table) == len(names)
    assert not desk.routes.arriving


def test_other_brokers_are_told_as_they_registered(desk: Desk) -> None:
    desk.register()
    far = Peer("10.1.2.3:4711", "172.17.0.2:9876")
    assert b'{"0":"127.0.0.1:30911"}' in desk.route("T1", far)


def test_order_of_topics_is_told_only_when_that_is_on(desk: Desk) -> None:
    desk.own()
    desk.kv.put("ORDER_TOPIC_CONFIG", "TopicTest", "broker-a:4")
    assert b"orderTopicConf" not in desk.route("TopicTest")
    desk.settings.order_message_enable = True
    assert json.loads(desk.route("TopicTest"))["orderTopicConf"] == "broker-a:4"


def test_clusters_and_their_brokers(desk: Desk) -> None:
    desk.own()
    desk.register()
    info = desk.asked(desk.processor.cluster_info, headers.GetBrokerClusterInfo())
    assert info["clusterAddrTable"] == {"DefaultCluster": ["broker-a"], "PyC": ["py-a"]}
    assert info["brokerAddrTable"]["broker-a"]["brokerAddrs"] == {"0": "127.0.0.1:10911"}
    assert info["brokerAddrTable"]["py-a"]["brokerName"] == "py-a"


def test_lists_of_topics(desk: Desk) -> None:
    desk.own()
    desk.register()
    everything = desk.asked(desk.processor.topic_list, headers.GetAllTopicList())
    assert everything["topicList"] == ["T1", "T2", "TopicTest"]
    of_cluster = headers.GetTopicsByCluster(cluster="PyC")
    assert desk.asked(desk.processor.topics_of_cluster, of_cluster)["topicList"] == ["T1", "T2"]
    unknown = headers.GetTopicsByCluster(cluster="?")
    assert desk.asked(desk.processor.topics_of_cluster, unknown)["topicList"] == []
    system = desk.asked(desk.processor.system_topics, headers.GetSystemTopicListFromNs())
    assert system["topicList"] == ["DefaultCluster", "broker-a", "PyC", "py-a"]
    assert system["brokerAddr"] == "127.0.0.1:10911"


def test_lists_of_topics_can_be_switched_off(desk: Desk) -> None:
    desk.settings.enable_all_topic_list = desk.settings.enable_topic_list = False
    with pytest.raises(Refusal, match="disable"):
        desk.asked(desk.processor.topic_list, headers.GetAllTopicList())
    with pytest.raises(Refusal, match="disable"):
        desk.asked(desk.processor.topics_of_cluster, headers.GetTopicsByCluster(cluster="c"))


# ── Brokers ──


def test_a_master_registers_and_its_slave_learns_where_it_is(desk: Desk) -> None:
    answer = desk.register()
    assert (answer.code, answer.body) == (0, b"")
    assert answer.header is not None
    assert answer.header.ext() == {}
    answer = desk.register(plain_body(), broker_id=1, broker_addr="127.0.0.1:30931")
    assert answer.header is not None
    assert answer.header.ext() == {
        "haServerAddr": "127.0.0.1:30912",
        "masterAddr": "127.0.0.1:30911",
    }


def test_a_wrong_checksum_is_refused_and_none_is_not_looked_at(desk: Desk) -> None:
    with pytest.raises(Refusal, match="crc32 not match") as caught:
        desk.register(body_crc32=1)
    assert caught.value.code == 1
    assert desk.routes.brokers == {}
    desk.register(body_crc32=0)
    assert set(desk.routes.brokers) == {"py-a"}


@pytest.mark.parametrize("body", [plain_body("T1", "T2"), old_body("T1", "T2")])
def test_registrations_of_both_java_lines_are_read(desk: Desk, body: bytes) -> None:
    desk.register(body, version=401)
    assert finished(desk.routes.topics()) == ["T1", "T2"]


@pytest.mark.parametrize("compressed", [True, False])
def test_a_compressed_registration_is_read_even_if_it_says_it_is_none(
    desk: Desk, compressed: bool
) -> None:
    body = compressed_body("T1 4 4 6 SINGLE_TAG {}", 'T2 8 2 7 MULTI_TAG {"message.type":"FIFO"}')
    desk.register(body, compressed=compressed)
    assert json.loads(desk.route("T2"))["queueDatas"] == [
        {
            "brokerName": "py-a",
            "perm": 7,
            "readQueueNums": 8,
            "topicSysFlag": 0,
            "writeQueueNums": 2,
        }
    ]


def test_a_compressed_registration_of_the_4_9_line_ends_early(desk: Desk) -> None:
    body = compressed_body("T1 4 4 6 SINGLE_TAG", "T2 4 4 6 SINGLE_TAG", mappings=False)
    desk.register(body, version=401, compressed=True)
    assert finished(desk.routes.topics()) == ["T1", "T2"]


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"x\xda",
        compressed_body("T1 4 4"),
        compressed_body("T1 a b c d")[:-6],
        zlib.compress(struct.pack(">i", 2**31 - 1) + b"{}"),
        zlib.compress(struct.pack(">i", -1)),
        zlib.compress(bytes(64 << 20)),
    ],
)
def test_a_registration_that_does_not_decode_changes_nothing(desk: Desk, body: bytes) -> None:
    with pytest.raises(BodyError):
        desk.register(body)
    assert desk.routes.brokers == {}


def test_a_registration_without_body_has_no_topics(desk: Desk) -> None:
    desk.register(b"", body_crc32=0)
    assert finished(desk.routes.topics()) == []
    assert set(desk.routes.brokers) == {"py-a"}


def test_brokers_are_told_which_topics_are_ordered(desk: Desk) -> None:
    desk.kv.put("ORDER_TOPIC_CONFIG", "T1", "py-a:4")
    assert desk.register().body == b'{"table":{"T1":"py-a:4"}}'
    desk.settings.return_order_topic_config_to_broker = False
    assert desk.register().body == b""


def test_a_broker_leaves(desk: Desk) -> None:
    desk.register()
    header = headers.UnregisterBroker(
        broker_name="py-a", broker_addr="127.0.0.1:30911", cluster_name="PyC", broker_id=0
    )
    desk.ask(desk.processor.unregister, header)
    assert desk.routes.brokers == {}
    desk.ask(desk.processor.unregister, header)


def test_a_broker_leaves_with_the_connection_it_registered_over_last(desk: Desk) -> None:
    old, new = Peer(), Peer()
    desk.register(peer=old)
    desk.register(peer=new)
    desk.processor.connection_closed(old)
    assert set(desk.routes.brokers) == {"py-a"}
    desk.processor.connection_closed(new)
    assert desk.routes.brokers == {}


def query_version(desk: Desk, **version: int) -> tuple[bool, Any]:
    header = headers.QueryDataVersion(
        broker_name="py-a", broker_addr="127.0.0.1:30911", cluster_name="PyC", broker_id=0
    )
    body = json.dumps({**VERSION, **version}).encode()
    answer = desk.ask(desk.processor.query_data_version, header, body)
    assert isinstance(answer.header, headers.QueryDataVersionResponse)
    assert isinstance(answer.body, bytes)
    return answer.header.changed, json.loads(answer.body) if answer.body else None


def test_a_broker_asks_whether_it_must_register_again(desk: Desk) -> None:
    assert query_version(desk) == (True, None)
    desk.register()
    assert query_version(desk) == (False, VERSION)
    assert query_version(desk, counter=5) == (True, VERSION)


def test_asking_keeps_a_broker_alive(desk: Desk) -> None:
    desk.register(heartbeat_timeout_millis=1_000)
    desk.clock.pass_ms(900)
    query_version(desk)
    desk.clock.pass_ms(900)
    assert desk.routes.expire(int(desk.clock.monotonic() * 1000)) == []


# ── Administrators ──


def test_writing_to_a_broker_is_stopped_and_allowed_again(desk: Desk) -> None:
    desk.register()
    wipe = desk.ask(
        desk.processor.wipe_write_perm, headers.WipeWritePermOfBroker(broker_name="py-a")
    )
    assert wipe.header == headers.WipeWritePermOfBrokerResponse(wipe_topic_count=2)
    assert json.loads(desk.route("T1"))["queueDatas"][0]["perm"] == 4
    add = desk.ask(desk.processor.add_write_perm, headers.AddWritePermOfBroker(broker_name="py-a"))
    assert add.header == headers.AddWritePermOfBrokerResponse(add_topic_count=2)
    assert json.loads(desk.route("T1"))["queueDatas"][0]["perm"] == 6


def test_a_route_is_deleted(desk: Desk) -> None:
    desk.register()
    elsewhere = headers.DeleteTopicInNamesrv(topic="T1", cluster_name="Other")
    desk.ask(desk.processor.delete_topic, elsewhere)
    assert finished(desk.routes.topics()) == ["T1", "T2"]
    desk.ask(desk.processor.delete_topic, headers.DeleteTopicInNamesrv(topic="T1"))
    desk.ask(desk.processor.delete_topic, headers.DeleteTopicInNamesrv(topic="T1"))
    assert finished(desk.routes.topics()) == ["T2"]


def test_values_are_put_got_listed_and_deleted(desk: Desk) -> None:
    desk.ask(desk.processor.put_kv, headers.PutKvConfig(namespace="n", key="k", value="v"))
    got = desk.ask(desk.processor.get_kv, headers.GetKvConfig(namespace="n", key="k"))
    assert got.header == headers.GetKvConfigResponse(value="v")
    listed = desk.asked(desk.processor.kv_list, headers.GetKvListByNamespace(namespace="n"))
    assert listed == {"table": {"k": "v"}}
    for _ in range(2):
        desk.ask(desk.processor.delete_kv, headers.DeleteKvConfig(namespace="n", key="k"))
    emptied = desk.asked(desk.processor.kv_list, headers.GetKvListByNamespace(namespace="n"))
    assert emptied == {"table": {}}


def test_a_change_is_answered_when_it_is_on_disk(desk: Desk) -> None:
    desk.saved.clean = False
    put = headers.PutKvConfig(namespace="n", key="k", value="v")
    delete = headers.DeleteKvConfig(namespace="n", key="k")
    changes: list[tuple[Any, object]] = [
        (desk.processor.put_kv, put),
        (desk.processor.delete_kv, delete),
    ]
    for handler, header in changes:
        waits = handler(header, Command(0), desk.peer)
        with pytest.raises(StopIteration) as done:
            waits.work.send(None)
        assert done.value.value.code == 0


def test_a_value_that_is_not_there_is_not_found(desk: Desk) -> None:
    with pytest.raises(Refusal) as caught:
        desk.ask(desk.processor.get_kv, headers.GetKvConfig(namespace="n", key="k"))
    assert caught.value.code == 22
    with pytest.raises(Refusal) as caught:
        desk.ask(desk.processor.kv_list, headers.GetKvListByNamespace(namespace="n"))
    assert caught.value.code == 22


def test_two_brokers_of_one_name_and_id_take_turns_and_the_log_says_so(
    desk: Desk, logged: Logged
) -> None:
    desk.register()
    desk.register()
    desk.register(broker_addr="127.0.0.1:9")
    assert b'{"0":"127.0.0.1:9"}' in desk.route("T1")
    [line] = [line for line in logged if line["event"] == "broker.address_replaced"]
    assert (line["old"], line["new"]) == ("127.0.0.1:30911", "127.0.0.1:9")


def test_the_log_tells_of_no_registration_that_was_passed_over(desk: Desk, logged: Logged) -> None:
    desk.register(plain_body("T1", "T2", stateVersion=2))
    desk.register(plain_body("T1", "T2", stateVersion=1), broker_addr="127.0.0.1:9")
    assert b'{"0":"127.0.0.1:30911"}' in desk.route("T1")
    assert [line["event"] for line in logged] == ["broker.registered"]


# ── Groups of brokers under one name ──


def test_a_heartbeat_keeps_a_broker_alive_and_an_unknown_one_is_as_good(desk: Desk) -> None:
    desk.register(heartbeat_timeout_millis=1_000)
    desk.clock.pass_ms(900)
    for address in ("127.0.0.1:30911", "127.0.0.1:9"):
        desk.ask(
            desk.processor.heartbeat,
            headers.BrokerHeartbeat(cluster_name="PyC", broker_addr=address, broker_name="py-a"),
        )
    desk.clock.pass_ms(900)
    assert desk.routes.expire(monotonic_ms(desk.processor.clock)) == []
    desk.clock.pass_ms(900)
    assert desk.routes.expire(monotonic_ms(desk.processor.clock)) == [desk.peer]


def test_who_is_under_a_broker_name(desk: Desk) -> None:
    desk.own()
    desk.register()
    desk.register(plain_body(), broker_id=1, broker_addr="127.0.0.1:30931")

    def members(broker: str) -> Any:
        header = headers.GetBrokerMemberGroup(cluster_name="PyC", broker_name=broker)
        return desk.asked(desk.processor.member_group, header)["brokerMemberGroup"]

    both = {"0": "127.0.0.1:30911", "1": "127.0.0.1:30931"}
    assert members("py-a") == {"brokerAddrs": both, "brokerName": "py-a", "cluster": "PyC"}
    assert members("broker-a")["brokerAddrs"] == {"0": "127.0.0.1:10911"}
    assert members("?") == {"brokerAddrs": {}, "brokerName": "?", "cluster": "PyC"}


def test_an_acting_master_is_shown_as_the_master_where_that_is_on(desk: Desk) -> None:
    desk.register(enable_acting_master=True)
    slave: dict[str, Any] = {
        "broker_id": 2,
        "broker_addr": "127.0.0.1:30931",
        "enable_acting_master": True,
    }
    desk.register(**slave)
    desk.routes.unregister("PyC", "127.0.0.1:30911")

    def shown(topic: str = "T1") -> Any:
        return json.loads(desk.route(topic))["brokerDatas"][0]["brokerAddrs"]

    assert shown() == {"2": "127.0.0.1:30931"}
    desk.settings.support_acting_master = True
    assert shown() == {"0": "127.0.0.1:30931"}
    members = "rmq_sys_SYNC_BROKER_MEMBER_py-a"
    desk.register(plain_body("T1", members, counter=9), **slave)
    assert shown(members) == {"2": "127.0.0.1:30931"}


def test_a_client_of_a_zone_is_told_the_brokers_of_its_zone_and_masterless_ones(
    desk: Desk,
) -> None:
    desk.register(zone_name="East")
    desk.register(broker_name="west", broker_addr="127.0.0.1:2", zone_name="west")
    desk.register(broker_name="lost", broker_addr="127.0.0.1:3")
    desk.register(broker_name="lost", broker_addr="127.0.0.1:4", broker_id=1)
    desk.routes.unregister("PyC", "127.0.0.1:3")

    def names(**zone: Any) -> Any:
        header = headers.GetRouteInfo(topic="T1", **zone)
        route = desk.asked(desk.processor.route, header)
        queues = [queue["brokerName"] for queue in route["queueDatas"]]
        assert queues == [data["brokerName"] for data in route["brokerDatas"]]
        return queues

    assert names() == ["lost", "py-a", "west"]
    assert names(zone_mode=True, zone_name="east") == ["lost", "py-a"]
    assert names(zone_mode=False, zone_name="east") == ["lost", "py-a", "west"]


def test_a_name_server_may_wait_until_brokers_have_registered(desk: Desk) -> None:
    desk.register()
    desk.settings.need_wait_for_service = True
    with pytest.raises(Refusal, match="name server not ready") as caught:
        desk.route("T1")
    assert caught.value.code == 1
    desk.clock.pass_ms(45_000)
    assert desk.route("T1")


def test_topics_of_units_are_listed(desk: Desk) -> None:
    configs = {name: {**topic_json(name), "topicSysFlag": bits} for bits, name in enumerate("nusb")}
    wrapper = {"dataVersion": VERSION, "topicConfigTable": configs}
    desk.register(json.dumps({"topicConfigSerializeWrapper": wrapper}).encode())
    asked: list[tuple[Any, Any, list[str]]] = [
        (desk.processor.unit_topics, headers.GetUnitTopicList(), ["b", "u"]),
        (desk.processor.unit_sub_topics, headers.GetHasUnitSubTopicList(), ["b", "s"]),
        (desk.processor.unit_sub_of_no_unit, headers.GetHasUnitSubUnunitTopicList(), ["s"]),
    ]
    for handler, header, names in asked:
        assert desk.asked(handler, header) == {"topicList": names}
    desk.settings.enable_topic_list = False
    for handler, header, _ in asked:
        with pytest.raises(Refusal, match="disable"):
            desk.asked(handler, header)


def test_the_queues_of_one_topic_are_registered(desk: Desk) -> None:
    desk.register()
    queue = {"brokerName": "py-a", "perm": 6, "readQueueNums": 3, "writeQueueNums": 2}
    header = headers.RegisterTopicInNamesrv(topic="one")
    desk.ask(desk.processor.register_topic, header, json.dumps({"queueDatas": [queue]}).encode())
    assert json.loads(desk.route("one"))["queueDatas"] == [{**queue, "topicSysFlag": 0}]
    with pytest.raises(BodyError):
        desk.ask(desk.processor.register_topic, header, b"[1]")
