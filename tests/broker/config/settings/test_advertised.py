"""What the name server tells whom about the broker in its process."""

from __future__ import annotations

import pytest

from aerobee.broker.config.files.entries import Scalar
from aerobee.broker.config.settings import advertised
from aerobee.broker.config.settings.advertised import AdvertisedAddress, parse_rules


def test_without_rules_a_client_is_told_the_address_it_reached() -> None:
    told = AdvertisedAddress(port=10911)
    assert told.address_for("10.1.1.1:5", "10.0.0.1:9876") == "10.0.0.1:10911"


def test_an_explicit_host_is_told_to_everyone() -> None:
    told = AdvertisedAddress(port=10911, host="broker.lan")
    assert told.address_for("10.1.1.1:5", "10.0.0.1:9876") == "broker.lan:10911"


def test_the_first_network_that_holds_the_client_wins() -> None:
    rules = parse_rules("10.0.0.0/8=broker.lan;10.1.0.0/16=never:1; ::1/128 = six:2 ")
    told = AdvertisedAddress(port=10911, host="outside", rules=rules)
    assert told.address_for("10.1.1.1:5", "10.0.0.1:1") == "broker.lan:10911"
    assert told.address_for("::1:5", "::1:1") == "six:2"
    assert told.address_for("[::1]:5", "::1:1") == "six:2"
    assert told.address_for("192.168.0.1:5", "10.0.0.1:1") == "outside:10911"


def test_an_ipv6_address_is_told_in_brackets() -> None:
    told = AdvertisedAddress(port=10911)
    assert told.address_for("::1:5", "::1:9876") == "[::1]:10911"
    rules = parse_rules("fd00::/8=[fd00::1];::/0=[fd00::1]:8")
    told = AdvertisedAddress(port=7, rules=rules)
    assert told.address_for("fd00::2:5", "::1:9876") == "[fd00::1]:7"
    assert told.address_for("fe80::2:5", "::1:9876") == "[fd00::1]:8"
    assert AdvertisedAddress(port=7, host="fd00::9").address_for("::1:5", "::1:9") == "[fd00::9]:7"


def test_a_client_of_ipv4_at_a_listener_of_ipv6_is_in_its_network() -> None:
    told = AdvertisedAddress(port=7, rules=parse_rules("::ffff:0:0/96=never;10.0.0.0/8=here"))
    assert told.address_for("::ffff:10.1.2.3:5", "::ffff:10.0.0.1:9") == "here:7"
    assert told.address_for("::ffff:11.1.2.3:5", "::ffff:11.0.0.1:9") == "11.0.0.1:7"


@pytest.mark.parametrize(
    "text",
    [
        "10.0.0.0/8",
        "10.0.0.1/8=a",
        "here=a",
        "10.0.0.0/8=",
        "10.0.0.0/8=a:70000",
        "10.0.0.0/8=a:0",
        "::/0=a b",
    ],
)
def test_a_broken_rule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a network|not host"):
        parse_rules(text)


def test_blanks_do_not_matter() -> None:
    assert advertised.normalized(" 10.0.0.0/8 = a:1 ; ") == "10.0.0.0/8=a:1"


def test_an_item_of_the_yaml_list_is_a_rule() -> None:
    item = {"network": Scalar("10.0.0.0/8", "str"), "address": Scalar("a:1", "str")}
    assert advertised.from_mapping(item) == "10.0.0.0/8=a:1"
    with pytest.raises(ValueError, match="network and address, nothing else"):
        advertised.from_mapping({"network": Scalar("10.0.0.0/8", "str")})
    with pytest.raises(ValueError, match="are texts"):
        advertised.from_mapping({**item, "address": [Scalar("a", "str")]})
