"""The settings of TLS: the server's side, and our own connections to name servers.

RocketMQ has them as system properties and in `tls.properties`: `tls.server.certPath` there is
`tlsServerCertPath` here. Source: semantics §18.4 (TlsSystemConfig).
"""

from dataclasses import dataclass
from enum import StrEnum

from aerobee.setting import setting


class TlsMode(StrEnum):
    """Which connections a listener accepts: plain ones, both kinds, TLS alone."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class ClientAuth(StrEnum):
    """Whether clients show a certificate; one that is shown is always verified."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """Certificates and keys are files in PEM format."""

    # The listeners: broker, VIP, name server
    tls_server_mode: TlsMode = setting("tlsServerMode", TlsMode.PERMISSIVE, own=True)
    """Which connections are accepted: plain ones, both kinds, or TLS alone. Without a
    certificate, permissive is the same as disabled."""
    tls_config_file: str = setting("tlsConfigFile", "", kind="path", own=True)
    """A tls.properties of RocketMQ; what is set elsewhere too wins over it."""
    tls_server_cert_path: str = setting("tlsServerCertPath", "", kind="path", own=True)
    """Certificate of the listeners, followed by those between it and the CA."""
    tls_server_key_path: str = setting("tlsServerKeyPath", "", kind="path", own=True)
    """Its private key; empty: in the file of the certificate."""
    tls_server_key_password: str = setting("tlsServerKeyPassword", "", own=True)
    """Password of that key; empty: it has none."""
    tls_server_need_client_auth: ClientAuth = setting(
        "tlsServerNeedClientAuth", ClientAuth.NONE, own=True
    )
    """Whether clients are asked for a certificate, and whether they must have one."""
    tls_server_trust_cert_path: str = setting("tlsServerTrustCertPath", "", kind="path", own=True)
    """Certificates of the CAs that sign those of clients."""

    # Our own connections, to name servers and, from a name server, to brokers
    use_tls: bool = setting("useTLS", False)
    """Connect to name servers through TLS."""
    tls_client_auth_server: bool = setting("tlsClientAuthServer", True, own=True)
    """Verify their certificates, which contain the host of namesrvAddr."""
    tls_client_trust_cert_path: str = setting("tlsClientTrustCertPath", "", kind="path", own=True)
    """Certificates of the CAs that sign theirs; empty: those that the system trusts."""
    tls_client_cert_path: str = setting("tlsClientCertPath", "", kind="path", own=True)
    """Our certificate, for those that ask for one."""
    tls_client_key_path: str = setting("tlsClientKeyPath", "", kind="path", own=True)
    """Its private key; empty: in the file of the certificate."""
    tls_client_key_password: str = setting("tlsClientKeyPassword", "", own=True)
    """Password of that key; empty: it has none."""
