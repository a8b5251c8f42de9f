"""`aerobee produce` against a real broker."""

import json
import signal
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count, islice, repeat
from pathlib import Path

import pytest

from aerobee.cli import arguments
from aerobee.cli.produce import chunks
from aerobee.client.message import Message
from tests.aerobee.cli.conftest import Call, Run, command, consumed, environment
from tests.conftest import AnyBroker
from tests.kit.process import Child

pytestmark = pytest.mark.service

WITHIN_S = 30


def test_a_message_is_stored_and_its_place_printed(run: Run, call: Call, topic: str) -> None:
    done = run("produce", topic, "hello", "--tag", "A", "--key", "k1", "--key", "k2")
    assert (done.returncode, done.stderr) == (0, "")
    assert f" in {topic}/" in done.stdout
    (message,) = consumed(call, topic)
    assert message["body"] == "hello"
    assert (message["tag"], message["keys"]) == ("A", ["k1", "k2"])
    assert f"stored {message['message_id']} in" in done.stdout


def test_json_says_the_same_to_programs(call: Call, topic: str) -> None:
    done = call("produce", topic, "hello", "--json")
    result = json.loads(done.out)
    assert (result["topic"], result["queue_offset"], result["status"]) == (topic, 0, "OK")


def test_many_messages_end_with_a_summary(call: Call, topic: str) -> None:
    done = call("produce", topic, "--size", "100", "--count", "50", "--batch", "20")
    assert done.code == 0
    assert done.out.startswith("50 messages stored in ")
    assert "\x1b" not in done.err
    messages = consumed(call, topic)
    assert len(messages) == 50
    assert {len(str(message["body"])) for message in messages} == {100}


def test_a_batch_without_bound_is_sent_in_requests_of_bounded_size() -> None:
    """A pipe may have more than the memory holds."""
    made = count()
    endless = (Message("t", bytes(next(made) % 7 * 100_000)) for _ in repeat(None))
    parts = list(islice(chunks(endless, 10**12), 20))
    assert max(len(part) for part in parts) < 20
    assert sum(len(part) for part in parts) == next(made)
    small = (Message("t", b"x") for _ in range(7))
    assert [len(part) for part in chunks(small, 3)] == [3, 3, 1]


def test_lines_of_a_file_and_of_stdin_become_messages(
    call: Call, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "lines"
    file.write_text("one\n\ntwo\r\nthree")
    assert call("produce", topic, "--file", str(file)).code == 0
    assert call("produce", topic, "--file", "-", given="four\n").code == 0
    bodies = {message["body"] for message in consumed(call, topic)}
    assert bodies == {"one", "two", "three", "four"}


def test_a_queue_may_be_chosen(call: Call, topic: str) -> None:
    done = call("produce", topic, "x", "--count", "3", "--queue", "2", "--json")
    assert {json.loads(line)["queue_id"] for line in done.out.splitlines()} == {2}
    done = call("produce", topic, "x", "--queue", "99")
    assert done.code == 2
    assert "has queues 0 to 3, not 99" in done.err


def test_a_rate_spreads_messages_over_time(call: Call, topic: str) -> None:
    done = call("produce", topic, "x", "--count", "6", "--rate", "10")
    elapsed_s = float(done.out.split(" in ")[1].split(" s")[0])
    assert elapsed_s >= 0.5


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "give one of BODY, --size and --file"),
        (("x", "--size", "3"), "give one of BODY, --size and --file"),
        (("x", "--count", "0"), "--count"),
        (("x", "--count", "1" + "0" * 30), "--count"),
        (("x", "--count", "3", "--rate", "1e-300"), "--rate"),
        (("x", "--count", "3", "--rate", "nan"), "--rate"),
        (("x", "--delay", "9999999999d"), "--delay"),
        (("--size", "99999999999"), "--size"),
        (("x", "--batch", "2", "--queue", "1"), "--queue"),
        (("--file", __file__, "--count", "3"), "--count"),
    ],
)
def test_wrong_usage_is_exit_code_2(
    call: Call, topic: str, arguments: tuple[str, ...], text: str
) -> None:
    done = call("produce", topic, *arguments)
    assert done.code == 2
    assert text in done.err


def test_what_can_never_be_sent_is_exit_code_2(call: Call) -> None:
    done = call("produce", "no topic", "x")
    assert done.code == 2
    assert done.err.startswith("aerobee: topic 'no topic'")
    assert len(done.err.splitlines()) == 1


def test_nobody_there_is_exit_code_4_and_says_what_to_do(call: Call, topic: str) -> None:
    done = call("produce", topic, "x", "-n", "127.0.0.1:1")
    assert done.code == 4
    assert "127.0.0.1:1" in done.err
    assert "aerobee broker run" in done.err
    assert len(done.err.splitlines()) == 1


def test_ctrl_c_ends_producing_with_what_was_sent(
    start: Callable[..., Child], call: Call, topic: str
) -> None:
    with start("produce", topic, "x", "--count", "100000", "--rate", "50", "--json") as child:
        child.read_line(within_s=WITHIN_S)
        child.signal(signal.SIGINT)
        assert child.wait(within_s=WITHIN_S) == 1
        assert "Traceback" not in child.errors()


def test_headers_keys_and_order_are_the_message_s_own(call: Call, topic: str) -> None:
    words = ("--header", "region=north", "--header", "a=b=c", "--ordering-key", "o", "--key", "k")
    assert call("produce", topic, "x", *words).code == 0
    (line,) = call("consume", topic, "--no-follow", "--json").out.splitlines()
    properties = json.loads(line)["properties"]
    assert (properties["region"], properties["a"]) == ("north", "b=c")
    assert properties["__SHARDINGKEY"] == "o"
    assert call("produce", topic, "x", "--header", "novalue").code == 2
    assert call("produce", topic, "x", "--header", "TAGS=x").code == 2


def test_a_delayed_message_comes_later(call: Call, topic: str) -> None:
    at = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    for words in (("--delay", "1h"), ("--deliver-at", at)):
        done = call("produce", topic, "later", *words, "--queue", "1")
        assert done.code == 0
        assert f" until it is delivered to {topic}/" in done.out
        assert " at " not in done.out, "the offset would be that of another topic"
        done = call("produce", topic, "later", *words, "--queue", "1", "--json")
        assert (done.document["queue_id"], done.document["queue_offset"]) == (1, None)
    assert call("produce", topic, "now").code == 0
    assert call("consume", topic, "--no-follow", "--format", "body").out == "now\n"
    assert call("produce", topic, "x", "--delay", "1h", "--deliver-at", at).code == 2
    assert call("produce", topic, "x", "--delay", "soon").code == 2


def test_a_priority_is_the_queue_and_nothing_beside_it(call: Call, topic: str) -> None:
    for priority, queue in (("0", 0), ("3", 3)):
        done = call("produce", topic, "x", "--priority", priority, "--json")
        assert json.loads(done.out)["queue_id"] == queue
    for words in (["--delay", "1h"], ["--ordering-key", "k"]):
        done = call("produce", topic, "x", "--priority", "1", *words)
        assert (done.code, "give one of them" in done.err) == (2, True)
    for wrong in ("-1", "high", "2147483648"):
        assert call("produce", topic, "x", "--priority", wrong).code == 2


def test_what_consume_prints_as_json_can_be_produced_again(call: Call, topic: str) -> None:
    given = ["--tag", "A", "--key", "k", "--header", "region=north", "--priority", "2"]
    call("produce", topic, "x", *given)
    printed = call("consume", topic, "--no-follow", "--json").out
    other = f"{topic}-other"
    done = call("produce", other, "--file", "-", "--format", "json", given=printed)
    assert done.code == 0, done.err
    (line,) = call("consume", other, "--no-follow", "--json").out.splitlines()
    first, second = json.loads(printed), json.loads(line)
    assert [second[name] for name in ("body", "tag", "keys")] == ["x", "A", ["k"]]
    assert second["properties"]["region"] == "north"
    assert (second["properties"]["_SYS_MSG_PRIORITY_"], second["queue_id"]) == ("2", 2)
    again = ("produce", other, "--file", "-", "--format", "json", "--ordering-key", "k")
    assert call(*again, given=printed).code == 0, "what is said of every message counts"
    assert second["message_id"] != first["message_id"]
    for wrong in ("nonsense\n", '{"no":"body"}\n', "[]\n"):
        done = call("produce", other, "--file", "-", "--format", "json", given=wrong)
        assert (done.code, "no message" in done.err) == (2, True)


BAD_LINES = {
    '{"body":"x","tag":5}': "Expected `str",
    '{"body":"x","keys":"order-17"}': "Expected `array",
    '{"body":"x","keys":["a b"]}': "key 'a b'",
    '{"body":"x","properties":{"a":1}}': "Expected `str`, got `int`",
    '{"body":7}': "Expected `str",
    '{"body_base64":"?"}': "base64",
    "{oops": "JSON is malformed",
    "[" * 100_000: "Expected `object`",
    '{"body_base64":"AA==","unreadable":"no zlib"}': "as it was stored, not as it was sent",
    "{}": "neither body nor body_base64",
}


@pytest.mark.parametrize("line", BAD_LINES)
def test_a_bad_line_is_named_by_its_number_and_what_is_wrong(
    call: Call, topic: str, tmp_path: Path, line: str
) -> None:
    file = tmp_path / "orders.json"
    file.write_text(f'{{"body":"1"}}\n\n{line}\n{{"body":"2"}}\n')
    done = call("produce", topic, "--file", str(file), "--format", "json")
    assert done.code == 2
    assert f"--file {file}, line 3" in done.err
    assert BAD_LINES[line] in done.err
    assert call("consume", topic, "--no-follow", "--format", "body").out == "1\n"


def test_keys_of_a_line_stay_whole(call: Call, topic: str) -> None:
    given = '{"body":"x","keys":["order-17","order-18"]}'
    assert call("produce", topic, "--file", "-", "--format", "json", given=given).code == 0
    (line,) = call("consume", topic, "--no-follow", "--json").out.splitlines()
    assert json.loads(line)["keys"] == ["order-17", "order-18"]


def test_a_line_that_a_broker_refuses_is_named(call: Call, topic: str) -> None:
    given = "short\n" + "x" * (5 << 20) + "\n"
    done = call("produce", topic, "--file", "-", given=given)
    assert (done.code, "--file -, line 2" in done.err) == (2, True), done.err
    assert len(done.err.splitlines()) == 1


def test_a_line_without_an_end_is_not_read_into_memory(
    call: Call, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arguments, "LINE_MAX", 10)
    done = call("produce", topic, "--file", "-", given="0123456789\n" + "x" * 12)
    assert (done.code, "line 1: longer than 10 bytes" in done.err) == (2, True)
    done = call("produce", topic, "--file", "-", given="short\n" + "x" * 12)
    assert "line 2: longer than 10 bytes" in done.err


def test_who_stops_reading_is_not_told_that_all_is_stored(
    broker: AnyBroker, topic: str, tmp_path: Path
) -> None:
    lines = tmp_path / "lines"
    lines.write_text("x\n" * 2_000)
    words = command("produce", topic, "--file", str(lines), "--json")
    env = environment(broker.namesrv_address)
    with subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as began:
        assert began.stdout is not None
        assert began.stderr is not None
        began.stdout.readline()
        began.stdout.close()
        err = began.stderr.read().decode()
    assert (began.returncode, "no more is sent" in err) == (1, True), err
