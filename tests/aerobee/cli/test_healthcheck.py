"""The command against a listener that answers as a broker does, or does not."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from aerobee.cli.healthcheck import healthcheck

if TYPE_CHECKING:
    from collections.abc import Iterator

HOST = "127.0.0.1"


@contextmanager
def answering(status: str, body: str) -> Iterator[int]:
    """A listener that answers one request."""
    with socket.create_server((HOST, 0)) as listener:

        def serve() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(65_536)
                head = f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n\r\n"
                peer.sendall((head + body).encode())

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


def run(port: int, *arguments: str) -> Result:
    return CliRunner().invoke(healthcheck, ["--port", str(port), *arguments])


def test_a_broker_that_is_well_is_exit_code_0() -> None:
    body = json.dumps({"status": "ok", "checks": {"disk": "ok"}})
    with answering("200 OK", body) as port:
        result = run(port)
    assert (result.exit_code, result.output) == (0, f"readyz of 127.0.0.1:{port}: ok\n")


def test_what_is_noted_is_told_and_no_failure() -> None:
    noted = {"slaves": "0 of 1 slaves are in sync"}
    body = json.dumps({"status": "ok", "checks": {"disk": "ok"}, "noted": noted})
    with answering("200 OK", body) as port:
        result = run(port)
    told = f"readyz of 127.0.0.1:{port}: ok; noted: slaves: 0 of 1 slaves are in sync\n"
    assert (result.exit_code, result.output) == (0, told)


def test_a_broker_that_is_not_is_exit_code_1_and_says_why() -> None:
    body = json.dumps({"status": "failing", "checks": {"recovered": "ok", "disk": "91 % used"}})
    with answering("503 Service Unavailable", body) as port:
        result = run(port)
    assert (result.exit_code, result.output) == (
        1,
        f"readyz of 127.0.0.1:{port}: disk: 91 % used\n",
    )


def test_it_asks_by_itself_where_the_system_gives_no_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a container whose limit on processes is reached."""

    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with answering("200 OK", json.dumps({"status": "ok", "checks": {"disk": "ok"}})) as port:
        monkeypatch.setattr(threading.Thread, "start", refused)
        result = run(port)
    assert (result.exit_code, result.output) == (0, f"readyz of 127.0.0.1:{port}: ok\n")


def test_json_is_what_the_broker_said() -> None:
    body = json.dumps({"status": "ok", "checks": {"loop": "ok"}})
    with answering("200 OK", body) as port:
        result = run(port, "--probe", "livez", "--json")
    assert result.output == body + "\n"


def test_nobody_there_is_exit_code_4() -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
    result = run(port)
    assert result.exit_code == 4
    assert f"no answer from {HOST}:{port}" in result.output


def test_the_advice_is_of_the_side_that_speaks_tls() -> None:
    with answering("200 OK", "{}") as port:
        result = run(port, "--tls")
    assert result.exit_code == 4
    assert "does not speak TLS: leave --tls out" in result.output


@pytest.mark.parametrize("body", ["it works!", "[]", "{}", '{"checks": 3}'])
def test_another_server_on_that_port_is_told_apart(body: str) -> None:
    with answering("200 OK", body) as port:
        result = run(port)
    assert result.exit_code == 1
    assert "no answer of a broker" in result.output


@contextmanager
def greeting(words: bytes) -> Iterator[int]:
    """A listener that speaks first, or hangs up, and speaks another protocol."""
    with socket.create_server((HOST, 0)) as listener:

        def serve() -> None:
            peer, _ = listener.accept()
            # A client that has read enough may reset the connection.
            with peer, suppress(OSError):
                peer.sendall(words)
                peer.shutdown(socket.SHUT_WR)
                while peer.recv(65_536):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


PORT = "name the port of the probes (metricsPromExporterPort) with --port"


@pytest.mark.parametrize(
    ("words", "arguments", "said"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", [], f"it does not speak HTTP; {PORT}"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", ["--tls"], "it does not speak TLS: leave --tls out"),
        (b"", ["--tls"], f"it does not speak TLS: leave --tls out, or {PORT}"),
        (
            b"",
            [],
            "it closed the connection; if it takes HTTPS only (metricsTlsEnable), add --tls; or"
            f" {PORT}",
        ),
    ],
)
def test_another_protocol_is_named_with_what_to_do(
    words: bytes, arguments: list[str], said: str
) -> None:
    """And never in the words of a TLS library."""
    with greeting(words) as port:
        result = run(port, *arguments)
    assert (result.exit_code, result.output) == (4, f"no answer from {HOST}:{port}: {said}\n")


def test_an_answer_that_never_ends_has_no_more_time_than_any_other() -> None:
    """Each byte comes in time, and the line of status has none of its end."""
    ended = threading.Event()
    with socket.create_server((HOST, 0)) as listener:

        def serve() -> None:
            peer, _ = listener.accept()
            with peer, suppress(OSError):
                for _ in range(1_200):
                    peer.sendall(b"x")
                    if ended.wait(0.05):
                        return

        thread = threading.Thread(target=serve)
        thread.start()
        port = listener.getsockname()[1]
        result = run(port, "--timeout-ms", "500")
        ended.set()
        thread.join()
    assert (result.exit_code, result.output) == (4, f"no answer from {HOST}:{port}: timed out\n")
