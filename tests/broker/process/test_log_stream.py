"""Lines that nobody takes: kept in order up to a bound, then dropped and counted."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from aerobee.broker.process import log, log_stream
from aerobee.broker.process.log_stream import LineStream
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO


@pytest.fixture
def pipe() -> Iterator[tuple[int, TextIO]]:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        yield reading, stream
    os.close(reading)


def read(descriptor: int) -> str:
    """What is there now."""
    seen = b""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    while poll.poll(0):
        seen += os.read(descriptor, 65_536)
    return seen.decode()


def read_all(lines: LineStream, descriptor: int) -> str:
    """What is there, and what waits behind it."""
    seen: list[str] = []

    def taken() -> bool:
        seen.append(read(descriptor))
        return not lines.waiting

    eventually(taken, within_s=20, every_s=0.001, what="all that waits is written")
    return "".join([*seen, read(descriptor)])


def test_what_is_taken_is_written_at_once_and_what_is_not_later_in_order(
    pipe: tuple[int, TextIO],
) -> None:
    reading, stream = pipe
    lines = LineStream(stream)
    written = [f"{number:05d} {'x' * 200}\n" for number in range(2_000)]
    for line in written:
        lines.write(line)
    assert read_all(lines, reading) == "".join(written)
    assert lines.take_dropped() == 0


def test_beyond_the_bound_lines_are_dropped_and_the_next_one_says_how_many(
    pipe: tuple[int, TextIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_stream, "WAITING_BYTES_MAX", 10_000)
    reading, stream = pipe
    lines = LineStream(stream)
    log.configure(stream=lines, as_json=True)
    written = 2_000
    for _ in range(written):
        lines.write("x" * 1_023 + "\n")
    assert lines.take_dropped() == 0, "nobody could read it yet"
    seen = read_all(lines, reading).count("\n")
    log.log.info("broker.stopping")
    told, line = map(json.loads, read_all(lines, reading).splitlines())
    assert (told["event"], told["lines"]) == ("log.dropped", written - seen)
    assert line["event"] == "broker.stopping"


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "absent"])
def test_a_stream_that_is_gone_takes_everything(closed: bool) -> None:
    stream = None
    if closed:
        reading, writing = os.pipe()
        os.close(reading)
        stream = os.fdopen(writing, "w")
    lines = LineStream(stream)
    assert lines.write("one\n") == 4
    assert lines.take_dropped() == 1
    if stream is not None:
        stream.close()


def test_no_file_gets_the_number_of_a_standard_stream_that_was_closed() -> None:
    code = """if True:
        import os
        from aerobee.broker.process.log_stream import fill_standard_descriptors
        os.closerange(0, 3)
        fill_standard_descriptors()
        os._exit(os.open("/dev/null", os.O_RDONLY))
    """
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode > 2
