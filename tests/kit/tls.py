"""Certificates for 127.0.0.1, raw connections through TLS, and a door to a plain server."""

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

from aerobee.remoting.client.tls_socket import TlsSocket
from tests.kit.ports import HOST
from tests.kit.raw_client import RawConnection


@dataclass(frozen=True, slots=True)
class Certificate:
    """Two files in PEM form; the key in PKCS 8."""

    cert: Path
    key: Path


def certificate(directory: Path, subject: str = "/CN=aerobee test") -> Certificate:
    """A new one. Skips without openssl."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    made = Certificate(directory / "cert.pem", directory / "key.pem")
    command = [
        *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
        *("-subj", subject, "-addext", f"subjectAltName=IP:{HOST}"),
        *("-keyout", str(made.key), "-out", str(made.cert)),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return made


def server_context(shown: Certificate) -> ssl.SSLContext:
    """What a server with this certificate speaks."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shown.cert, shown.key)
    return context


def client_context(trusted: Certificate) -> ssl.SSLContext:
    """What a client speaks that trusts this certificate alone."""
    return ssl.create_default_context(cafile=str(trusted.cert))


def greeting(trusted: Certificate) -> bytes:
    """The first bytes of such a client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = client_context(trusted).wrap_bio(incoming, outgoing, server_hostname=HOST)
    with suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


class WholeSends(TlsSocket):
    """Sends all or fails; one thread may receive meanwhile."""

    def sendall(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[self.send(left) :]


class TlsConnection(RawConnection):
    """A raw connection through TLS, once the handshake is done."""

    def __init__(self, address: str, context: ssl.SSLContext, *, timeout_s: float = 10.0) -> None:
        super().__init__(address, timeout_s=timeout_s)
        stage = WholeSends(self.socket, context, HOST, timeout_s)
        try:
            stage.shake_hands()
        except OSError:
            self.close()
            raise
        self.socket = stage  # type: ignore[assignment]  # it has the methods that are used


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
    context = server_context(shown)
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
