"""Reads the certificates and keys of the listeners, and says what is wrong with them.

Every way in which the files cannot work is an error that names the setting and the file. A doubt
about files that work now, and will not for long or should not be so, is a warning. Reading is
blocking.
"""

from __future__ import annotations

import shlex
import ssl
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from aerobee.remoting.tls_config import ClientAuth

if TYPE_CHECKING:
    from aerobee.remoting.tls_config import TlsConfig

CIPHERS: Final = (
    "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384"
    ":ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305"
)
"""For TLS 1.2: Mozilla's intermediate profile, less the ciphers that need parameters of a group."""
VERIFY: Final = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.OPTIONAL: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRE: ssl.CERT_REQUIRED,
}
EXPIRED, NOT_YET_VALID = 10, 9
"""Codes of OpenSSL's verification."""
HTTP2: Final = "h2"
"""The name of HTTP/2 in a handshake (ALPN). Source: RFC 9113 §3.2."""
STEPS: Final = 4
"""Turns of a handshake, with some to spare."""


class CertificateUnusable(OSError):
    """A file of TLS is missing, unreadable, or not what its setting says."""


class CertificateFiles(NamedTuple):
    """A certificate with its key, and what its settings are called: `tlsServer` and a word."""

    prefix: str
    cert: str
    key: str
    password: str


class TlsContext(NamedTuple):
    """The context of TLS for new connections, and the doubts about its files."""

    context: ssl.SSLContext
    warnings: list[str]
    expires_s: float | None
    """When the certificate ends, in seconds since 1970; None where it is not valid now."""


class Password:
    """Gives the password of a key to OpenSSL, and remembers whether it was asked for it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.asked = False

    def __call__(self) -> str:
        self.asked = True
        return self.text


def load(config: TlsConfig) -> TlsContext:
    """The context of the listeners. Raises: CertificateUnusable."""
    try:
        return _load(config)
    except CertificateUnusable:
        raise
    except OSError as error:
        # A file has gone since it was read a moment ago, or there is no descriptor left.
        raise unusable(config, error) from None


def unusable(config: TlsConfig, error: OSError) -> CertificateUnusable:
    """An error of a file that names the setting of this file."""
    file = error.filename or config.tls_server_cert_path
    return CertificateUnusable(f"tlsServerCertPath: {file}: {error.strerror or error}")


def _load(config: TlsConfig) -> TlsContext:
    context = plain_context()
    # Clients of gRPC insist on it; those that offer no protocol are served as before.
    context.set_alpn_protocols([HTTP2])
    shown = listeners_show(config)
    warnings = show(context, shown)
    context.verify_mode = VERIFY[config.tls_server_need_client_auth]
    if config.tls_server_need_client_auth is not ClientAuth.NONE:
        trust(context, "tlsServerTrustCertPath", config.tls_server_trust_cert_path)
    expires_s, doubt = try_out(shown)
    return TlsContext(context, [*warnings, *([doubt] if doubt else [])], expires_s)


def plain_context() -> ssl.SSLContext:
    """The protocols and ciphers of all listeners, without a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    # Clients that are no faster with AES choose for themselves, as Mozilla has it.
    context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    return context


def listeners_show(config: TlsConfig) -> CertificateFiles:
    """The certificate of the listeners."""
    return CertificateFiles(
        "tlsServer",
        config.tls_server_cert_path,
        config.tls_server_key_path,
        config.tls_server_key_password,
    )


def show(context: ssl.SSLContext, shown: CertificateFiles) -> list[str]:
    """Let the context show a certificate; returns doubts. Raises: CertificateUnusable."""
    prefix, cert, key, _ = shown
    if key:
        readable(f"{prefix}KeyPath", key)
    trust(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), f"{prefix}CertPath", cert)
    place = f"{prefix}KeyPath: {key}" if key else f"{prefix}CertPath: {cert}"
    password = Password(shown.password)
    try:
        context.load_cert_chain(cert, key or None, password)
    except ssl.SSLError as error:
        reason = error.reason or ""
        if reason == "KEY_VALUES_MISMATCH":
            raise CertificateUnusable(f"{place}: it is not the key of {cert}") from None
        if password.asked:
            remedy = (
                f"the password of {prefix}KeyPassword does not open it"
                if password.text
                else f"it is encrypted: set {prefix}KeyPassword"
            )
            raise CertificateUnusable(f"{place}: {remedy}") from None
        if "TOO_SMALL" in reason or "TOO_WEAK" in reason:
            raise CertificateUnusable(f"{prefix}CertPath: {cert}: {reason}") from None
        raise CertificateUnusable(f"{place}: it holds no private key in PEM format") from None
    except ValueError:
        # OpenSSL takes passwords of up to 1,024 bytes.
        raise CertificateUnusable(f"{prefix}KeyPassword: it is too long") from None
    return doubts_about_key(place, Path(key or cert))


def readable(setting: str, file: str) -> None:
    """Check that the file can be read. Raises: CertificateUnusable."""
    try:
        with open(file, "rb"):
            pass
    except OSError as error:
        raise CertificateUnusable(f"{setting}: {file}: {error.strerror or error}") from None


def trust(context: ssl.SSLContext, setting: str, file: str) -> None:
    """Let the context trust the certificates of a file. Raises: CertificateUnusable."""
    readable(setting, file)
    try:
        context.load_verify_locations(file)
    except ssl.SSLError:
        raise CertificateUnusable(
            f"{setting}: {file}: it holds no certificate in PEM format"
        ) from None


def doubts_about_key(place: str, key: Path) -> list[str]:
    """The doubts about who else than its owner may read or write the key. Raises:
    CertificateUnusable: write it.
    """
    mode = key.stat().st_mode
    command = f"chmod 600 {shlex.quote(str(key))}"
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise CertificateUnusable(f"{place}: others may write it: {command}")
    if mode & (stat.S_IRGRP | stat.S_IROTH):
        return [f"{place}: others may read it: {command}"]
    return []


def try_out(shown: CertificateFiles) -> tuple[float | None, str]:
    """A handshake in memory with a client that trusts this certificate: its end, or a doubt."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    show(server, shown)
    cert = shown.cert
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(cert)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server)
    far = server.wrap_bio(to_server, to_client, server_side=True)
    try:
        for _ in range(STEPS):
            for side in (near, far):
                try:
                    side.do_handshake()
                except ssl.SSLWantReadError:
                    continue
    except ssl.SSLCertVerificationError as error:
        reasons = {EXPIRED: "it has expired", NOT_YET_VALID: "it is not valid yet"}
        problem = reasons.get(error.verify_code, error.verify_message)
        return None, f"tlsServerCertPath: {cert}: {problem}; clients will refuse it"
    except ssl.SSLError as error:
        raise CertificateUnusable(f"tlsServerCertPath: {cert}: {error.reason}") from None
    seen = near.getpeercert() or {}
    return ssl.cert_time_to_seconds(str(seen["notAfter"])), ""
