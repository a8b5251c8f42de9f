"""Where etcd is, and who the members of a group are."""

import pytest

from aerobee.broker.config.settings.failover import (
    Endpoint,
    endpoint,
    endpoints,
    member_ids,
    members,
)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("http://127.0.0.1:2379", Endpoint("127.0.0.1", 2379, False)),
        ("https://etcd-1/", Endpoint("etcd-1", 2379, True)),
        ("http://[::1]:4000", Endpoint("::1", 4000, False)),
    ],
)
def test_an_endpoint_is_a_url(text: str, parts: Endpoint) -> None:
    assert endpoint(text) == parts
    assert endpoint(parts.url) == parts


@pytest.mark.parametrize(
    "text", ["etcd:2379", "ftp://etcd", "http://", "http://etcd/v3", "http://a@etcd", "http://e:x"]
)
def test_other_text_is_no_endpoint(text: str) -> None:
    with pytest.raises(ValueError):
        endpoint(text)


def test_endpoints_are_a_list_of_them() -> None:
    assert endpoints(" http://a ; https://b:1") == "http://a:2379;https://b:1"
    with pytest.raises(ValueError, match="17 addresses, 16 are possible"):
        endpoints(";".join(["http://a"] * 17))


def test_members_are_numbers_in_order() -> None:
    assert members(" 10;2 ; 1") == "1;2;10"
    assert member_ids("1;2;10") == (1, 2, 10)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0;1", "0 is no brokerId"),
        ("1;-2", "-2 is no brokerId"),
        ("1;x", "x is no brokerId"),
        ("1;9223372036854775808", "is no brokerId"),
        ("2;1;2", "has a member twice"),
        (";".join(map(str, range(1, 66))), "65 members, 64 are possible"),
    ],
)
def test_other_members_are_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        members(text)
