"""`aerobee certs dev`: certificates to try TLS with, made by the program `openssl`.

A CA of their own, a certificate of a server and one of a client, each with its key. `openssl` is
there wherever people look at certificates, so the package needs no library that makes them.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import tempfile
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from aerobee.cli.lazy import CommandGroup
from aerobee.cli.output import echo
from aerobee.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

CA: Final = "ca"
SERVER: Final = "server"
CLIENT: Final = "client"
USUAL_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
HOST_NAME: Final = re.compile(r"(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?", re.ASCII)
NEW_KEY: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
"""Its handshakes cost a quarter of those with RSA. Java reads the format (PKCS 8), too."""
WITHIN_S: Final = 60

CONFIG: Final = """\
[req]
distinguished_name = name
prompt = no
[name]
CN = Aerobee {role}
[ca]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectAltName = {names}
[client]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = clientAuth
"""

TELL: Final = """\
The server (conf/broker.yaml):
  tls:
    tls_server_mode: enforcing
    tls_server_cert_path: {server}
    tls_server_key_path: {server_key}
    tls_server_need_client_auth: require    # or leave this line out: no client certificates
    tls_server_trust_cert_path: {ca}
Clients in Python:
  TLSConfig(ca_file="{ca}", cert_file="{client}", key_file="{client_key}")
Commands:
  {command}
Clients and mqadmin in Java, a file tls.properties:
  tls.client.authServer=true
  tls.client.trustCertPath={ca}
  tls.client.certPath={client}
  tls.client.keyPath={client_key}
and the options of the JVM:
  -Dtls.enable=true -Dtls.test.mode.enable=false -Dtls.config.file=tls.properties
"""


@click.group(cls=CommandGroup, short_help="Make certificates to try TLS with.")
def certs() -> None:
    """Make certificates to try TLS with."""


@certs.command()
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("certs"),
    show_default=True,
    help="Where the files go.",
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A name or address by which clients reach the server; may be repeated. Unless given:"
    " localhost, 127.0.0.1, ::1 and the name of this host.",
)
@click.option(
    "--days", type=click.IntRange(1, 36_500), default=365, show_default=True, help="Valid for."
)
def dev(directory: Path, hosts: tuple[str, ...], days: int) -> None:
    """Make a CA, a certificate of a server and one of a client, for development.

    A CA that is there already is used again, so that more servers can be trusted by the same
    clients; other files are never overwritten.

    Example: aerobee certs dev --dir certs --host broker.example --host 10.0.0.7
    """
    made = make(directory, hosts or (*USUAL_HOSTS, socket.gethostname()), days=days)
    echo(f"Made for development, valid for {days} days: {', '.join(made)}\n")
    paths = {
        name + suffix: directory.absolute() / f"{name}{ending}.pem"
        for name in (CA, SERVER, CLIENT)
        for suffix, ending in (("", ""), ("_key", "-key"))
    }
    files = {"--ca-file": CA, "--cert-file": CLIENT, "--key-file": f"{CLIENT}_key"}
    words = [word for option, name in files.items() for word in (option, str(paths[name]))]
    command = shlex.join(["aerobee", "context", "add", "dev", "-n", "HOST:9876", *words])
    echo(TELL.format(command=command, **paths), nl=False)


def make(directory: Path, hosts: Sequence[str], *, days: int = 365) -> list[str]:
    """Make the files `ca.pem`, `ca-key.pem` and so on, and return their names.

    Raises: ConfigurationError for names that no certificate can have, files that are there, and
    where `openssl` is missing or fails; OSError.
    """
    names = ",".join(dict.fromkeys(alternative(host) for host in hosts))
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        maker = Maker(directory, Path(scratch), names, days)
        made = [] if maker.has_ca() else maker.sign_itself()
        return [*made, *maker.sign(SERVER), *maker.sign(CLIENT)]


def alternative(host: str) -> str:
    """The entry of a host in a certificate. Raises: ConfigurationError."""
    try:
        return f"IP:{ip_address(host)}"
    except ValueError:
        if not HOST_NAME.fullmatch(host) or len(host) > 253:
            raise ConfigurationError(
                f"{host!r} is neither the name nor the address of a host"
            ) from None
        return f"DNS:{host}"


class Maker:
    """Makes certificates in a directory, by way of a directory that is deleted afterwards."""

    def __init__(self, directory: Path, scratch: Path, names: str, days: int) -> None:
        self.directory = directory
        self.scratch = scratch
        self.names = names
        self.days = str(days)

    def has_ca(self) -> bool:
        """Whether there is a CA. Raises: ConfigurationError where something is in the way."""
        kept = [(self.directory / name).exists() for name in pair(CA)]
        for name in (*pair(SERVER), *pair(CLIENT), *(pair(CA) if not all(kept) else ())):
            file = self.directory / name
            if file.exists():
                raise ConfigurationError(f"{file} is there: remove it, or give another --dir")
        return all(kept)

    def sign_itself(self) -> list[str]:
        """Make the CA; the names of its files."""
        cert, key = pair(CA)
        self.openssl("req", "-x509", *NEW_KEY, *self.config(CA), "-extensions", "ca",
                     "-days", self.days, "-keyout", key, "-out", cert)  # fmt: skip
        return self.keep(CA)

    def sign(self, role: str) -> list[str]:
        """Make a certificate that the CA has signed; the names of its files."""
        cert, key = pair(role)
        ca, ca_key = (str(self.directory.absolute() / name) for name in pair(CA))
        config = self.config(role)
        self.openssl("req", "-new", *NEW_KEY, *config, "-keyout", key, "-out", "request.pem")
        self.openssl("x509", "-req", "-in", "request.pem", "-CA", ca, "-CAkey", ca_key,
                     "-set_serial", str(int.from_bytes(os.urandom(16), "big") >> 1),
                     "-days", self.days, "-extfile", config[1], "-extensions", role,
                     "-out", cert)  # fmt: skip
        return self.keep(role)

    def config(self, role: str) -> tuple[str, str]:
        """The option for the configuration, which does not depend on that of the system."""
        text = CONFIG.format(role=f"development {role}", names=self.names)
        (self.scratch / "openssl.cnf").write_text(text)
        return "-config", "openssl.cnf"

    def keep(self, role: str) -> list[str]:
        """Move a certificate and its key to their place, for their owner only."""
        for name in pair(role):
            content = (self.scratch / name).read_bytes()
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            with os.fdopen(os.open(self.directory / name, flags, 0o600), "wb") as file:
                file.write(content)
        return list(pair(role))

    def openssl(self, *arguments: str) -> None:
        """Run the program. Raises: ConfigurationError."""
        try:
            done = subprocess.run(
                ["openssl", *arguments],
                cwd=self.scratch,
                # For the secret of a CA's key it asks at a terminal, or not at all.
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=WITHIN_S,
                check=False,
            )
        except FileNotFoundError:
            raise ConfigurationError("the program openssl is needed: install it") from None
        except subprocess.TimeoutExpired:
            late = f"openssl {arguments[0]} has not ended within {WITHIN_S} s"
            raise ConfigurationError(late) from None
        if done.returncode:
            raise ConfigurationError(f"openssl {arguments[0]}: {done.stderr.strip()}")


def pair(name: str) -> tuple[str, str]:
    """The names of the files of a certificate and its key."""
    return f"{name}.pem", f"{name}-key.pem"
