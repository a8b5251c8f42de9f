"""`aerobee healthcheck`: ask a probe of a running broker, for containers and supervisors.

Standard library only: it runs every few seconds.
"""

from __future__ import annotations

import json
import sys
from http import HTTPStatus

import click

from aerobee.cli.output import echo, escaped, json_text
from aerobee.cli.probes import Probes, probes_options

EXIT_FAILING = 1
EXIT_UNREACHABLE = 4


@click.command()
@click.option(
    "--probe",
    type=click.Choice(["readyz", "insyncz", "livez", "startupz"]),
    default="readyz",
    show_default=True,
    help="readyz: takes messages. insyncz: that, and in sync with its group or master."
    " livez: the loop turns. startupz: has begun to serve.",
)
@probes_options
@click.option(
    "--timeout-ms",
    type=click.IntRange(1, 60_000),
    default=3_000,
    show_default=True,
    help="How long to wait for the answer.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the broker's own answer.")
def healthcheck(probe: str, probes: Probes, timeout_ms: int, as_json: bool) -> None:
    """Say by the exit code whether the broker is well: 0 yes, 1 no, 4 not reachable.

    Example: aerobee healthcheck --probe livez
    """
    try:
        status, body = probes.ask(f"/{probe}", timeout_ms / 1000)
    except OSError as error:
        echo(str(error), err=True)
        sys.exit(EXIT_UNREACHABLE)
    wrong = _wrong(body)
    line = f"{probe} of {probes}: {'; '.join(map(escaped, wrong)) or 'ok'}"
    line += "".join(f"; noted: {escaped(text)}" for text in _noted(body))
    echo(json_text(body) if as_json else line)
    sys.exit(EXIT_FAILING if wrong or status != HTTPStatus.OK else 0)


def _wrong(body: str) -> list[str]:
    """The complaints in the broker's answer; another server's answer is a complaint by itself."""
    try:
        checks = json.loads(body)["checks"].items()
    except (ValueError, KeyError, TypeError, AttributeError):
        return ["gave no answer of a broker"]
    return [f"{name}: {answer}" for name, answer in checks if answer != "ok"]


def _noted(body: str) -> list[str]:
    """The remarks in the broker's answer: it is well, and a person should look."""
    try:
        return [f"{name}: {text}" for name, text in json.loads(body)["noted"].items()]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []
