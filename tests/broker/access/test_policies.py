"""Which entry decides: against a naive model of the rules of semantics §18.3."""

from ipaddress import ip_address, ip_network
from time import process_time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.broker.access.permissions import Action
from aerobee.broker.access.policies import (
    PolicyType,
    checked_entry,
    checked_resource,
    deciding,
)
from aerobee.broker.errors import Refusal
from aerobee.broker.users.acls import ENTRIES_OF_USER_MAX, Acls, checked
from aerobee.remoting.server.routes import finished
from aerobee.remoting.wire.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo

HERE = ip_address("10.1.2.3")
PUB = frozenset({Action.PUB})


def entry(resource: str, actions: str, decision: str = "Allow", *sources: str) -> PolicyEntryInfo:
    return PolicyEntryInfo(
        resource=resource, actions=actions.split(), decision=decision, source_ips=list(sources)
    )


def acls_of(*policies: tuple[str, list[PolicyEntryInfo]]) -> Acls:
    acls = Acls(lambda: 1_000_000)
    info = [PolicyInfo(policy_type=kind, entries=entries) for kind, entries in policies if entries]
    if info:
        acls.update("u", finished(checked(AclInfo(policies=info))))
    return acls


def allowed(acls: Acls, resource: str, actions: frozenset[Action], source: Any = HERE) -> bool:
    found = deciding(acls.policies("u"), resource, actions, source)
    return found is not None and found.allows


# ── The rules, one by one ──


@pytest.mark.parametrize(
    ("entries", "resource", "wanted"),
    [
        ([], "Topic:a", False),
        ([entry("Topic:a", "Pub")], "Topic:a", True),
        ([entry("Topic:a", "Pub")], "Topic:ab", False),
        ([entry("Topic:a", "Pub")], "Group:a", False),
        ([entry("Topic:a", "Sub")], "Topic:a", False),
        ([entry("Topic:a", "All")], "Topic:a", True),
        ([entry("Topic:a*", "Pub")], "Topic:ab", True),
        ([entry("Topic:*", "Pub")], "Topic:ab", True),
        ([entry("*", "Pub")], "Topic:ab", True),
        ([entry("*", "All"), entry("Topic:*", "All", "Deny")], "Topic:a", False),
        ([entry("Topic:*", "All"), entry("Topic:a*", "All", "Deny")], "Topic:ab", False),
        ([entry("Topic:a*", "All", "Deny"), entry("Topic:ab*", "All")], "Topic:abc", True),
        ([entry("Topic:a*", "All", "Deny"), entry("Topic:ab", "All")], "Topic:ab", True),
        ([entry("Topic:a", "Sub", "Deny"), entry("Topic:*", "Pub")], "Topic:a", True),
        ([entry("Topic:a", "Pub", "Allow", "10.0.0.0/8")], "Topic:a", True),
        ([entry("Topic:a", "Pub", "Allow", "10.1.2.3")], "Topic:a", True),
        ([entry("Topic:a", "Pub", "Allow", "10.2.0.0/16", "fd00::/8")], "Topic:a", False),
    ],
)
def test_the_most_specific_entry_decides(
    entries: list[PolicyEntryInfo], resource: str, wanted: bool
) -> None:
    assert allowed(acls_of(("Custom", entries)), resource, PUB) is wanted


def test_the_default_policy_is_asked_when_no_custom_entry_matches() -> None:
    acls = acls_of(
        ("Custom", [entry("Topic:*", "Pub", "Deny")]),
        ("Default", [entry("Topic:a", "Pub"), entry("Group:g", "Sub")]),
    )
    assert not allowed(acls, "Topic:a", PUB)
    assert allowed(acls, "Group:g", frozenset({Action.SUB, Action.GET}))


@pytest.mark.parametrize("source", ["::ffff:10.1.2.3", "::ffff:10.1.2.0/120", "::ffff:0a01:203"])
def test_a_deny_on_an_ipv4_address_in_the_form_of_ipv6_denies(source: str) -> None:
    acls = acls_of(("Custom", [entry("*", "All"), entry("Topic:a", "Pub", "Deny", source)]))
    assert not allowed(acls, "Topic:a", PUB)
    assert allowed(acls, "Topic:a", PUB, ip_address("10.1.3.3"))


def test_a_network_of_ipv6_is_a_source_too() -> None:
    acls = acls_of(("Custom", [entry("Topic:a", "Pub", "Allow", "fd00::/8", "::1")]))
    assert allowed(acls, "Topic:a", PUB, ip_address("fd12::9"))
    assert allowed(acls, "Topic:a", PUB, ip_address("::1"))
    assert not allowed(acls, "Topic:a", PUB, ip_address("2001:db8::1"))


@pytest.mark.parametrize("source", ["0.0.0.0/0", "::/0", "10.9.9.9/0"])
@pytest.mark.parametrize("address", ["10.1.2.3", "fd12::9"])
def test_a_network_of_all_addresses_is_that_of_both_kinds(source: str, address: str) -> None:
    acls = acls_of(("Custom", [entry("*", "All"), entry("Topic:a", "Pub", "Deny", source)]))
    assert not allowed(acls, "Topic:a", PUB, ip_address(address))


# ── Against a model ──

NAMES = st.sampled_from(["a", "ab", "abc", "b"])
RESOURCES = st.one_of(
    st.just("*"),
    st.builds(lambda kind: f"{kind}:*", st.sampled_from(["Topic", "Group"])),
    st.builds(
        lambda kind, name, star: f"{kind}:{name}{star}",
        st.sampled_from(["Topic", "Group"]),
        NAMES,
        st.sampled_from(["", "*"]),
    ),
)
ENTRIES = st.lists(
    st.builds(
        lambda resource, actions, decision, sources: PolicyEntryInfo(
            resource=resource, actions=actions, decision=decision, source_ips=sources
        ),
        RESOURCES,
        st.lists(st.sampled_from(["Pub", "Sub", "Get", "All"]), min_size=1, max_size=3),
        st.sampled_from(["Allow", "Deny"]),
        st.lists(st.sampled_from(["10.0.0.0/8", "10.1.2.3", "10.2.0.0/16"]), max_size=2),
    ),
    max_size=8,
)


def model(entries: list[PolicyEntryInfo], resource: str, actions: set[str], source: str) -> Any:
    """All that match, sorted as the specification says; the first one's decision, or None."""
    kind, _, name = resource.partition(":")
    latest = {one.resource: one for one in entries}
    found = []
    for one in latest.values():
        assert one.resource
        assert one.actions
        of, _, pattern = one.resource.partition(":")
        if one.resource == "*":
            rank = (1, 0, 0)
        elif of != kind:
            continue
        elif pattern == "*":
            rank = (0, 2, 0)
        elif pattern.endswith("*"):
            if not name.startswith(pattern[:-1]):
                continue
            rank = (0, 1, -len(pattern))
        elif pattern == name:
            rank = (0, 0, 0)
        else:
            continue
        matches = "All" in one.actions or actions & set(one.actions)
        inside = not one.source_ips or any(
            ip_address(source) in ip_network(net) for net in one.source_ips
        )
        if matches and inside:
            found.append((rank, one.decision != "Deny", one.decision == "Allow"))
    return min(found)[2] if found else None


@settings(deadline=None, max_examples=300)
@given(
    custom=ENTRIES,
    default=ENTRIES,
    kind=st.sampled_from(["Topic", "Group"]),
    name=NAMES,
    actions=st.sets(st.sampled_from([Action.PUB, Action.SUB, Action.GET]), min_size=1),
    source=st.sampled_from(["10.1.2.3", "10.2.0.1", "11.0.0.1", "::1"]),
)
def test_any_policies_decide_as_the_model(
    custom: list[PolicyEntryInfo],
    default: list[PolicyEntryInfo],
    kind: str,
    name: str,
    actions: set[Action],
    source: str,
) -> None:
    acls = acls_of(("Custom", custom), ("Default", default))
    resource, texts = f"{kind}:{name}", {str(action) for action in actions}
    wanted = model(custom, resource, texts, source)
    if wanted is None:
        wanted = model(default, resource, texts, source)
    found = deciding(acls.policies("u"), resource, frozenset(actions), ip_address(source))
    assert (None if found is None else found.allows) == wanted


# ── What may be written ──


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (entry("bogus", "Pub"), "The resource is null."),
        (entry("", "Pub"), "The resource is null."),
        (entry("Topic:", "Pub"), "no legal name"),
        (entry("Topic:../../etc", "Pub"), "no legal name"),
        (entry("Topic:a*b*", "Pub"), "no legal name"),
        (entry("Topic:a\n", "Pub"), "no legal name"),
        (entry("Topic:" + "a" * 256, "Pub"), "no legal name"),
        (entry("Topic:a", ""), "The actions is empty."),
        (entry("Topic:a", "Any"), "The actions can not be Any."),
        (entry("Topic:a", "Pub Bogus"), "'Bogus' is unknown"),
        (entry("Topic:a", "Pub", "perhaps"), "The decision is null or illegal."),
        (entry("Topic:a", "Pub", "Allow", "x"), "The source ip is invalid."),
        (entry("Topic:a", "Pub", "Allow", "1.2.3.4/99"), "The source ip is invalid."),
        (entry("Topic:a", "Pub", "Allow", "fe80::1%eth0"), "The source ip is invalid."),
        (entry("Topic:a", "Pub", "Allow", " "), "The source ip is empty."),
        (entry("Topic:a", "Pub", "Allow", *["1.2.3.4"] * 65), "65 source ips"),
    ],
)
def test_a_bad_entry_is_refused_with_the_reason(bad: PolicyEntryInfo, said: str) -> None:
    with pytest.raises(Refusal) as refused:
        checked_entry(bad)
    assert said in refused.value.remark


def test_spelling_is_made_canonical() -> None:
    assert checked_entry(entry("topic:a*", "pub PUB sub", "deny")) == PolicyEntryInfo(
        resource="Topic:a*", actions=["Pub", "Sub"], decision="Deny"
    )
    assert checked_resource("CLUSTER:*") == "Cluster:*"


# ── Size ──


def test_a_thousand_entries_cost_a_request_no_more_than_a_few() -> None:
    def cost(count: int) -> float:
        acls = acls_of(("Custom", [entry(f"Topic:t{n}*", "Pub") for n in range(count)]))
        allowed(acls, "Topic:t5", PUB)
        began = process_time()
        for _ in range(2_000):
            assert allowed(acls, "Topic:t7-orders", PUB)
        return process_time() - began

    few, many = min(cost(8) for _ in range(3)), min(cost(ENTRIES_OF_USER_MAX) for _ in range(3))
    assert many < 8 * few


def test_a_user_has_a_limited_number_of_entries() -> None:
    entries = [entry(f"Topic:t{n}", "Pub") for n in range(ENTRIES_OF_USER_MAX + 1)]
    with pytest.raises(Refusal, match="1000 is the limit"):
        acls_of(("Custom", entries))
    acls = Acls(lambda: 3)
    acls.update("u", finished(checked(AclInfo(policies=[PolicyInfo(entries=entries[:2])]))))
    acls.update("v", finished(checked(AclInfo(policies=[PolicyInfo(entries=entries[:1])]))))
    with pytest.raises(Refusal, match="raise maxAclEntries"):
        acls.update("v", finished(checked(AclInfo(policies=[PolicyInfo(entries=entries[1:2])]))))
    acls.delete("u", PolicyType.CUSTOM, "Topic:t0")
    acls.update("v", finished(checked(AclInfo(policies=[PolicyInfo(entries=entries[1:2])]))))
    assert acls.entries == 3
