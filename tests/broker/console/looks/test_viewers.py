"""What a viewer may do: policies decide, and nobody without an account changes anything."""

from __future__ import annotations

from ipaddress import ip_address

from aerobee.broker.access.authority import Account, Authority
from aerobee.broker.access.permissions import Action, Kind
from aerobee.broker.access.policies import Policy, PolicyType
from aerobee.broker.console.looks.viewers import Failure, Viewer
from aerobee.remoting.wire.bodies.auth import PolicyEntryInfo

ORDERS = PolicyEntryInfo(
    resource="Topic:Orders", actions=["Get"], source_ips=["10.0.0.0/8"], decision="Allow"
)


def viewer(address: str, *, is_super: bool = False) -> Viewer:
    account = Account("ann", b"secret", is_super)
    policies = [Policy(PolicyType.CUSTOM, [ORDERS])]
    authority = Authority({"ann": account}.get, lambda _: policies)
    return Viewer(address=address, account=account, authority=authority)


def test_a_viewer_may_do_what_policies_allow_from_there() -> None:
    assert viewer("10.1.1.1").may(Kind.TOPIC, "Orders", Action.GET)
    assert not viewer("10.1.1.1").may(Kind.TOPIC, "Orders", Action.DELETE)
    assert not viewer("10.1.1.1").may(Kind.TOPIC, "Bills", Action.GET)
    assert not viewer("192.168.1.1").may(Kind.TOPIC, "Orders", Action.GET)
    assert viewer("192.168.1.1", is_super=True).may(Kind.CLUSTER, "any", Action.UPDATE)


def test_without_users_everybody_reads_and_nobody_changes() -> None:
    nobody = Viewer(address=str(ip_address("127.0.0.1")))
    assert nobody.may(Kind.TOPIC, "Orders", Action.GET)
    assert not nobody.may(Kind.TOPIC, "Orders", Action.UPDATE)
    assert not nobody.may_write
    assert not nobody.name


def test_a_failure_keeps_its_text_with_fields_for_other_languages() -> None:
    failure = Failure(400, "usage", "the field {name} is empty", {"name": "{x}"})
    assert (str(failure), failure.template) == (
        "the field {x} is empty",
        "the field {name} is empty",
    )
    said = Failure(409, "refused", "a broker says {this}")
    assert (said.text, said.template) == ("a broker says {this}", "a broker says {this}")
