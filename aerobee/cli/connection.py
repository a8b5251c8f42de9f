"""How commands find their cluster: options, environment, and contexts (named profiles).

The first of these applies: `--namesrv`, `--context`, AEROBEE_CONTEXT, NAMESRV_ADDR, the current
context, 127.0.0.1:9876.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import click
import msgspec

from aerobee.cli.border import complain
from aerobee.cli.files import OWNER_ONLY, write_file
from aerobee.cli.options import namespace_option, namesrv_option, not_empty
from aerobee.cli.surroundings import surroundings
from aerobee.errors import ConfigurationError, PermissionDeniedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from aerobee.blocking import AdminClient, Producer
    from aerobee.client.settings.client import ClientOptions

CLI_GROUP = "aerobee_cli"
ACCOUNT = ("access_key", "secret_key")
TLS_OPTIONS = ("ca_file", "cert_file", "key_file", "server_hostname")
PROFILE = ("namesrv", "namespace", *ACCOUNT, "security_token", "tls", *TLS_OPTIONS)
"""The fields of a context. Without one, variables such as AEROBEE_ACCESS_KEY give them."""
FORMAT_HINT = "remove it, or repair its JSON"


@dataclass(frozen=True, slots=True)
class Connection:
    """The address of a command's cluster, and the options of the connection: see PROFILE."""

    namesrv: str | None = None
    profile: Mapping[str, str] = field(default_factory=dict)

    @property
    def namespace(self) -> str | None:
        """The namespace of topics and groups, None without one."""
        return self.profile.get("namespace") or None

    def options(self) -> ClientOptions:
        """The options of every client besides the address. Raises: ConfigurationError."""
        from aerobee.client.security import Credentials, TLSConfig

        options: ClientOptions = {}
        if self.namespace:
            options["namespace"] = self.namespace
        keys = ((name, self.profile.get(name)) for name in ACCOUNT)
        account = {name: value for name, value in keys if value}
        if account:
            if len(account) < len(ACCOUNT):
                (missing,) = (name for name in ACCOUNT if name not in account)
                raise ConfigurationError(
                    "credentials are an access key and a secret key; "
                    f"AEROBEE_{missing.upper()} is not set"
                )
            token = self.profile.get("security_token")
            options["credentials"] = Credentials(**account, security_token=token)
        tls = {name: self.profile.get(name) or None for name in TLS_OPTIONS}
        if self.profile.get("tls") or any(tls.values()):
            options["tls"] = TLSConfig(
                ca_file=tls["ca_file"],
                cert_file=tls["cert_file"],
                key_file=tls["key_file"],
                server_hostname=tls["server_hostname"],
            )
        return options

    def admin(self, **more: Unpack[ClientOptions]) -> AdminClient:
        """A client for administration, to use in `with`."""
        from aerobee.blocking import AdminClient

        options = self.options()
        options.update(more)
        return AdminClient(self.namesrv, **options)

    def producer(self, group: str = CLI_GROUP) -> Producer:
        """A client that sends, to use in `with`."""
        from aerobee.blocking import Producer

        return Producer(self.namesrv, group=group, **self.options())


def connection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --namesrv, --context and --namespace; the command gets a `connection`."""

    @wraps(command)
    def run(
        *args: Any, namesrv: str | None, context: str | None, namespace: str | None, **named: Any
    ) -> Any:
        kept = surroundings()
        place = chosen(namesrv, context, namespace) if kept is None else kept.connection
        return command(*args, connection=place, **named)

    by_name = click.option(
        "--context", metavar="NAME", callback=not_empty, help="See `aerobee context`."
    )
    return namesrv_option(by_name(namespace_option(run)))


def chosen(namesrv: str | None, context: str | None, namespace: str | None = None) -> Connection:
    """The connection that options and environment name. Raises: ConfigurationError."""
    profile = known(namesrv, context)
    if namespace is None:
        return profile
    return replace(profile, profile={**profile.profile, "namespace": namespace})


def known(namesrv: str | None, context: str | None) -> Connection:
    """The connection of a context or of the environment."""
    profile = {name: os.environ.get(f"AEROBEE_{name.upper()}", "") for name in PROFILE[1:]}
    if namesrv is not None:
        return Connection(namesrv, profile)
    name = context or os.environ.get("AEROBEE_CONTEXT")
    if name:
        return Contexts.load().connection(name)
    if not os.environ.get("NAMESRV_ADDR"):
        contexts = Contexts.load()
        if contexts.current:
            return contexts.connection(contexts.current)
    return Connection(None, profile)


class Outages(logging.Handler):
    """Prints the client's warnings on stderr, such as that a broker is unreachable."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.refused: PermissionDeniedError | None = None
        """The last warning that was a refusal: it does not pass by itself."""

    def emit(self, record: logging.LogRecord) -> None:
        complain(record.getMessage())
        for value in record.args or ():
            if isinstance(value, PermissionDeniedError):
                self.refused = value


def tell_outages() -> Outages:
    """Print the client's warnings on stderr from now on."""
    outages = Outages()
    logging.getLogger("aerobee.client").handlers = [outages]
    return outages


# ── Contexts ──


def contexts_file() -> Path:
    """The directory of contexts: XDG_CONFIG_HOME or ~/.config."""
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "aerobee" / "contexts.json"


class KeptContexts(msgspec.Struct):
    """The file."""

    current: str | None
    contexts: dict[str, dict[str, str]]


@dataclass(slots=True)
class Contexts:
    """Named connection profiles: each maps names of options to their values."""

    current: str | None = None
    known: dict[str, dict[str, str]] = field(default_factory=dict)

    @classmethod
    def load(cls) -> Contexts:
        """Read the file; empty if it does not exist. Raises: ConfigurationError."""
        file = contexts_file()
        try:
            kept = msgspec.json.decode(file.read_bytes(), type=KeptContexts)
            return cls(kept.current, kept.contexts)
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigurationError(f"{file} cannot be read: {error}; {FORMAT_HINT}") from None

    @classmethod
    @contextmanager
    def changing(cls) -> Iterator[Contexts]:
        """The contexts to change, saved at the end. Another command that changes them waits: it
        would write what it has read before. Raises: ConfigurationError, OSError.
        """
        directory = contexts_file().parent
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        place = os.open(directory, os.O_RDONLY)
        try:
            # Some file systems have no locks.
            with suppress(OSError):
                fcntl.flock(place, fcntl.LOCK_EX)
            contexts = cls.load()
            yield contexts
            contexts.save()
        finally:
            os.close(place)

    def save(self) -> None:
        """Write the whole file, readable by its owner only; its directory is there."""
        file = contexts_file()
        text = json.dumps({"current": self.current, "contexts": self.known}, indent=2)
        write_file(file, f"{text}\n".encode(), OWNER_ONLY)

    def connection(self, name: str) -> Connection:
        """The connection of a context. Raises: ConfigurationError."""
        profile = self.of(name)
        return Connection(profile.get("namesrv"), profile)

    def of(self, name: str) -> dict[str, str]:
        """The options of a context. Raises: ConfigurationError, which lists the existing ones."""
        if name not in self.known:
            there = ", ".join(sorted(self.known)) or "none"
            raise ConfigurationError(f"there is no context {name}; there are: {there}")
        return self.known[name]
