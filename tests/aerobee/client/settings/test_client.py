"""Name-server addresses and options."""

from math import inf
from typing import Any

import pytest

from aerobee import Client, PopConsumer, Producer, PullConsumer, PushConsumer
from aerobee.client.settings.client import ClientConfig, RetryPolicy, name_servers
from aerobee.errors import ConfigurationError


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("127.0.0.1:9876", ("127.0.0.1:9876",)),
        ("a:1;b:2", ("a:1", "b:2")),
        ("a:1,b", ("a:1", "b:9876")),
        (["a:1", "b:2"], ("a:1", "b:2")),
        ("http://ns.example:9876/", ("ns.example:9876",)),
        ("[::1]:9876", ("[::1]:9876",)),
        ("[::1]", ("[::1]:9876",)),
    ],
)
def test_addresses_are_read_as_clients_write_them(
    given: str | list[str], found: tuple[str, ...]
) -> None:
    assert name_servers(given) == found


@pytest.mark.parametrize("given", [";", "a:b", "a:0", "a:70000", ":9876"])
def test_what_is_no_address_is_refused(given: str) -> None:
    with pytest.raises(ConfigurationError):
        name_servers(given)


def test_the_environment_counts_when_nothing_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "ns:1")
    assert name_servers(None) == ("ns:1",)
    monkeypatch.delenv("NAMESRV_ADDR")
    assert name_servers(None) == ("127.0.0.1:9876",)


def test_options_that_cannot_work_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="at least 1"):
        RetryPolicy(attempts=0)
    with pytest.raises(ConfigurationError, match="request_timeout"):
        ClientConfig(name_servers=("a:1",), client_id="c", process_id=1, request_timeout=0)
    with pytest.raises(ConfigurationError, match="connect_timeout"):
        ClientConfig(name_servers=("a:1",), client_id="c", process_id=1, connect_timeout=inf)


@pytest.mark.parametrize("wrong", [4.0, "4", True, None])
@pytest.mark.parametrize(
    ("kind", "option"),
    [
        (PullConsumer, "pull_batch"),
        (PullConsumer, "max_reconsume"),
        (PushConsumer, "pull_batch"),
        (PushConsumer, "concurrency"),
        (PopConsumer, "max_reconsume"),
    ],
)
def test_a_number_that_is_not_whole_is_named(kind: type[Any], option: str, wrong: object) -> None:
    """A broker in Java would refuse it in each request, and a consumer would get nothing."""
    with pytest.raises(ConfigurationError, match=f"{option} is {wrong!r}: a whole number"):
        kind("group", "a:1", **{option: wrong})


@pytest.mark.parametrize(
    ("option", "wrong"),
    [("retry", 3), ("retry", None), ("tls", "no"), ("credentials", ("name", "key"))],
)
def test_an_option_of_another_kind_is_named_before_the_first_request(
    option: str, wrong: object
) -> None:
    with pytest.raises(ConfigurationError, match=f"{option} is .*it must be"):
        Producer("a:1", **{option: wrong})  # type: ignore[arg-type]  # as users may


@pytest.mark.parametrize("wrong", ["FIRST", "first", 0, None])
@pytest.mark.parametrize("kind", [PullConsumer, PushConsumer, PopConsumer])
def test_a_beginning_of_another_kind_is_no_default(kind: type[Any], wrong: object) -> None:
    """Taken for the end, it would skip all that a new group is meant to get."""
    with pytest.raises(ConfigurationError, match=r"start_from is .*ConsumeFrom"):
        kind("group", "a:1", start_from=wrong)


def test_a_model_of_another_kind_is_no_default() -> None:
    wrong: Any = "BROADCASTING"
    with pytest.raises(ConfigurationError, match=r"model is 'BROADCASTING': .*MessageModel"):
        PushConsumer("group", "a:1", model=wrong)


def test_an_option_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="unknown options: patience"):
        Producer("a:1", patience=1)  # type: ignore[call-arg]  # that is the point
    with pytest.raises(ConfigurationError, match="route_interval: options of the client"):
        Producer(client=Client("a:1"), route_interval=1.0)
