"""A certificate for 127.0.0.1 that signs itself, and a door to a server that speaks TLS."""

import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kit.ports import HOST

__all__ = ["Certificate", "certificate", "tls_door"]


@dataclass(frozen=True, slots=True)
class Certificate:
    """Two files in PEM form; the key in PKCS 8."""

    cert: Path
    key: Path


def certificate(directory: Path) -> Certificate:
    """A new one. Skips without openssl."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    made = Certificate(directory / "cert.pem", directory / "key.pem")
    command = [
        *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
        *("-subj", "/CN=aerobee test", "-addext", f"subjectAltName=IP:{HOST}"),
        *("-keyout", str(made.key), "-out", str(made.cert)),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return made


def hand_on(source: socket.socket, target: socket.socket) -> bool:
    """Move what is there; False at the end."""
    try:
        data = source.recv(65_536)
    except TimeoutError:
        return True
    target.sendall(data)
    return bool(data)


@contextmanager
def tls_door(to: str, shown: Certificate) -> Iterator[str]:
    """The address of a door that decrypts and hands on to the plain server at `to`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shown.cert, shown.key)
    host, _, port = to.rpartition(":")

    def serve(raw: socket.socket) -> None:
        # One thread for both ends: they take turns.
        with (
            suppress(OSError),
            context.wrap_socket(raw, server_side=True) as client,
            socket.create_connection((host, int(port))) as server,
        ):
            client.settimeout(0.05)
            server.settimeout(0.05)
            ends = ((client, server), (server, client))
            while all(hand_on(source, target) for source, target in ends):
                pass

    def accept() -> None:
        with suppress(OSError):
            while True:
                raw, _ = listener.accept()
                threading.Thread(target=serve, args=(raw,), daemon=True).start()

    with socket.create_server((HOST, 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield f"{HOST}:{listener.getsockname()[1]}"
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
