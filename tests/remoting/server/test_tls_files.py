"""Each way in which certificates and keys can be wrong is named at the start, with its file."""

from __future__ import annotations

import re
import shutil
import ssl
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.cli.certs import make
from aerobee.remoting.server.tls_files import STEPS, CertificateUnusable, load
from aerobee.remoting.tls_config import ClientAuth, TlsConfig

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates as `aerobee certs dev` makes them, and an encrypted key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    directory = tmp_path_factory.mktemp("certs")
    make(directory, ["127.0.0.1"])
    openssl("pkcs8", "-topk8", "-in", directory / "server-key.pem", "-passout", "pass:sesame",
            "-out", directory / "locked.pem")  # fmt: skip
    (directory / "locked.pem").chmod(0o600)
    (directory / "text.pem").write_text("hello\n")
    return directory


def openssl(*words: object) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, timeout=30)


def config(made: Path, **changes: Any) -> TlsConfig:
    settings: dict[str, Any] = {
        "tls_server_cert_path": str(made / "server.pem"),
        "tls_server_key_path": str(made / "server-key.pem"),
    }
    for name, value in changes.items():
        settings[name] = str(made / value) if name.endswith("_path") and value else value
    return TlsConfig(**settings)


def test_good_files_give_no_doubts_and_tell_their_end(made: Path) -> None:
    loaded = load(config(made))
    assert loaded.warnings == []
    assert loaded.expires_s is not None
    locked = config(made, tls_server_key_path="locked.pem", tls_server_key_password="sesame")
    assert load(locked).warnings == []


@pytest.mark.parametrize(
    ("offered", "chosen"), [(["http/1.1", "h2"], "h2"), (["http/1.1"], None), ([], None)]
)
def test_clients_that_offer_http2_get_it_and_others_speak_as_before(
    made: Path, offered: list[str], chosen: str | None
) -> None:
    context = ssl.create_default_context(cafile=str(made / "ca.pem"))
    if offered:
        context.set_alpn_protocols(offered)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = context.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
    far = load(config(made)).context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(STEPS):
        for side in (near, far):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    assert far.selected_alpn_protocol() == near.selected_alpn_protocol() == chosen
    assert near.version() == "TLSv1.3"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"tls_server_cert_path": "none.pem"}, "tlsServerCertPath: .*none.pem: No such file"),
        ({"tls_server_key_path": "none.pem"}, "tlsServerKeyPath: .*none.pem: No such file"),
        ({"tls_server_cert_path": "text.pem"}, "text.pem: it holds no certificate in PEM"),
        ({"tls_server_key_path": "text.pem"}, "text.pem: it holds no private key in PEM"),
        ({"tls_server_key_path": ""}, "tlsServerCertPath: .*: it holds no private key in PEM"),
        ({"tls_server_key_path": "client-key.pem"}, "it is not the key of .*server.pem"),
        ({"tls_server_key_path": "locked.pem"}, "it is encrypted: set tlsServerKeyPassword"),
        (
            {"tls_server_key_path": "locked.pem", "tls_server_key_password": "open"},
            "the password of tlsServerKeyPassword does not open it",
        ),
        (
            {
                "tls_server_need_client_auth": ClientAuth.REQUIRE,
                "tls_server_trust_cert_path": "text.pem",
            },
            "tlsServerTrustCertPath: .*text.pem: it holds no certificate in PEM",
        ),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_a_file_that_cannot_work_is_named(
    made: Path, changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(CertificateUnusable, match=problem):
        load(config(made, **changes))


def test_a_key_that_others_read_is_told_and_one_that_they_write_is_refused(
    made: Path, tmp_path: Path
) -> None:
    """S17."""
    for name in ("server.pem", "server-key.pem"):
        shutil.copy(made / name, tmp_path)
    key = tmp_path / "server-key.pem"
    command = f"chmod 600 {key}"
    key.chmod(0o644)
    assert load(config(tmp_path)).warnings == [
        f"tlsServerKeyPath: {key}: others may read it: {command}"
    ]
    key.chmod(0o620)
    with pytest.raises(CertificateUnusable, match=f"others may write it: {re.escape(command)}"):
        load(config(tmp_path))
    subprocess.run(["sh", "-c", command], check=True)
    assert load(config(tmp_path)).warnings == []


def test_a_certificate_that_clients_will_refuse_is_told(made: Path, tmp_path: Path) -> None:
    """One that has expired, and one of a client."""
    openssl("req", "-new", "-key", made / "server-key.pem", "-subj", "/CN=old",
            "-out", tmp_path / "old.csr")  # fmt: skip
    openssl("x509", "-req", "-in", tmp_path / "old.csr", "-signkey", made / "server-key.pem",
            "-days", "0", "-out", made / "old.pem")  # fmt: skip
    old = load(config(made, tls_server_cert_path="old.pem"))
    assert old.expires_s is None
    assert "old.pem: it has expired; clients will refuse it" in old.warnings[0]
    mine = {"tls_server_cert_path": "client.pem", "tls_server_key_path": "client-key.pem"}
    [wrong] = load(config(made, **mine)).warnings
    assert "client.pem: " in wrong
    assert "purpose" in wrong
