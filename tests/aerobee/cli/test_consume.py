"""`aerobee consume` against a real broker."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.aerobee.cli.conftest import Call, Run, command, consumed, environment
from tests.conftest import AnyBroker, StartBroker
from tests.kit.process import Child

pytestmark = pytest.mark.service

WITHIN_S = 30


@pytest.fixture(scope="module")
def broker(shared_broker: StartBroker) -> AnyBroker:
    return shared_broker(enablePropertyFilter=True)


def test_messages_are_printed_with_place_tag_and_body(run: Run, call: Call, topic: str) -> None:
    call("produce", topic, "hello", "--tag", "A", "--queue", "1")
    done = run("consume", topic, "--max", "1")
    assert done.returncode == 0
    assert done.stdout.endswith("/1@0 [A] hello\n")
    assert done.stdout.startswith(f"{topic}/")


def test_only_wanted_tags_are_printed(call: Call, topic: str) -> None:
    for tag in "ABC":
        call("produce", topic, tag, "--tag", tag)
    assert {m["body"] for m in consumed(call, topic, "--tag", "A || C")} == {"A", "C"}


def test_reading_without_a_group_can_be_repeated(call: Call, topic: str) -> None:
    call("produce", topic, "x", "--count", "10")
    assert len(consumed(call, topic)) == 10
    assert len(consumed(call, topic)) == 10
    assert len(consumed(call, topic, "--from", "last")) == 0
    assert len(consumed(call, topic, "--from", "2020-01-01")) == 10


def test_a_group_goes_on_where_it_was(call: Call, topic: str) -> None:
    call("produce", topic, "x", "--count", "10")
    group = f"g-{topic}"
    first = consumed(call, topic, "--group", group, "--max", "4")
    second = consumed(call, topic, "--group", group)
    places = {(m["queue_id"], m["queue_offset"]) for m in first + second}
    assert (len(first), len(second), len(places)) == (4, 6, 10)
    assert consumed(call, topic, "--group", group) == []


def test_a_group_without_offsets_begins_where_it_is_told(call: Call, topic: str) -> None:
    """Also in a young queue, for which brokers say 0 to clients that have no wish."""
    call("produce", topic, "x", "--count", "10")
    assert consumed(call, topic, "--group", f"late-{topic}", "--from", "last") == []
    assert consumed(call, topic, "--group", f"then-{topic}", "--from", "2100-01-01") == []
    assert len(consumed(call, topic, "--group", f"all-{topic}", "--from", "2020-01-01")) == 10
    call("produce", topic, "new")
    (message,) = consumed(call, topic, "--group", f"late-{topic}")
    assert message["body"] == "new"


def test_following_prints_what_comes_until_ctrl_c(
    start: Callable[..., Child], call: Call, topic: str
) -> None:
    call("produce", topic, "first")
    with start("consume", topic) as child:
        assert child.read_line(within_s=WITHIN_S).endswith("first")
        call("produce", topic, "second")
        assert child.read_line(within_s=WITHIN_S).endswith("second")
        child.signal(signal.SIGINT)
        assert child.wait(within_s=WITHIN_S) == 0
        assert child.errors() == ""


def test_sigterm_commits_as_ctrl_c_does(
    start: Callable[..., Child], call: Call, topic: str
) -> None:
    call("produce", topic, "x", "--queue", "0", "--count", "3")
    group = f"g-{topic}"
    with start("consume", topic, "--group", group) as child:
        for _ in range(3):
            child.read_line(within_s=WITHIN_S)
        assert child.stop(within_s=WITHIN_S) == 0
    left = consumed(call, topic, "--group", group)
    assert len(left) <= 1


def test_a_reader_that_goes_away_is_no_error(call: Call, broker: AnyBroker, topic: str) -> None:
    call("produce", topic, "--size", "1000", "--count", "500", "--batch", "100")
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


def test_a_reader_that_goes_away_while_nothing_comes_ends_it(
    call: Call, broker: AnyBroker, topic: str
) -> None:
    call("produce", topic, "x")
    with subprocess.Popen(
        command("consume", topic), env=environment(broker.namesrv_address), stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        child.stdout.close()
        assert child.wait(WITHIN_S) == 0


def test_silence_ends_it_when_told(call: Call, topic: str) -> None:
    call("produce", topic, "x")
    done = call("consume", topic, "--timeout", "0.5")
    assert done.code == 0
    assert len(done.out.splitlines()) == 1


def test_bodies_that_are_no_text_come_as_base64_and_unchanged_in_a_pipe(
    call: Call, broker: AnyBroker, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "bytes"
    file.write_bytes(b"\xff\xfe\n")
    call("produce", topic, "--file", str(file))
    (message,) = consumed(call, topic)
    assert message["body_base64"] == "//4="
    pipe = subprocess.run(
        command("consume", topic, "--no-follow", "--format", "raw"),
        env=environment(broker.namesrv_address),
        capture_output=True,
        check=True,
        timeout=WITHIN_S,
    )
    assert pipe.stdout == b"\xff\xfe"


def test_a_topic_that_does_not_exist_is_an_error_without_a_group(call: Call) -> None:
    done = call("consume", "never-made")
    assert done.code == 1
    assert "never-made" in done.err


def test_a_place_that_is_none_is_exit_code_2(call: Call, topic: str) -> None:
    done = call("consume", topic, "--from", "yesterday")
    assert done.code == 2
    assert "yesterday" in done.err


def test_formats_and_filters(call: Call, topic: str) -> None:
    call("topic", "create", topic, "--queues", "1")
    call("produce", topic, "one", "--header", "a=1", "--tag", "T", "--key", "k")
    call("produce", topic, "two", "--header", "a=7")
    printed = call("consume", topic, "--no-follow", "--format", "{header.a}\\t{keys}|{body}").out
    assert printed == "1\tk|one\n7\t|two\n"
    done = call("consume", topic, "--no-follow", "--from", "offset:1", "--format", "raw")
    assert done.out == "two"
    done = call("consume", topic, "--no-follow", "--filter", "a > 5", "--format", "body")
    assert (done.code, done.out) == (0, "two\n"), done.err
    assert call("consume", topic, "--filter", "a >").code == 2
    assert call("consume", topic, "--filter", "a > 1", "--tag", "T").code == 2
    assert call("consume", topic, "--format", "nothing").code == 2
    assert call("consume", topic, "--group", "g", "--from", "offset:1").code == 2


def test_a_terminal_is_shown_escapes_and_a_pipe_gets_the_bytes(
    call: Call, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    call("produce", topic, "\x1b[31mred", "--tag", "A")
    words = ("consume", topic, "--no-follow")
    assert call(*words, "--format", "body").out == "\x1b[31mred\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert call(*words, "--format", "body").out == "\\x1b[31mred\n"


def test_an_outage_is_told_and_waited_for(
    start: Callable[..., Child], start_broker: StartBroker, call: Call, topic: str
) -> None:
    broker = start_broker()
    to_it = ("-n", broker.namesrv_address)
    call("produce", topic, "first", *to_it)
    with start("consume", topic, *to_it, "--format", "body") as child:
        assert child.read_line(within_s=WITHIN_S) == "first"
        broker.restart()
        call("produce", topic, "second", *to_it)
        assert child.read_line(within_s=WITHIN_S) == "second"
        child.signal(signal.SIGINT)
        assert child.wait(within_s=WITHIN_S) == 0
        assert child.errors().startswith("aerobee: pulling ")


def test_a_full_disk_under_a_list_is_one_line(broker: AnyBroker) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command("topic", "list", "--system"),
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(broker.namesrv_address),
            text=True,
            check=False,
            timeout=WITHIN_S,
        )
    text = "aerobee: the output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, text)
