"""How a query connects to name servers and brokers: its account, TLS, and its namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import yaml

from aerobee.client.security import Credentials, TLSConfig
from aerobee.errors import ConfigurationError

if TYPE_CHECKING:
    from aerobee.client.settings.client import ClientOptions


class Secret(str):
    """A string that does not show its value when an object that holds it is printed."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'…'"


class Access(NamedTuple):
    """The account, TLS and namespace of a query; plain data, because tasks get it."""

    access_key: str | None = None
    secret_key: Secret | None = None
    security_token: Secret | None = None
    credentials_file: str | None = None
    tls: bool = False
    tls_ca_file: str | None = None
    tls_cert_file: str | None = None
    tls_key_file: str | None = None
    tls_server_hostname: str | None = None
    namespace: str | None = None

    def client_options(self) -> ClientOptions:
        """These settings as options of a client; reads the file. Raises: ConfigurationError."""
        options: ClientOptions = {}
        if self.credentials_file is not None:
            options["credentials"] = account_in(self.credentials_file)
        elif self.access_key is not None and self.secret_key is not None:
            # Plain strings: the encoder of requests takes no class of its own.
            token = None if self.security_token is None else str(self.security_token)
            options["credentials"] = Credentials(self.access_key, str(self.secret_key), token)
        if self.tls:
            options["tls"] = TLSConfig(
                ca_file=self.tls_ca_file,
                cert_file=self.tls_cert_file,
                key_file=self.tls_key_file,
                server_hostname=self.tls_server_hostname,
            )
        if self.namespace is not None:
            options["namespace"] = self.namespace
        return options


OPEN = Access()
"""No account, no encryption, no namespace."""


def account_in(file: str) -> Credentials:
    """The account in a YAML file with accessKey and secretKey, such as mqadmin's tools.yml.

    Raises: ConfigurationError, which names the file and nothing of its content.
    """
    try:
        with open(file, encoding="utf-8") as opened:
            credentials = yaml.safe_load(opened)
    except OSError as error:
        raise ConfigurationError(f"option credentialsFile: {error}") from error
    except (yaml.YAMLError, ValueError):
        credentials = None
    keys = credentials if isinstance(credentials, dict) else {}
    access, secret, token = map(keys.get, ("accessKey", "secretKey", "securityToken"))
    if not access or not secret:
        raise ConfigurationError(
            f"option credentialsFile: {file} has no lines accessKey: … and secretKey: …"
        )
    return Credentials(str(access), str(secret), str(token) if token else None)
