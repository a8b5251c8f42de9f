"""`aerobee support bundle`: what those who help have to know, in one file without secrets."""

from __future__ import annotations

import io
import json
import os
import platform
import sys
import tarfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aerobee.cli.border import explained
from aerobee.cli.config import config_option, read_config
from aerobee.cli.connection import Connection, connection_options
from aerobee.cli.files import OWNER_ONLY, write_file
from aerobee.cli.lazy import CommandGroup
from aerobee.cli.masking import Masking
from aerobee.cli.output import Output, output_options
from aerobee.cli.probes import Probes, probes_options
from aerobee.counted import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aerobee.blocking import AdminClient

LOG_BYTES_MAX = 8 << 20
"""The end of each log that is named."""
FILES_MAX = 20_000
"""Files of the data directory that are listed by name; of more only their number and sizes."""
METRICS_BYTES_MAX = 32 << 20
PROBE_WITHIN_S = 5.0
METRICS_WITHIN_S = 20.0
"""The metrics of many topics take a while."""
GROUPS_MAX = 1_000
"""Groups whose lag is asked for."""
SECRET_VARIABLES = ("SECRET", "TOKEN", "PASSWORD", "CREDENTIAL", "AUTHENTICATION_USER")


@click.group(cls=CommandGroup, short_help="Collect what helps others to help.")
def support() -> None:
    """Collect what somebody who helps has to know."""


@support.command()
@click.argument("target", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))
@config_option
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Data directory: the names and sizes of its files.",
)
@click.option(
    "--log",
    "logs",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A log, of which the last 8 MiB are taken; repeatable.",
)
@probes_options
@connection_options
@output_options
def bundle(
    target: Path,
    file: Path | None,
    data: Path | None,
    logs: tuple[Path, ...],
    probes: Probes,
    connection: Connection,
    output: Output,
) -> None:
    """Write FILE, a .tar.gz with versions, settings, health, metrics, sizes and logs.

    Secrets are masked; bodies of messages, users and keys are not in it. A part that cannot be had
    is named in errors.json, and the rest is written all the same. Look through it before you send
    it.

    Example: aerobee support bundle support.tar.gz --data /var/lib/aerobee --log broker.log
    """
    made = Bundle(Masking(known_secrets(connection)))
    made.json("about.json", about())
    with made.trying("settings"):
        made.text("settings.txt", settings_of(file))
    of_cluster(made, connection)
    of_probes(made, probes)
    if data is not None:
        with made.trying("data"):
            made.json("data.json", files_in(data))
    for number, log in enumerate(logs):
        with made.trying(f"log {log}"):
            made.text(f"logs/{number}-{log.name}", end_of(log))
    made.json("errors.json", made.errors)
    made.write(target)
    if output.for_programs:
        output.record({"file": str(target), "members": sorted(made.members), "errors": made.errors})
    for what, why in made.errors.items():
        output.say(f"without {what}: {why}")
    output.say(
        f"{target}: {counted(len(made.members), 'file')}; look through it before you send it"
    )


@dataclass(slots=True)
class Bundle:
    """The files of a bundle; every one of them goes through the masking."""

    masking: Masking
    members: dict[str, bytes] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    def text(self, name: str, text: str) -> None:
        """Add a text."""
        self.members[name] = self.masking.text(text).encode()

    def json(self, name: str, value: Any) -> None:
        """Add a JSON document."""
        masked = self.masking.tree(value)
        self.members[name] = json.dumps(masked, indent=1, default=str).encode()

    @contextmanager
    def trying(self, what: str) -> Iterator[None]:
        """Note an error that is the world's, and go on."""
        from aerobee.errors import AerobeeError

        try:
            yield
        except AerobeeError as error:
            self.errors[what] = self.masking.text(explained(error))
        except (OSError, ValueError, SystemExit) as error:
            self.errors[what] = self.masking.text(str(error) or type(error).__name__)

    def write(self, target: Path) -> None:
        """Write the archive, for its owner only."""
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w:gz") as archive:
            for name, content in sorted(self.members.items()):
                entry = tarfile.TarInfo(f"aerobee-support/{name}")
                entry.size, entry.mode = len(content), OWNER_ONLY
                entry.mtime = int(datetime.now(UTC).timestamp())
                archive.addfile(entry, io.BytesIO(content))
        write_file(target, made.getvalue(), OWNER_ONLY)


def known_secrets(connection: Connection) -> list[str]:
    """Secrets that this process was given: those of its account, and of its environment."""
    own = [connection.profile.get(name) or "" for name in ("secret_key", "security_token")]
    environment = [
        value
        for name, value in os.environ.items()
        if any(word in name.upper() for word in SECRET_VARIABLES)
    ]
    return [*own, *environment]


def about() -> dict[str, Any]:
    """The program that has made the bundle, and where."""
    from aerobee import __version__

    return {
        "made_at": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "aerobee": __version__,
        "python": sys.version,
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "load": os.getloadavg(),
    }


def settings_of(file: Path | None) -> str:
    """The settings of a file and the environment. Raises: OSError, ValueError with the problems."""
    from aerobee.broker.config.files.entries import ConfigurationError
    from aerobee.broker.config.report import check_report

    try:
        return check_report(read_config(file), every=True)
    except ConfigurationError as error:
        raise ValueError("; ".join(map(str, error.problems))) from None


# ── The cluster ──


def of_cluster(made: Bundle, connection: Connection) -> None:
    """The answers of name server and brokers."""
    from aerobee.cli.cluster import broker_rows
    from aerobee.cli.dead import leave_out, look_at

    with made.trying("cluster"), connection.admin() as admin:
        look = look_at(admin)
        made.json("cluster.json", broker_rows(look))
        for entry in look.dead:
            made.errors[f"broker {entry.broker.name}"] = made.masking.text(entry.why)
        for refusing in look.refusing:
            made.errors[f"broker {refusing.broker.name}"] = made.masking.text(str(refusing.error))
        leave_out(admin, look.dead)
        for broker, stats in look.alive:
            made.json(f"brokers/{broker.name}-{broker.broker_id}/figures.json", stats)
            with made.trying(f"settings of {broker.name}"):
                running = made.masking.settings(admin.broker_config(broker.address))
                made.json(f"brokers/{broker.name}-{broker.broker_id}/settings.json", running)
        if look.alive:
            with made.trying("tables"):
                made.json("tables.json", tables(admin, made))


def tables(admin: AdminClient, made: Bundle) -> dict[str, Any]:
    """How much there is of what, and the lag of groups."""
    from aerobee.cli.topic import of_users
    from aerobee.client.system_names import is_system_group

    groups = [group for group in admin.groups() if not is_system_group(group)]
    counts: dict[str, Any] = {"topics": len(list(of_users(admin))), "groups": len(groups)}
    parts: dict[str, Callable[[], int]] = {
        "users": lambda: len(admin.users()),
        "policies": lambda: len(admin.acl()),
        "producers": lambda: sum(map(len, admin.all_producers().values())),
    }
    for name, count in parts.items():
        with made.trying(name):
            counts[name] = count()
    counts["lag"] = {
        group: {"lag": (lag := admin.consumer_lag(group)).total, "queues": len(lag.queues)}
        for group in groups[:GROUPS_MAX]
    }
    return counts


def of_probes(made: Bundle, probes: Probes) -> None:
    """Health and metrics."""
    for path in ("startupz", "livez", "readyz", "metrics"):
        with made.trying(path):
            within_s = METRICS_WITHIN_S if path == "metrics" else PROBE_WITHIN_S
            status, body = probes.ask(f"/{path}", within_s, METRICS_BYTES_MAX)
            made.text(f"health/{path}.txt", f"{status}\n{body}")


# ── Files ──


def files_in(data: Path) -> dict[str, Any]:
    """The files of a data directory by size: names and numbers, no contents. Raises: OSError."""
    folders: dict[str, dict[str, int]] = {}
    listed: list[tuple[str, int, str]] = []
    for folder, _, names in os.walk(data):
        for name in sorted(names):
            path = Path(folder, name)
            try:
                status = path.lstat()
            except OSError:
                continue
            part = str(path.relative_to(data).parts[0])
            sums = folders.setdefault(part, {"files": 0, "bytes": 0, "on_disk": 0})
            sums["files"] += 1
            sums["bytes"] += status.st_size
            sums["on_disk"] += status.st_blocks * 512
            if len(listed) < FILES_MAX:
                changed = datetime.fromtimestamp(status.st_mtime, UTC)
                place = str(path.relative_to(data))
                listed.append((place, status.st_size, f"{changed:%Y-%m-%dT%H:%M:%SZ}"))
    return {"folders": folders, "files": listed}


def end_of(log: Path) -> str:
    """The end of a log. Raises: OSError."""
    with log.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - LOG_BYTES_MAX))
        text = file.read(LOG_BYTES_MAX).decode("utf-8", "replace")
    # The first line may have lost the name in front of a secret.
    return text if size <= LOG_BYTES_MAX else text.partition("\n")[2]
