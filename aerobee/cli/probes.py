"""The HTTP listener of a broker as the commands reach it: probes, and metrics beside them.

Standard library only: `aerobee healthcheck` runs every few seconds.
"""

from __future__ import annotations

import http.client
import threading
from dataclasses import dataclass
from functools import wraps
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable

ANSWER_MAX_BYTES = 65_536
NO_TLS_THERE = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNEXPECTED_MESSAGE")
"""The names of OpenSSL for an answer that is not TLS, by its version."""
OTHER_PORT = "name the port of the probes (metricsPromExporterPort) with --port"


@dataclass(frozen=True, slots=True)
class Probes:
    """Where the probes of a broker are."""

    host: str
    port: int
    tls: bool

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    def ask(self, path: str, timeout_s: float, most: int = ANSWER_MAX_BYTES) -> tuple[int, str]:
        """Status and body of a page, of which at most so many bytes are read.

        `timeout_s` is for all of it. That of a socket is for each piece: a peer that sends byte by
        byte would be waited for all day, and the look-up of a name has none. So a thread asks.
        Raises: OSError, which says what helps.
        """
        came: SimpleQueue[tuple[int, str] | Exception] = SimpleQueue()

        def ask() -> None:
            try:
                came.put(self._ask(path, timeout_s, most))
            except (OSError, ValueError, http.client.HTTPException) as error:
                came.put(error)

        try:
            threading.Thread(target=ask, daemon=True).start()
        except RuntimeError:
            # The system gives no thread. Here each piece has its time-out.
            ask()
        try:
            outcome = came.get(timeout=timeout_s)
        except Empty:
            outcome = TimeoutError("timed out")
        if isinstance(outcome, Exception):
            raise OSError(f"no answer from {self}: {self._advice(outcome)}") from outcome
        return outcome

    def _ask(self, path: str, timeout_s: float, most: int) -> tuple[int, str]:
        host, port = self.host, self.port
        connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
        if self.tls:
            import ssl

            # Nothing is told to the one that answers, and its name is seldom that of the loopback.
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            connection = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)
        try:
            connection.request("GET", path, headers={"connection": "close"})
            answer = connection.getresponse()
            return answer.status, answer.read(most).decode("utf-8", "replace")
        finally:
            connection.close()

    def _advice(self, error: Exception) -> str:
        """The text of an error, with what helps if this is another port, or only one side speaks
        TLS.
        """
        reason = getattr(error, "reason", None) or ""
        if reason in NO_TLS_THERE:
            return "it does not speak TLS: leave --tls out"
        if reason == "UNEXPECTED_EOF_WHILE_READING":
            return f"it does not speak TLS: leave --tls out, or {OTHER_PORT}"
        if reason:
            return f"TLS failed: {reason.replace('_', ' ').lower()}"
        if isinstance(error, ConnectionRefusedError):
            return "nothing listens there"
        if isinstance(error, http.client.RemoteDisconnected | ConnectionResetError):
            https = "" if self.tls else "if it takes HTTPS only (metricsTlsEnable), add --tls; or "
            return f"it closed the connection; {https}{OTHER_PORT}"
        if isinstance(error, http.client.HTTPException):
            return f"it does not speak HTTP; {OTHER_PORT}"
        return str(error) or type(error).__name__


def probes_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --host, --port and --tls; the command gets `probes`."""

    @wraps(command)
    def run(*args: Any, host: str, port: int, tls: bool, **named: Any) -> Any:
        return command(*args, probes=Probes(host, port, tls), **named)

    by_host = click.option(
        "--host", default="127.0.0.1", show_default=True, help="Address of the probes."
    )
    by_port = click.option(
        "--port",
        type=click.IntRange(1, 65_535),
        default=5557,
        show_default=True,
        envvar="AEROBEE_METRICS_PROM_EXPORTER_PORT",
        help="Port of the probes (metricsPromExporterPort).",
    )
    by_tls = click.option(
        "--tls",
        is_flag=True,
        envvar="AEROBEE_METRICS_TLS_ENABLE",
        help="Ask over HTTPS (metricsTlsEnable); the certificate is not verified.",
    )
    return by_host(by_port(by_tls(run)))
