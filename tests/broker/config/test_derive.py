"""What follows from other settings and from the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aerobee.broker.config.derive import Machine, derived, is_loopback, is_wildcard, own_address

if TYPE_CHECKING:
    from aerobee.broker.config.schema import Value

MACHINE = Machine(2, ("10.0.0.5", "192.168.1.7"), "box", "/home/me")


def value(name: str, **given: Value) -> Value:
    return (given | derived(given, MACHINE))[name]


@pytest.mark.parametrize(
    ("addresses", "chosen"),
    [
        (["127.0.0.1", "10.0.0.5", "192.168.1.7"], "192.168.1.7"),
        (["10.0.0.5", "8.8.4.4", "8.8.8.8"], "8.8.4.4"),
        (["172.16.0.1", "172.32.0.1"], "172.32.0.1"),
        (["fe80::1", "fd00::2", "fd00::3"], "fd00::2"),
        (["169.254.1.1", "nonsense"], "127.0.0.1"),
        ([], "127.0.0.1"),
    ],
)
def test_the_published_address_is_the_first_public_else_the_last_private_one(
    addresses: list[str], chosen: str
) -> None:
    assert own_address(addresses) == chosen


def test_without_a_word_the_listeners_are_for_this_host_only() -> None:
    assert value("bindAddress") == "127.0.0.1"
    assert value("brokerIP1") == "127.0.0.1"
    assert value("metricsPromExporterHost") == "127.0.0.1"


@pytest.mark.parametrize("key", ["aclEnable", "authenticationEnabled", "insecure"])
def test_accounts_open_the_broker_and_a_named_address_stays(key: str) -> None:
    """`docs/operations/install.md`, "Open it to others"."""
    assert value("bindAddress", **{key: True}) == "0.0.0.0"
    named: dict[str, int | str] = {key: True, "bindAddress": "10.9.9.9"}
    assert value("bindAddress", **named) == "10.9.9.9"


def test_insecure_opens_them_and_publishes_an_address_of_the_host() -> None:
    assert value("bindAddress", insecure=True) == "0.0.0.0"
    assert value("brokerIP1", insecure=True) == "192.168.1.7"
    assert value("brokerIP2", insecure=True) == "192.168.1.7"


@pytest.mark.parametrize(
    ("addresses", "bound"),
    [(["fe80::1", "fd00::2"], "::"), (["fd00::2", "10.0.0.5"], "0.0.0.0"), ([], "0.0.0.0")],
)
def test_all_addresses_are_of_ipv6_where_the_host_has_no_other(
    addresses: list[str], bound: str
) -> None:
    """Clients are told the address of IPv6: something has to listen there."""
    machine = MACHINE._replace(addresses=addresses)
    by_default = derived({"insecure": True}, machine)
    given: dict[str, Value] = {"insecure": True, "bindAddress": "0.0.0.0", "consoleHost": "0.0.0.0"}
    as_in_the_image = given | derived(given, machine)
    assert by_default["bindAddress"] == by_default["metricsPromExporterHost"] == bound
    assert as_in_the_image["bindAddress"] == as_in_the_image["consoleHost"] == bound
    assert derived({"bindAddress": "10.0.0.5"}, machine).get("bindAddress") is None


def test_a_single_address_is_published_as_it_is() -> None:
    assert value("brokerIP1", bindAddress="10.9.9.9") == "10.9.9.9"


def test_the_advertised_host_is_both_published_addresses() -> None:
    given: dict[str, Value] = {"advertisedHost": "mq.example", "insecure": True}
    assert (value("brokerIP1", **given), value("brokerIP2", **given)) == ("mq.example",) * 2
    assert value("brokerIP1", **given | {"brokerIP1": "1.2.3.4"}) == "1.2.3.4"


@pytest.mark.parametrize(("port", "vip"), [(10_911, 10_909), (2, 0), (1, 0)])
def test_the_second_port_follows_the_listen_port(port: int, vip: int) -> None:
    assert value("vipListenPort", listenPort=port) == vip


def test_a_port_that_is_given_stays() -> None:
    assert value("vipListenPort", vipListenPort=0) == 0


def test_the_broker_is_named_after_the_host() -> None:
    assert value("brokerName") == "box"
    assert derived({}, MACHINE._replace(host_name=""))["brokerName"] == "DEFAULT_BROKER"


def test_files_lie_below_the_data_directory() -> None:
    assert value("storePathRootDir") == "/home/me/store"
    assert value("kvConfigPath", storePathRootDir="/d/") == "/d/config/kvConfig.json"
    assert value("configOverlayPath", storePathRootDir="/") == "/config/aerobee-overlay.yaml"


@pytest.mark.parametrize(
    ("cpus", "widths"),
    [(1, (1, 18, 9, 1, 10)), (2, (2, 20, 10, 2, 12)), (64, (4, 144, 72, 32, 136))],
)
def test_pools_grow_with_the_cpus_as_in_rocketmq(cpus: int, widths: tuple[int, ...]) -> None:
    values = derived({}, MACHINE._replace(cpu_count=cpus))
    names = (
        "sendMessageThreadPoolNums",
        "pullMessageThreadPoolNums",
        "queryMessageThreadPoolNums",
        "heartbeatThreadPoolNums",
        "endTransactionThreadPoolNums",
    )
    assert tuple(values[name] for name in names) == widths


def test_a_consume_queue_file_holds_whole_units() -> None:
    assert value("mappedFileSizeConsumeQueue", mappedFileSizeConsumeQueue=6_000_001) == 6_000_020
    assert value("mappedFileSizeConsumeQueue") == 6_000_000


def test_a_master_has_the_id_zero() -> None:
    assert value("brokerId", brokerId=5) == 0


def test_loopback_and_wildcard_are_told_from_the_rest() -> None:
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "LocalHost"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "box"))
    assert all(is_wildcard(host) for host in ("0.0.0.0", "::"))
    assert not any(is_wildcard(host) for host in ("127.0.0.1", "box"))
