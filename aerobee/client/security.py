"""The credentials of a client, and the encryption of its connections.

Source: client §15.3 (AclClientRPCHook), §15.4.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from aerobee.client.namespaces import Translation
from aerobee.errors import ConfigurationError
from aerobee.remoting.border import Border
from aerobee.remoting.client.link import Link
from aerobee.remoting.errors import RemotingError
from aerobee.remoting.wire.request_signature import SECURITY_TOKEN, with_signature

if TYPE_CHECKING:
    from aerobee.remoting.client.link import Dress


@dataclass(frozen=True, slots=True)
class Credentials:
    """The account with which requests are signed."""

    access_key: str
    """The name of the account."""
    secret_key: str
    """The key that signs requests; it is never sent."""
    security_token: str | None = None
    """A token that is sent along, for temporary accounts."""

    def __post_init__(self) -> None:
        if not self.access_key or not self.secret_key:
            raise ConfigurationError("Credentials: neither of the two keys may be empty")

    def __repr__(self) -> str:
        return f"Credentials(access_key={self.access_key!r}, …)"


CredentialsSource: TypeAlias = Credentials | Callable[[], Credentials]
"""Credentials, or a function called for each request: keys may change while the client runs.

A request for which the function fails is not sent, and is tried again like one that got lost.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TLSConfig:
    """The settings of TLS connections. Files are in PEM format.

    Brokers are addressed by IP: their certificates contain that address, or `server_hostname` is
    the name in them. A `context` of your own replaces all other settings.
    """

    ca_file: str | None = None
    """The file of trusted CA certificates; by default those of the system."""
    cert_file: str | None = None
    """The client's certificate, for brokers that request one."""
    key_file: str | None = None
    """The private key of the client's certificate."""
    password: str | None = None
    """The password of the key file."""
    verify: bool = True
    """Whether certificates are verified; false is for tests only."""
    server_hostname: str | None = None
    """The host name in the brokers' certificates, if it is not their address."""
    context: ssl.SSLContext | None = None
    """A context that replaces all other settings."""

    def ssl_context(self) -> ssl.SSLContext:
        """The SSL context of all connections. Raises: ConfigurationError for unusable files."""
        if self.context is not None:
            return self.context
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.cert_file is not None:
                context.load_cert_chain(self.cert_file, self.key_file, self.password)
        except OSError as error:
            files = ", ".join(filter(None, (self.ca_file, self.cert_file, self.key_file)))
            raise ConfigurationError(f"TLS: {files}: {error}") from error
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def link_of(
    credentials: CredentialsSource | None,
    tls: bool | TLSConfig,
    namespace_v2: str | None = None,
    namespace: str | None = None,
) -> Link:
    """The link settings of a client's connections. Raises: ConfigurationError."""
    if not isinstance(tls, (bool, TLSConfig)):
        raise ConfigurationError(f"tls is {tls!r}: it must be a bool or TLSConfig")
    if not (credentials is None or callable(credentials) or isinstance(credentials, Credentials)):
        raise ConfigurationError("credentials is no account: it must be Credentials or a function")
    dress = None if credentials is None else signer(credentials)
    if namespace_v2:
        dress = in_namespace(namespace_v2, dress)
    names = Translation(namespace) if namespace else None
    if not tls:
        return Link(dress, names=names)
    config = tls if isinstance(tls, TLSConfig) else TLSConfig()
    return Link(dress, config.ssl_context(), config.server_hostname, names)


def signer(credentials: CredentialsSource) -> Dress:
    """The function that signs each request of a connection.

    It raises RemotingError for a request that cannot be signed: heartbeats call it as well, and a
    user's function that fails once must not end the client.
    """

    def dress(code: int, fields: dict[str, str], body: bytes) -> dict[str, str]:
        with Border() as border:
            account = credentials() if callable(credentials) else credentials
            return signed(account, code, fields, body)
        raise RemotingError(f"not sent: no credentials: {border.error!r}") from border.error

    return dress


def in_namespace(namespace: str, then: Dress | None) -> Dress:
    """The function that adds the namespace to each request, before signing. Source: client §5.8."""

    def dress(code: int, fields: dict[str, str], body: bytes) -> dict[str, str]:
        named = {**fields, "nsd": "true", "ns": namespace}
        return named if then is None else then(code, named, body)

    return dress


def signed(account: Credentials, code: int, fields: dict[str, str], body: bytes) -> dict[str, str]:
    """The fields of a request, with the account and the signature of all values and the body; it is
    good for this request code only.
    """
    if account.security_token is not None:
        fields = {**fields, SECURITY_TOKEN: account.security_token}
    secret = account.secret_key.encode()
    return with_signature(account.access_key, secret, fields, body, code=code)
