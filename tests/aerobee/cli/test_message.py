"""`aerobee produce` and `aerobee consume` against a real broker."""

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.aerobee.cli.conftest import Run, command, environment
from tests.conftest import AnyBroker
from tests.kit.process import Child

pytestmark = pytest.mark.service

WITHIN_S = 30


def consumed(run: Run, topic: str, *options: str) -> list[dict[str, object]]:
    """What is in a topic now."""
    done = run("consume", topic, "--no-follow", "--json", *options)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


# ── produce ──


def test_a_message_is_stored_and_its_place_printed(run: Run, topic: str) -> None:
    done = run("produce", topic, "hello", "--tag", "A", "--key", "k1", "--key", "k2")
    assert (done.returncode, done.stderr) == (0, "")
    assert f" in {topic}/" in done.stdout
    (message,) = consumed(run, topic)
    assert message["body"] == "hello"
    assert (message["tag"], message["keys"]) == ("A", ["k1", "k2"])
    assert f"stored {message['message_id']} in" in done.stdout


def test_json_says_the_same_to_programs(run: Run, topic: str) -> None:
    done = run("produce", topic, "hello", "--json")
    result = json.loads(done.stdout)
    assert (result["topic"], result["queue_offset"], result["status"]) == (topic, 0, "OK")


def test_many_messages_end_with_a_summary(run: Run, topic: str) -> None:
    done = run("produce", topic, "--size", "100", "--count", "50", "--batch", "20")
    assert done.returncode == 0
    assert done.stdout.startswith("50 messages stored in ")
    assert "\x1b" not in done.stderr
    messages = consumed(run, topic)
    assert len(messages) == 50
    assert {len(str(message["body"])) for message in messages} == {100}


def test_lines_of_a_file_and_of_stdin_become_messages(run: Run, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text("one\n\ntwo\r\nthree")
    assert run("produce", topic, "--file", str(file)).returncode == 0
    assert run("produce", topic, "--file", "-", given="four\n").returncode == 0
    bodies = {message["body"] for message in consumed(run, topic)}
    assert bodies == {"one", "two", "three", "four"}


def test_a_queue_may_be_chosen(run: Run, topic: str) -> None:
    done = run("produce", topic, "x", "--count", "3", "--queue", "2", "--json")
    assert {json.loads(line)["queue_id"] for line in done.stdout.splitlines()} == {2}
    done = run("produce", topic, "x", "--queue", "99")
    assert done.returncode == 2
    assert "has queues 0 to 3, not 99" in done.stderr


def test_a_rate_spreads_messages_over_time(run: Run, topic: str) -> None:
    done = run("produce", topic, "x", "--count", "6", "--rate", "10")
    elapsed_s = float(done.stdout.split(" in ")[1].split(" s")[0])
    assert elapsed_s >= 0.5


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "give one of BODY, --size and --file"),
        (("x", "--size", "3"), "give one of BODY, --size and --file"),
        (("x", "--count", "0"), "--count"),
        (("x", "--batch", "2", "--queue", "1"), "--queue"),
    ],
)
def test_wrong_usage_is_exit_code_2(
    run: Run, topic: str, arguments: tuple[str, ...], text: str
) -> None:
    done = run("produce", topic, *arguments)
    assert done.returncode == 2
    assert text in done.stderr


def test_what_can_never_be_sent_is_exit_code_2(run: Run) -> None:
    done = run("produce", "no topic", "x")
    assert done.returncode == 2
    assert done.stderr.startswith("aerobee: topic 'no topic'")
    assert len(done.stderr.splitlines()) == 1


def test_nobody_there_is_exit_code_4_and_says_what_to_do(run: Run, topic: str) -> None:
    done = run("produce", topic, "x", "-n", "127.0.0.1:1")
    assert done.returncode == 4
    assert "127.0.0.1:1" in done.stderr
    assert "aerobee broker run" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_ctrl_c_ends_producing_with_what_was_sent(
    start: Callable[..., Child], run: Run, topic: str
) -> None:
    with start("produce", topic, "x", "--count", "100000", "--rate", "50", "--json") as child:
        child.read_line(within_s=WITHIN_S)
        child.signal(signal.SIGINT)
        assert child.wait(within_s=WITHIN_S) == 1
        assert "Traceback" not in child.errors()


# ── consume ──


def test_messages_are_printed_with_place_tag_and_body(run: Run, topic: str) -> None:
    run("produce", topic, "hello", "--tag", "A", "--queue", "1")
    done = run("consume", topic, "--max", "1")
    assert done.returncode == 0
    assert done.stdout.endswith("/1@0 [A] hello\n")
    assert done.stdout.startswith(f"{topic}/")


def test_only_wanted_tags_are_printed(run: Run, topic: str) -> None:
    for tag in "ABC":
        run("produce", topic, tag, "--tag", tag)
    assert {m["body"] for m in consumed(run, topic, "--tag", "A || C")} == {"A", "C"}


def test_reading_without_a_group_can_be_repeated(run: Run, topic: str) -> None:
    run("produce", topic, "x", "--count", "10")
    assert len(consumed(run, topic)) == 10
    assert len(consumed(run, topic)) == 10
    assert len(consumed(run, topic, "--from", "last")) == 0
    assert len(consumed(run, topic, "--from", "2020-01-01")) == 10


def test_a_group_goes_on_where_it_was(run: Run, topic: str) -> None:
    run("produce", topic, "x", "--count", "10")
    group = f"g-{topic}"
    first = consumed(run, topic, "--group", group, "--max", "4")
    second = consumed(run, topic, "--group", group)
    places = {(m["queue_id"], m["queue_offset"]) for m in first + second}
    assert (len(first), len(second), len(places)) == (4, 6, 10)
    assert consumed(run, topic, "--group", group) == []


def test_following_prints_what_comes_until_ctrl_c(
    start: Callable[..., Child], run: Run, topic: str
) -> None:
    run("produce", topic, "first")
    with start("consume", topic) as child:
        assert child.read_line(within_s=WITHIN_S).endswith("first")
        run("produce", topic, "second")
        assert child.read_line(within_s=WITHIN_S).endswith("second")
        child.signal(signal.SIGINT)
        assert child.wait(within_s=WITHIN_S) == 0
        assert child.errors() == ""


def test_sigterm_commits_as_ctrl_c_does(start: Callable[..., Child], run: Run, topic: str) -> None:
    run("produce", topic, "x", "--queue", "0", "--count", "3")
    group = f"g-{topic}"
    with start("consume", topic, "--group", group) as child:
        for _ in range(3):
            child.read_line(within_s=WITHIN_S)
        assert child.stop(within_s=WITHIN_S) == 0
    left = consumed(run, topic, "--group", group)
    assert len(left) <= 1


def test_a_reader_that_goes_away_is_no_error(run: Run, broker: AnyBroker, topic: str) -> None:
    run("produce", topic, "--size", "1000", "--count", "500", "--batch", "100")
    with subprocess.Popen(
        command("consume", topic),
        env=environment(broker.namesrv_address),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.readline()
        child.stdout.close()
        assert child.wait(WITHIN_S) == 0
        assert child.stderr.read() == b""


def test_silence_ends_it_when_told(run: Run, topic: str) -> None:
    run("produce", topic, "x")
    done = run("consume", topic, "--timeout", "0.5")
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 1


def test_bodies_that_are_no_text_come_as_base64(run: Run, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "bytes"
    file.write_bytes(b"\xff\xfe\n")
    run("produce", topic, "--file", str(file))
    (message,) = consumed(run, topic)
    assert message["body_base64"] == "//4="
    assert "\\xff\\xfe" in run("consume", topic, "--no-follow").stdout


def test_a_topic_that_does_not_exist_is_an_error_without_a_group(run: Run) -> None:
    done = run("consume", "never-made")
    assert done.returncode == 1
    assert "never-made" in done.stderr


def test_a_place_that_is_none_is_exit_code_2(run: Run, topic: str) -> None:
    done = run("consume", topic, "--from", "yesterday")
    assert done.returncode == 2
    assert "yesterday" in done.stderr
