"""`aerobee topic create` and `aerobee topic list` against a real broker."""

import json

import pytest

from aerobee.client.system_names import is_system_topic
from tests.aerobee.cli.conftest import Run

pytestmark = pytest.mark.service


def test_a_topic_is_made_and_listed(run: Run, topic: str) -> None:
    done = run("topic", "create", topic, "--queues", "3", "--perm", "rw")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"topic {topic}: 3 queues per broker, rw\n"
    assert topic in run("topic", "list").stdout.splitlines()
    names = [
        json.loads(line)["topic"] for line in run("topic", "list", "--json").stdout.splitlines()
    ]
    assert topic in names
    assert not any(is_system_topic(name) for name in names)
    assert "TBW102" in run("topic", "list", "--all").stdout.splitlines()
    last = run("produce", topic, "x", "--queue", "3")
    assert "has queues 0 to 2" in last.stderr


def test_a_name_that_is_none_is_exit_code_2(run: Run) -> None:
    done = run("topic", "create", "a/b")
    assert done.returncode == 2
    assert done.stderr == "aerobee: topic 'a/b': use letters, digits and % | _ -\n"


def test_nobody_there_is_exit_code_4(run: Run) -> None:
    assert run("topic", "list", "-n", "127.0.0.1:1").returncode == 4
