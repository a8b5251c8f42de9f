"""`aerobee healthcheck`: ask a probe of a running broker, for containers and supervisors.

Standard library only: it runs every few seconds.
"""

from __future__ import annotations

import http.client
import json
import sys

import click

from aerobee.cli.output import echo, escaped, json_text

EXIT_FAILING = 1
EXIT_UNREACHABLE = 4
ANSWER_MAX_BYTES = 65_536
PAGE_WITHIN_S = 20.0
"""The metrics of many topics take a while."""
NO_TLS_THERE = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNEXPECTED_MESSAGE")
"""What OpenSSL calls an answer that is not TLS, by its version."""
OTHER_PORT = "name the port of the probes (metricsPromExporterPort) with --port"


@click.command()
@click.option(
    "--probe",
    type=click.Choice(["readyz", "livez", "startupz"]),
    default="readyz",
    show_default=True,
    help="readyz: takes messages. livez: the loop turns. startupz: has begun to serve.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address of the probes.")
@click.option(
    "--port",
    type=click.IntRange(1, 65_535),
    default=5557,
    show_default=True,
    envvar="AEROBEE_METRICS_PROM_EXPORTER_PORT",
    help="Port of the probes (metricsPromExporterPort).",
)
@click.option(
    "--timeout-ms",
    type=click.IntRange(1, 60_000),
    default=3_000,
    show_default=True,
    help="How long to wait for the answer.",
)
@click.option(
    "--tls",
    is_flag=True,
    envvar="AEROBEE_METRICS_TLS_ENABLE",
    help="Ask over HTTPS (metricsTlsEnable); the certificate is not verified.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the broker's own answer.")
def healthcheck(
    probe: str, host: str, port: int, timeout_ms: int, tls: bool, as_json: bool
) -> None:
    """Say by the exit code whether the broker is well: 0 yes, 1 no, 4 not reachable.

    Example: aerobee healthcheck --probe livez
    """
    try:
        status, body = _ask(host, port, f"/{probe}", timeout_ms / 1000, tls=tls)
    except (OSError, ValueError, http.client.HTTPException) as error:
        echo(f"no answer from {host}:{port}: {_advised(error, tls=tls)}", err=True)
        sys.exit(EXIT_UNREACHABLE)
    wrong = _wrong(body)
    told = f"{probe} of {host}:{port}: {'; '.join(map(escaped, wrong)) or 'ok'}"
    echo(json_text(body) if as_json else told)
    sys.exit(EXIT_FAILING if wrong or status != http.HTTPStatus.OK else 0)


def asked(host: str, port: int, path: str, *, tls: bool, most: int) -> tuple[int, str]:
    """Status and body of a page beside the probes. Raises: OSError, which says what helps."""
    try:
        return _ask(host, port, path, PAGE_WITHIN_S, tls=tls, most=most)
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise OSError(f"no answer from {host}:{port}: {_advised(error, tls=tls)}") from error


def _ask(
    host: str, port: int, path: str, timeout_s: float, *, tls: bool, most: int = ANSWER_MAX_BYTES
) -> tuple[int, str]:
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    if tls:
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


def _advised(error: Exception, *, tls: bool) -> str:
    """What went wrong, with what helps when this is another port, or only one side speaks TLS."""
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
        https = "" if tls else "if it takes HTTPS only (metricsTlsEnable), add --tls; or "
        return f"it closed the connection; {https}{OTHER_PORT}"
    if isinstance(error, http.client.HTTPException):
        return f"it does not speak HTTP; {OTHER_PORT}"
    return str(error) or type(error).__name__


def _wrong(body: str) -> list[str]:
    """What the broker's answer complains of; another server's answer is a complaint by itself."""
    try:
        checks = json.loads(body)["checks"].items()
    except (ValueError, KeyError, TypeError, AttributeError):
        return ["gave no answer of a broker"]
    return [f"{name}: {said}" for name, said in checks if said != "ok"]
