"""Routes as clients with and without a parser read them."""

from __future__ import annotations

from aerobee.remoting.wire.bodies.route import BrokerData, ClusterInfo, QueueData, TopicRouteData

ROUTE = TopicRouteData(
    broker_datas=[
        BrokerData(
            broker_addrs={0: "127.0.0.1:10911"}, broker_name="broker-a", cluster="DefaultCluster"
        )
    ],
    queue_datas=[QueueData(broker_name="broker-a", perm=6, read_queue_nums=4, write_queue_nums=4)],
)
STANDARD = (
    b'{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:10911"},"brokerName":"broker-a",'
    b'"cluster":"DefaultCluster","enableActingMaster":false}],"filterServerTable":{},'
    b'"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,'
    b'"writeQueueNums":4}]}'
)


def test_a_route_is_written_in_java_s_standard_form() -> None:
    assert ROUTE.to_bytes() == STANDARD


def test_a_route_with_bare_ids_reads_the_same() -> None:
    bare = STANDARD.replace(b'"0":', b"0:")
    assert TopicRouteData.from_bytes(bare) == TopicRouteData.from_bytes(STANDARD) == ROUTE


def test_a_4_9_route_knows_no_acting_master() -> None:
    old = STANDARD.replace(b',"enableActingMaster":false', b"")
    assert TopicRouteData.from_bytes(old) == ROUTE


def test_what_is_there_is_written() -> None:
    route = TopicRouteData(
        broker_datas=[BrokerData(broker_name="b", zone_name="z")], order_topic_conf="b:4"
    )
    written = route.to_bytes()
    assert b'"orderTopicConf":"b:4"' in written
    assert b'"zoneName":"z"' in written
    assert TopicRouteData.from_bytes(written) == route


def test_cluster_info_is_written_in_java_s_form_and_read_back() -> None:
    info = ClusterInfo(
        broker_addr_table={"broker-a": ROUTE.broker_datas[0]},
        cluster_addr_table={"DefaultCluster": ["broker-a"]},
    )
    assert info.to_bytes() == (
        b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{"0":"127.0.0.1:10911"},'
        b'"brokerName":"broker-a","cluster":"DefaultCluster","enableActingMaster":false}},'
        b'"clusterAddrTable":{"DefaultCluster":["broker-a"]}}'
    )
    assert ClusterInfo.from_bytes(info.to_bytes()) == info
