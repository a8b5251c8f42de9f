"""`aerobee store verify`, `dump`, `stats`, `export`, `repair` and `cut`: at rest and in use."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from aerobee.cli.border import FAILED, REFUSED
from aerobee.cli.message_lines import from_json
from aerobee.cli.produce import message_fields
from aerobee.cli.store import store
from aerobee.store.format.properties import decode
from aerobee.store.format.record import read
from tests.conftest import StartBroker
from tests.kit.raw_client import RawConnection, send_fields
from tests.kit.store_model import LOG_BYTES, log_records
from tests.store.tools.stores import MESSAGES, flip, stopped

SOUND, USAGE, DAMAGED = 0, 2, 3
LOOKS = ("verify", "dump", "stats")


def run(*arguments: object) -> Result:
    result = CliRunner().invoke(store, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def told(*arguments: object, code: int = SOUND) -> dict[str, Any]:
    """The JSON of a command that must end with this code."""
    result = run(*arguments, "--json")
    assert result.exit_code == code, result.output
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def tree(root: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None
        for path in root.rglob("*")
    }


def spoil(root: Path, number: int) -> int:
    """Turn a bit of that message's body over; its place in the log."""
    at, _ = log_records(root)[number]
    flip(root / "commitlog" / f"{at - at % LOG_BYTES:020d}", at % LOG_BYTES + 90)
    return at


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return stopped(tmp_path / "d")


# ── At rest ──


def test_a_sound_directory_is_0_in_words_and_in_json(root: Path) -> None:
    before = tree(root)
    said = run("verify", root)
    assert said.exit_code == SOUND
    assert said.stdout.endswith("sound\n")
    assert "stopped cleanly" in said.stdout
    found = told("verify", root)
    assert (found["messages"], found["damage"], found["index_files"]) == (MESSAGES, [], 5)
    assert tree(root) == before


def test_damage_is_3_and_says_file_and_place(root: Path) -> None:
    at = spoil(root, 9)
    said = run("verify", root)
    assert said.exit_code == DAMAGED
    assert f"commitlog/{at - at % LOG_BYTES:020d} at {at}: body CRC" in said.stdout
    [damage] = told("verify", root, code=DAMAGED)["damage"]
    assert (damage["kind"], damage["physical_offset"]) == ("crc", at)


def test_a_hole_says_what_it_is_and_how_many_messages_are_lost(root: Path) -> None:
    at, record = log_records(root)[20]
    size = len(record)
    with (root / "commitlog" / f"{at - at % LOG_BYTES:020d}").open("r+b") as file:
        file.seek(at % LOG_BYTES)
        file.write(bytes(size))
    said = run("verify", root).stdout
    assert f"at {at}: a hole: zeros where messages were; {size} bytes cannot be read" in said
    assert said.endswith("; 1 message is lost\n")


def test_a_dump_shows_what_is_wanted_and_ends_with_3_behind_damage(root: Path) -> None:
    lines = run("dump", root, "--topic", "T1", "--queue", "1", "--max", "2", "--jsonl").stdout
    messages = [json.loads(line) for line in lines.splitlines()]
    assert [(one["queue_offset"], one["keys"]) for one in messages] == [(0, ["k3"]), (1, ["k7"])]
    assert run("dump", root).stdout.count("\n") == MESSAGES
    spoil(root, 3)
    damaged = run("dump", root)
    assert damaged.exit_code == DAMAGED
    assert damaged.stdout.count("\n") == MESSAGES, "damaged bodies are shown as they are"
    assert damaged.stdout.count("BODY DAMAGED") == 1
    assert run("dump", root, "--topic", "T0").exit_code == SOUND
    flip(root / "commitlog" / f"{0:020d}", 5)
    behind = run("dump", root)
    assert behind.exit_code == DAMAGED
    assert "cannot be read" in behind.stderr
    assert behind.stdout.count("\n") == MESSAGES - 1


def test_stats_count_every_message(root: Path) -> None:
    summary = told("stats", root)
    assert summary["messages"] == MESSAGES
    assert len(summary["queues"]) == 4
    assert f"messages: {MESSAGES}," in run("stats", root).stdout


@pytest.mark.parametrize("command", [*LOOKS, "repair"])
def test_what_is_no_data_directory_is_refused(tmp_path: Path, command: str) -> None:
    assert run(command, tmp_path / "none").exit_code == USAGE
    (tmp_path / "file").touch()
    assert run(command, tmp_path / "file").exit_code == USAGE
    refused = run(command, tmp_path)
    assert refused.exit_code == DAMAGED
    assert f"{tmp_path} holds no commitlog" in refused.stderr
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "dledger-n0").mkdir()
    assert "dledger-n0" in run(command, tmp_path).stderr


@pytest.mark.parametrize("wrong", [["--max", "0"], ["--queue", "-1"], ["--nothing"]])
def test_wrong_usage_is_2(root: Path, wrong: list[str]) -> None:
    assert run("dump", root, *wrong).exit_code == USAGE


def ended(*arguments: object, stdout: int) -> tuple[int, str]:
    """The exit code of the program with this output, and what it said on stderr."""
    words = [sys.executable, "-m", "aerobee", "store", *map(str, arguments)]
    done = subprocess.run(
        words, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False, timeout=60
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("style", [(), ("--json",)])
def test_an_output_that_cannot_be_written_is_no_fault_of_the_store(
    root: Path, style: tuple[str, ...]
) -> None:
    with Path("/dev/full").open("w") as full:
        for command in LOOKS:
            assert ended(command, root, *style, stdout=full.fileno()) == (
                FAILED,
                "aerobee: the output cannot be written: No space left on device\n",
            )


@pytest.mark.skipif(sys.platform != "linux", reason="another system has no /sys")
def test_a_directory_that_nobody_may_make_is_5(root: Path) -> None:
    code, said = ended("export", root, "--output", "/sys/x", stdout=subprocess.DEVNULL)
    assert (code, said.startswith("aerobee: /sys/x: ")) == (REFUSED, True)


# ── Repair ──


def test_a_repair_without_yes_says_the_price_and_changes_nothing(root: Path) -> None:
    at = spoil(root, 40)
    before = tree(root)
    said = run("repair", root)
    assert said.exit_code == DAMAGED
    assert f"cut the log at {at}: {MESSAGES - 40} whole messages go" in said.stdout
    assert "not done: say --yes" in said.stdout
    assert told("repair", root, code=DAMAGED)["kept_in"] is None
    assert tree(root) == before


def test_a_repair_keeps_all_that_it_cuts(root: Path) -> None:
    at = spoil(root, 40)
    before = tree(root)
    done = told("repair", root, "--yes")
    kept = Path(done["kept_in"])
    assert re.fullmatch(r"repair-\d{8}T\d{6}", kept.name)
    copied = {name: data for name, data in tree(kept).items() if data is not None}
    assert copied == {name: before[name] for name in copied}
    changed = {name for name, data in before.items() if data and tree(root).get(name) != data}
    assert changed == set(copied)
    assert f"commitlog/{at - at % LOG_BYTES:020d}" in changed
    assert run("repair", root).stdout == "nothing to do\n"


def test_a_cut_says_what_would_go_then_keeps_it_and_refuses_other_offsets(root: Path) -> None:
    (at, first), (_, second) = log_records(root)[-2:]
    size, before = len(first) + len(second), tree(root)
    said = run("cut", root, "--to", at)
    assert said.exit_code == DAMAGED
    assert f"2 messages, {size} bytes, behind {at} would be cut" in said.stdout
    refused = run("cut", root, "--to", at + 1, "--yes")
    assert refused.exit_code == DAMAGED
    assert f"ends at {at + 1}; the last one in front of it ends at {at}" in refused.stderr
    assert tree(root) == before
    done = run("cut", root, "--to", at, "--yes")
    assert done.exit_code == SOUND, done
    words = shlex.split(done.stdout.partition("to write them to files: ")[2])
    exported = run(*words[2:-1], root.parent / "cut-off")
    assert "2 messages exported" in exported.stdout
    assert len(log_records(root)) == MESSAGES - 2


def test_a_sound_directory_needs_no_repair(root: Path) -> None:
    before = tree(root)
    said = run("repair", root, "--yes")
    assert (said.exit_code, said.stdout) == (SOUND, "nothing to do\n")
    assert tree(root) == before


def test_what_only_a_copy_can_mend_stays_3(root: Path) -> None:
    (root / "commitlog" / f"{LOG_BYTES:020d}").unlink()
    before = tree(root)
    said = run("repair", root, "--yes")
    assert said.exit_code == DAMAGED
    assert "restore it from a copy" in said.stdout
    assert tree(root) == before


def test_a_log_without_a_segment_cannot_be_mended(root: Path) -> None:
    for path in (root / "commitlog").iterdir():
        path.unlink()
    before = tree(root)
    said = run("repair", root, "--yes")
    assert said.exit_code == DAMAGED
    assert "cannot be mended, restore it from a copy" in said.stdout
    assert f"{root}/commitlog: holds no segment" in said.stdout
    assert f"{MESSAGES} messages that consume queues lead to are not in the log" in said.stdout
    assert "--log" in said.stdout, "the log may be elsewhere"
    assert "--yes" not in said.stdout
    assert tree(root) == before


def test_a_repair_says_when_it_is_not_needed_and_how_to_save_what_it_cuts(
    root: Path, tmp_path: Path
) -> None:
    spoil(root, 40)
    said = run("repair", root).stdout
    assert "a broker starts without this repair" in said
    command = re.search(r"aerobee store (export .*) --output DIR", said)
    assert command
    run(*command[1].split(), "--output", tmp_path / "saved")
    done = run("repair", root, "--yes").stdout
    command = re.search(r"aerobee store (export .*) --output DIR", done)
    assert command
    assert "a broker starts without" not in done
    saved = told(*command[1].split(), "--output", tmp_path / "later", code=DAMAGED)
    assert (saved["messages"], saved["damaged_bodies"]) == (MESSAGES - 41, 1)
    assert tree(tmp_path / "saved") == tree(tmp_path / "later")


def test_what_was_exported_is_what_produce_sends(root: Path, tmp_path: Path) -> None:
    fields = message_fields(
        tag=None, keys=(), headers=(), ordering_key=None, delay=None, deliver_at=None
    )
    assert run("export", root, "--topic", "T1", "--output", tmp_path / "out").exit_code == SOUND
    lines = (tmp_path / "out" / "T1.jsonl").read_bytes().splitlines()
    sent = [from_json("T1", line, fields) for line in lines]
    stored = [read(data) for _, data in log_records(root)]
    stored = [one for one in stored if one.topic == "T1"]
    assert [message.body for message in sent] == [bytes(one.body) for one in stored]
    own = [decode(one.properties) for one in stored]
    assert [message.tag for message in sent] == [one["TAGS"] for one in own]
    assert [list(message.keys) for message in sent] == [one["KEYS"].split() for one in own]


# ── Layouts ──


def in_place(base: Path) -> list[object]:
    return [stopped(base / "data")]


def log_elsewhere(base: Path) -> list[object]:
    root = stopped(base / "data")
    (root / "commitlog").rename(base / "log")
    return [root, "--log", base / "log"]


def linked(base: Path) -> list[object]:
    root = stopped(base / "data")
    for name in ("commitlog", "consumequeue", "index"):
        (root / name).rename(base / name)
        (root / name).symlink_to(base / name)
    return [root]


def configured(base: Path) -> list[object]:
    log_elsewhere(base)
    file = base / "broker.yaml"
    file.write_text(f"store_path_root_dir: {base}/data\nstore_path_commit_log: {base}/log\n")
    return ["--config", file]


def several(base: Path) -> list[object]:
    for number in (0, 1):
        stopped(base / "data" / f"broker-{number}")
    return [base / "data"]


def several_configured(base: Path) -> list[object]:
    several(base)
    (base / "log").mkdir()
    for number in (0, 1):
        (base / "data" / f"broker-{number}" / "commitlog").rename(base / "log" / f"broker-{number}")
    file = base / "broker.yaml"
    paths = f"store_path_root_dir: {base}/data\nstore_path_commit_log: {base}/log\n"
    file.write_text(f"{paths}brokers: 2\n")
    return ["--config", file]


LAYOUTS = (in_place, log_elsewhere, linked, configured, several, several_configured)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_tool_finds_the_stores_of_every_layout(
    tmp_path: Path, layout: Callable[[Path], list[object]]
) -> None:
    where = layout(tmp_path)
    stores = 2 if layout in (several, several_configured) else 1
    for command in ("verify", "stats"):
        lines = run(command, *where, "--json").stdout.splitlines()
        assert [json.loads(line)["messages"] for line in lines] == [MESSAGES] * stores
    dumped = run("dump", *where, "--jsonl")
    assert dumped.exit_code == SOUND
    assert dumped.stdout.count("\n") == MESSAGES * stores
    assert (f"{tmp_path}/data/broker-1" in dumped.stdout) == (stores == 2)
    assert run("export", *where, "--output", tmp_path / "out").exit_code == SOUND
    written = "".join(path.read_text() for path in (tmp_path / "out").rglob("*.jsonl"))
    assert written.count("\n") == MESSAGES * stores
    assert run("repair", *where).stdout.count("nothing to do") == stores


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_repair_cuts_the_log_where_it_lies_and_leaves_the_layout(
    tmp_path: Path, layout: Callable[[Path], list[object]]
) -> None:
    where = layout(tmp_path)
    [log, *_] = sorted(
        path.parent for path in tmp_path.rglob(f"{0:020d}") if path.stat().st_size == LOG_BYTES
    )
    before = tree(log)
    links = [path for path in tmp_path.rglob("*") if path.is_symlink()]
    flip(log / f"{0:020d}", 90)
    flip(log / f"{0:020d}", 5)
    assert run("repair", *where, "--yes").exit_code == SOUND
    [kept] = tmp_path.glob("**/repair-*/commitlog")
    assert set(tree(kept)) == set(before), "every segment is kept"
    assert tree(log) != before
    assert not any(any(data) for data in tree(log).values() if data), "the first message was cut"
    assert links == [path for path in tmp_path.rglob("*") if path.is_symlink()]


@pytest.mark.parametrize("command", [*LOOKS, "repair", "export"])
def test_a_log_elsewhere_is_asked_for(tmp_path: Path, command: str) -> None:
    root, *_ = log_elsewhere(tmp_path)
    more = ["--output", tmp_path / "out"] if command == "export" else []
    refused = run(command, root, *more)
    assert refused.exit_code == DAMAGED
    assert "name that with --log, or the broker's file with --config" in refused.stderr


def test_a_directory_and_a_configuration_are_not_given_together(tmp_path: Path) -> None:
    where = configured(tmp_path)
    assert run("verify", tmp_path / "data", *where).exit_code == USAGE
    assert run("verify", "--log", tmp_path / "log", *where).exit_code == USAGE
    assert run("verify").exit_code == USAGE


# ── In use ──


@pytest.fixture(scope="module")
def live(start_broker: StartBroker) -> Iterator[Path]:
    """The directory of a broker that runs, with three messages."""
    broker = start_broker()
    with RawConnection(broker.address) as connection:
        for number in range(3):
            answer = connection.call(310, send_fields("live", 0), b"message %d" % number)
            assert answer.code == 0
        yield broker.data
        assert connection.call(310, send_fields("live", 0), b"undisturbed").code == 0


@pytest.mark.ours
@pytest.mark.parametrize("command", LOOKS)
def test_a_look_at_a_running_broker_works_and_says_that_it_has_no_lock(
    live: Path, command: str
) -> None:
    said = run(command, live)
    assert said.exit_code == SOUND
    assert "a broker runs here" in said.output
    if command == "dump":
        assert [f"message {n}" in said.stdout for n in range(3)] == [True] * 3
    else:
        assert "in use by a running broker" in said.stdout
        assert told(command, live)["messages"] == 3


@pytest.mark.ours
def test_a_repair_of_a_running_brokers_directory_is_refused(live: Path) -> None:
    said = run("repair", live, "--yes")
    assert said.exit_code == DAMAGED
    assert "stop that broker before a repair" in said.stderr
    assert not list(live.glob("repair-*"))
