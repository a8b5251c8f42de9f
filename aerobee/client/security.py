"""Who a client says it is, and how its connections are encrypted.

Source: client §15.3 (AclClientRPCHook), §15.4.
"""

from __future__ import annotations

import hmac
import ssl
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from aerobee.client.namespaces import Translation
from aerobee.errors import ConfigurationError
from aerobee.remoting.client.link import Link

if TYPE_CHECKING:
    from aerobee.remoting.client.link import Dress

__all__ = ["Credentials", "CredentialsSource", "TLSConfig", "link_of", "signed"]


@dataclass(frozen=True, slots=True)
class Credentials:
    """The account that requests are signed for."""

    access_key: str
    """Its name."""
    secret_key: str
    """What requests are signed with; it is never sent."""
    security_token: str | None = None
    """Sent along, for accounts of a short life."""

    def __post_init__(self) -> None:
        if not self.access_key or not self.secret_key:
            raise ConfigurationError("Credentials: neither of the two keys may be empty")

    def __repr__(self) -> str:
        return f"Credentials(access_key={self.access_key!r}, …)"


CredentialsSource: TypeAlias = Credentials | Callable[[], Credentials]
"""Credentials, or a function asked for each request: keys may change while the client runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TLSConfig:
    """How peers are checked, and what they are shown. Files are in PEM form.

    Brokers are addressed by IP: their certificates name that address, or `server_hostname` says
    which name they have. A `context` of your own makes the rest void.
    """

    ca_file: str | None = None
    """Whom to trust; without it, whom the system trusts."""
    cert_file: str | None = None
    """The certificate that is shown to brokers which want one."""
    key_file: str | None = None
    """Its private key."""
    password: str | None = None
    """Of the key file."""
    verify: bool = True
    """False trusts anybody: for tests."""
    server_hostname: str | None = None
    """The name in the brokers' certificates, if it is not their address."""
    context: ssl.SSLContext | None = None
    """Counts instead of all the others."""

    def ssl_context(self) -> ssl.SSLContext:
        """The context of all connections. Raises: ConfigurationError for files that are none."""
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
    """How the connections of a client are made. Raises: ConfigurationError."""
    dress = None if credentials is None else signer(credentials)
    if namespace_v2:
        dress = in_namespace(namespace_v2, dress)
    names = Translation(namespace) if namespace else None
    if not tls:
        return Link(dress, names=names)
    config = tls if isinstance(tls, TLSConfig) else TLSConfig()
    return Link(dress, config.ssl_context(), config.server_hostname, names)


def signer(credentials: CredentialsSource) -> Dress:
    """What signs each request of a connection."""

    def dress(fields: dict[str, str], body: bytes) -> dict[str, str]:
        return signed(credentials() if callable(credentials) else credentials, fields, body)

    return dress


def in_namespace(namespace: str, then: Dress | None) -> Dress:
    """What names the namespace in each request, before it is signed. Source: client §5.8."""

    def dress(fields: dict[str, str], body: bytes) -> dict[str, str]:
        named = {**fields, "nsd": "true", "ns": namespace}
        return named if then is None else then(named, body)

    return dress


def signed(account: Credentials, fields: dict[str, str], body: bytes) -> dict[str, str]:
    """The fields of a request with the account and a signature of all values and the body."""
    dressed = {**fields, "AccessKey": account.access_key}
    if account.security_token is not None:
        dressed["SecurityToken"] = account.security_token
    content = "".join(dressed[name] for name in sorted(dressed)).encode() + body
    digest = hmac.digest(account.secret_key.encode(), content, "sha1")
    dressed["Signature"] = b64encode(digest).decode()
    return dressed
