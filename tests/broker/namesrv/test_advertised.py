import pytest

from aerobee.broker.namesrv.advertised import Advertised, parse_rules


def test_without_rules_a_client_is_told_the_address_it_reached() -> None:
    advertised = Advertised(listen_port=10911)
    assert advertised.address_for("10.1.1.1:5", "10.0.0.1:9876") == "10.0.0.1:10911"


def test_an_explicit_host_is_told_to_everyone() -> None:
    advertised = Advertised(listen_port=10911, host="broker.lan")
    assert advertised.address_for("10.1.1.1:5", "10.0.0.1:9876") == "broker.lan:10911"


def test_the_first_network_that_holds_the_client_wins() -> None:
    rules = parse_rules("10.0.0.0/8=broker.lan;10.1.0.0/16=never:1;::1/128=six:2", 10911)
    advertised = Advertised(listen_port=10911, host="outside", rules=rules)
    assert advertised.address_for("10.1.1.1:5", "x:1") == "broker.lan:10911"
    assert advertised.address_for("::1:5", "x:1") == "six:2"
    assert advertised.address_for("[::1]:5", "x:1") == "six:2"
    assert advertised.address_for("192.168.0.1:5", "x:1") == "outside:10911"


def test_rules_come_as_a_list_too() -> None:
    rules = parse_rules([{"network": "10.0.0.0/8", "address": "h:1"}], 10911)
    assert rules == parse_rules("10.0.0.0/8=h:1", 10911)
    assert parse_rules(None, 1) == parse_rules("", 1) == ()


def test_an_ipv6_address_is_told_in_brackets() -> None:
    advertised = Advertised(listen_port=10911)
    assert advertised.address_for("::1:5", "::1:9876") == "[::1]:10911"
    assert parse_rules("::/0=[fd00::1]", 7)[0].address == "[fd00::1]:7"
    assert parse_rules("::/0=[fd00::1]:8", 7)[0].address == "[fd00::1]:8"


@pytest.mark.parametrize("text", ["10.0.0.0/8", "10.0.0.0/8=", "10.0.0.1/8=h", "net=h"])
def test_a_rule_that_is_none_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=text.partition("=")[0]):
        parse_rules(text, 1)
