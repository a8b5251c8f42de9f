"""`aerobee store verify`, `dump`, `stats` and `repair`, on directories at rest and in use."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from aerobee.cli.store import store
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
