"""The certificates of outgoing connections are read again when the settings are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from aerobee.cli.certs import make
from aerobee.remoting.tls_config import TlsConfig
from tests.broker.desk import open_desk

if TYPE_CHECKING:
    import ssl
    from pathlib import Path


def trusted(context: ssl.SSLContext | None) -> object:
    assert context is not None
    return context.get_ca_certs()


@pytest.mark.trio
async def test_new_certificates_count_for_the_next_connection_and_broken_ones_do_not(
    tmp_path: Path,
) -> None:
    certs = tmp_path / "certs"
    make(certs, ["127.0.0.1"])
    tls = TlsConfig(
        use_tls=True,
        tls_client_trust_cert_path=str(certs / "ca.pem"),
        tls_client_cert_path=str(certs / "client.pem"),
        tls_client_key_path=str(certs / "client-key.pem"),
    )
    async with open_desk(tmp_path / "data", tls=tls) as desk:
        role = desk.broker.namesrv.role
        first = role.link
        (certs / "client.pem").write_text("nothing")
        with capture_logs() as logs:
            await role.reload()
        assert role.link is first
        assert "client.pem" in str([one for one in logs if one["event"] == "tls.reload_failed"])
        for path in list(certs.iterdir()):
            path.unlink()
        make(certs, ["127.0.0.1"])
        await role.reload()
        assert trusted(role.link.tls) != trusted(first.tls)
        assert role.link.dress is first.dress
