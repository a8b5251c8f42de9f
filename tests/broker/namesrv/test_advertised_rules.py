"""What the embedded name server tells whom about this broker."""

from __future__ import annotations

import pytest

from aerobee.broker.config.files.entries import Scalar
from aerobee.broker.namesrv import advertised_rules as advertised


def test_the_first_network_that_fits_decides() -> None:
    rules = advertised.parse("10.1.0.0/16=inner:1;10.0.0.0/8=outer; ::/0 = [fd00::1]:7 ")
    told = [advertised.for_client(rules, client) for client in ("10.1.2.3", "10.2.0.1", "fd00::5")]
    assert [(rule.host, rule.port) for rule in told if rule] == [
        ("inner", 1),
        ("outer", 0),
        ("fd00::1", 7),
    ]
    assert advertised.for_client(rules, "192.168.0.1") is None


@pytest.mark.parametrize(
    "text",
    ["10.0.0.0/8", "10.0.0.1/8=a", "here=a", "10.0.0.0/8=", "10.0.0.0/8=a:70000", "::/0=a b"],
)
def test_a_broken_rule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a network|not host"):
        advertised.parse(text)


def test_blanks_do_not_matter() -> None:
    assert advertised.normalized(" 10.0.0.0/8 = a:1 ; ") == "10.0.0.0/8=a:1"


def test_an_item_of_the_yaml_list_is_a_rule() -> None:
    item = {"network": Scalar("10.0.0.0/8", "str"), "address": Scalar("a:1", "str")}
    assert advertised.from_mapping(item) == "10.0.0.0/8=a:1"
    with pytest.raises(ValueError, match="network and address, nothing else"):
        advertised.from_mapping({"network": Scalar("10.0.0.0/8", "str")})
    with pytest.raises(ValueError, match="are texts"):
        advertised.from_mapping({**item, "address": [Scalar("a", "str")]})
