"""`aerobee context`, and which of several ways to a cluster counts."""

import stat
import threading
from pathlib import Path

import pytest

from aerobee.cli.connection import Contexts, contexts_file
from aerobee.client.security import Credentials
from tests.aerobee.cli.conftest import Call
from tests.conftest import AnyBroker

pytestmark = pytest.mark.service

NOWHERE = "127.0.0.1:1"


def test_contexts_are_kept_for_their_owner_only(call: Call) -> None:
    assert call("context", "add", "one", "-n", "h1:9876,h2", "--use").code == 0
    added = call("context", "add", "two", "-n", "h3:1", "--json").document
    assert added == {"name": "two", "in_use": False, "namesrv": "h3:1"}
    assert stat.S_IMODE(contexts_file().stat().st_mode) == 0o600
    rows = call("context", "list", "--json").document
    assert [(row["name"], row["in_use"], row["namesrv"]) for row in rows] == [
        ("one", True, "h1:9876;h2:9876"),
        ("two", False, "h3:1"),
    ]
    assert call("context", "use", "two", "--json").document == {"name": "two", "in_use": True}
    assert call("context", "remove", "two", "--json").document == {"name": "two", "removed": True}
    assert [row["in_use"] for row in call("context", "list", "--json").document] == [False]
    done = call("context", "use", "two")
    assert (done.code, done.err) == (2, "aerobee: there is no context two; there are: one\n")
    assert call("context", "add", "bad", "-n", "h:port").code == 2
    assert call("context", "add", "", "-n", "h1:9876").code == 2
    assert [row["name"] for row in call("context", "list", "--json").document] == ["one"]


def test_the_nearest_of_several_ways_counts(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    call("context", "add", "nowhere", "-n", NOWHERE, "--use")
    assert call("topic", "list").code == 0, "NAMESRV_ADDR counts more than the context in use"
    assert call("topic", "list", "--context", "nowhere").code == 4
    monkeypatch.setenv("AEROBEE_CONTEXT", "nowhere")
    assert call("topic", "list").code == 4
    monkeypatch.delenv("AEROBEE_CONTEXT")
    monkeypatch.delenv("NAMESRV_ADDR")
    assert call("topic", "list").code == 4
    assert NOWHERE in call("topic", "list").err


@pytest.mark.parametrize("option", ["--namesrv", "--context"])
def test_an_option_that_is_empty_stands_for_no_other_cluster(
    call: Call, option: str, topic: str
) -> None:
    """As of a variable that is not set: the cluster of the environment would be changed."""
    done = call("topic", "create", topic, option, "")
    assert (done.code, f"'{option}': it is empty" in done.err) == (2, True)
    assert topic not in call("topic", "list").out
    assert call("context", "add", "one", "-n", " ").code == 2


def test_a_namespace_is_an_option_and_part_of_a_context(
    call: Call, broker: AnyBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call("topic", "create", "Spaced", "--namespace", "shop").code == 0
    assert call("produce", "Spaced", "hello", "--namespace", "shop").code == 0
    outside = {row["topic"] for row in call("topic", "list", "--json").document}
    assert {"Spaced", "shop%Spaced"} & outside == {"shop%Spaced"}
    where = broker.namesrv_address
    assert call("context", "add", "inside", "-n", where, "--namespace", "shop").code == 0
    [row] = call("context", "list", "--json").document
    assert row["namespace"] == "shop"
    inside = call("topic", "list", "--context", "inside", "--json").document
    assert [row["topic"] for row in inside] == ["Spaced"]
    monkeypatch.setenv("AEROBEE_NAMESPACE", "shop")
    assert call("message", "find", "Spaced", "-n", where, "--json").document[0]["topic"] == "Spaced"
    assert call("topic", "list", "--namespace", "a%b").code == 2


def test_a_file_that_is_broken_is_named(call: Call) -> None:
    contexts_file().parent.mkdir(parents=True)
    contexts_file().write_text("{")
    done = call("context", "list")
    assert done.code == 2
    assert str(contexts_file()) in done.err


def test_an_account_is_kept_and_used(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AEROBEE_SECRET_KEY", "secret12345")
    assert call("context", "add", "acl", "-n", "h:1", "--access-key", "ak", "--use").code == 0
    monkeypatch.delenv("AEROBEE_SECRET_KEY")
    options = Contexts.load().connection("acl").options()
    assert options["credentials"] == Credentials("ak", "secret12345")
    listed = call("context", "list")
    assert "secret12345" not in listed.out
    assert "ak" in listed.out
    monkeypatch.setenv("AEROBEE_ACCESS_KEY", "ak")
    done = call("topic", "list")
    assert (done.code, done.err) == (
        2,
        "aerobee: credentials are an access key and a secret key; AEROBEE_SECRET_KEY is not set\n",
    )


def test_without_a_terminal_nothing_is_asked_and_blank_is_said_to_be_blank(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done = call("context", "add", "acl", "-n", "h:1", "--access-key", "ak")
    assert (done.code, "set AEROBEE_SECRET_KEY" in done.err) == (2, True)
    done = call("users", "create", "u")
    assert (done.code, "set AEROBEE_USER_SECRET" in done.err) == (2, True)
    blank = tmp_path / "secret.txt"
    blank.write_text("\n")
    done = call("users", "create", "u", "--secret-file", str(blank))
    assert (done.code, "the first line is blank" in done.err) == (2, True)
    monkeypatch.setenv("NAMESRV_ADDR", " ")
    assert call("topic", "list").err == "aerobee: no name server address in ' '\n"


def test_users_are_prepared_on_the_host_of_a_broker_without_access_control(
    call: Call, broker: AnyBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asks from another host is refused: tests/aerobee/client/steps/admin/test_brokers.py."""
    monkeypatch.setenv("NAMESRV_ADDR", broker.namesrv_address)
    monkeypatch.setenv("AEROBEE_USER_SECRET", "an-orders-secret")
    assert (call("users", "list").out, call("users", "create", "orders").code) == ("", 0)
    try:
        (user,) = call("users", "list", "--json").document
        assert (user["name"], "secret" in str(user)) == ("orders", False)
    finally:
        assert call("users", "delete", "orders", "--yes").code == 0


def test_an_encrypted_connection_is_not_made_to_a_broker_without(
    call: Call, broker: AnyBroker
) -> None:
    call("context", "add", "tls", "-n", broker.namesrv_address, "--tls")
    assert call("topic", "list", "--context", "tls").code == 4
    (row,) = call("context", "list", "--json").document
    assert row["tls"] is True


def test_of_two_commands_at_once_neither_loses_what_the_other_has_kept(call: Call) -> None:
    call("context", "add", "one", "-n", NOWHERE)
    events: list[str] = []
    begun = threading.Event()

    def change(name: str) -> None:
        begun.set()
        with Contexts.changing() as contexts:
            events.append(name)
            contexts.known[name] = {"namesrv": NOWHERE}

    other = threading.Thread(target=change, args=("other",))
    with Contexts.changing() as contexts:
        other.start()
        assert begun.wait(60)
        contexts.known["own"] = {"namesrv": NOWHERE}
        events.append("own")
    other.join(60)
    assert events == ["own", "other"]
    assert call("context", "use", "one").code == 0
    rows = call("context", "list", "--json").document
    assert [row["name"] for row in rows] == ["one", "other", "own"]
