"""The kit's own promises: ports that are free, processes that end, waits that say what for."""

import signal
import socket
import sys
from pathlib import Path
from subprocess import TimeoutExpired

import pytest

from tests.kit.ports import HOST, free_block, free_port
from tests.kit.process import Child, DidNotStart, Server
from tests.kit.waiting import eventually

DEFAULTS = {9_876, 10_909, 10_911, 10_912, 5_557, 8_080, 8_088}


def python(code: str, log: Path) -> Child:
    return Child([sys.executable, "-c", code], log=log)


def test_blocks_never_overlap_and_can_be_bound() -> None:
    blocks = [free_block() for _ in range(20)]
    ports = [port for b in blocks for port in (b.vip, b.metrics, b.listen, b.ha)]
    assert len(set(ports)) == 80
    assert not DEFAULTS & set(ports)
    assert max(ports) < 32_768
    for port in ports[:4]:
        socket.create_server((HOST, port)).close()


def test_a_taken_port_is_passed_over() -> None:
    with socket.create_server((HOST, free_port())) as taken:
        assert taken.getsockname()[1] not in [free_port() for _ in range(10)]


def test_lines_are_read_one_by_one_and_answers_written(tmp_path: Path) -> None:
    code = "print('ready a', flush=True); print(input().upper())"
    with python(code, tmp_path / "log") as child:
        assert child.read_line(within_s=10) == "ready a"
        child.write_line("hello")
        assert child.read_line(within_s=10) == "HELLO"
        assert child.wait(within_s=10) == 0


def test_a_process_that_ends_early_is_shown_with_its_last_words(tmp_path: Path) -> None:
    code = "import sys; print('the disk is locked', file=sys.stderr); sys.exit(3)"
    with python(code, tmp_path / "log") as child, pytest.raises(DidNotStart) as ended:
        child.read_until("ready", within_s=10)
    assert ended.value.exit_code == 3
    assert "the disk is locked" in str(ended.value)


def test_a_silent_process_is_not_waited_for_longer_than_told(tmp_path: Path) -> None:
    with python("input()", tmp_path / "log") as child, pytest.raises(DidNotStart, match="silent"):
        child.read_line(within_s=0.2)


def test_leaving_the_block_kills_what_ignores_sigterm(tmp_path: Path) -> None:
    code = "import signal; signal.signal(15, signal.SIG_IGN); print('up', flush=True); input()"
    with python(code, tmp_path / "log") as child:
        child.read_until("up", within_s=10)
        with pytest.raises(TimeoutExpired):
            child.stop(within_s=0.2)
        assert child.running
    assert not child.running
    assert child.kill() == -signal.SIGKILL


def test_a_server_whose_start_is_interrupted_is_killed(tmp_path: Path) -> None:
    class Slow(Server):
        def start(self) -> None:
            self._child = python("import time; time.sleep(60)", tmp_path / "log")
            raise KeyboardInterrupt

    server = Slow()
    with pytest.raises(KeyboardInterrupt), server:
        pytest.fail("it did not start")
    assert not server.child.running


def test_an_expectation_that_fails_says_what_was_expected() -> None:
    with pytest.raises(AssertionError, match=r"not within 0\.1 s: the sun rises; last seen: 0"):
        eventually(lambda: 0, within_s=0.1, every_s=0.02, what="the sun rises")
