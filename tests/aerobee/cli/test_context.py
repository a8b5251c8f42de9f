"""`aerobee context`, and which of several ways to a cluster counts."""

import stat

import pytest

from aerobee.cli.connection import contexts_file
from tests.aerobee.cli.conftest import Call

pytestmark = pytest.mark.service

NOWHERE = "127.0.0.1:1"


def test_contexts_are_kept_for_their_owner_only(call: Call) -> None:
    assert call("context", "add", "one", "-n", "h1:9876,h2", "--use").code == 0
    assert call("context", "add", "two", "-n", "h3:1").code == 0
    assert stat.S_IMODE(contexts_file().stat().st_mode) == 0o600
    rows = call("context", "list", "--json").document
    assert [(row["name"], row["in_use"], row["namesrv"]) for row in rows] == [
        ("one", True, "h1:9876;h2:9876"),
        ("two", False, "h3:1"),
    ]
    assert call("context", "use", "two").code == 0
    assert call("context", "remove", "two").code == 0
    assert [row["in_use"] for row in call("context", "list", "--json").document] == [False]
    done = call("context", "use", "two")
    assert (done.code, done.err) == (2, "aerobee: there is no context two; there are: one\n")
    assert call("context", "add", "bad", "-n", "h:port").code == 2


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


def test_a_file_that_is_broken_is_named(call: Call) -> None:
    contexts_file().parent.mkdir(parents=True)
    contexts_file().write_text("{")
    done = call("context", "list")
    assert done.code == 2
    assert str(contexts_file()) in done.err
