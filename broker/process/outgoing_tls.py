"""TLS of our own connections: to name servers and, from a name server, to brokers."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from aerobee.remoting.client.link import PLAIN, Link
from aerobee.remoting.server.tls_files import CertificateFiles, CertificateUnusable, show, trust

if TYPE_CHECKING:
    from aerobee.remoting.tls_config import TlsConfig


def outgoing_link(config: TlsConfig) -> Link:
    """How connections are made. Blocking. Raises: CertificateUnusable."""
    if not config.use_tls:
        return PLAIN
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not config.tls_client_auth_server:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif config.tls_client_trust_cert_path:
        trust(context, "tlsClientTrustCertPath", config.tls_client_trust_cert_path)
    else:
        context.load_default_certs()
    if config.tls_client_cert_path:
        show(
            context,
            CertificateFiles(
                "tlsClient",
                config.tls_client_cert_path,
                config.tls_client_key_path,
                config.tls_client_key_password,
            ),
        )
    elif config.tls_client_key_path:
        raise CertificateUnusable("tlsClientKeyPath: a key without a certificate")
    return Link(tls=context)
