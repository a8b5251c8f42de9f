"""`aerobee certs dev`: files that work together, for their owner only."""

import shutil
import ssl
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from aerobee.cli.border import REFUSED, WRONG_USAGE
from aerobee.cli.certs import make
from aerobee.errors import ConfigurationError
from tests.aerobee.cli.conftest import Call, command

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is missing")

FILES = {f"{name}{end}.pem" for name in ("ca", "server", "client") for end in ("", "-key")}


def names_in(cert: Path, ca: Path) -> set[str]:
    """The names that a client would accept, read by a handshake in memory."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(cert, cert.with_name("server-key.pem"))
    client = ssl.create_default_context(cafile=str(ca))
    client.check_hostname = False
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server)
    far = server.wrap_bio(to_server, to_client, server_side=True)
    for side in (near, far, near):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    shown = near.getpeercert()
    assert shown is not None
    return {str(entry[1]) for entry in shown["subjectAltName"]}


def test_the_files_work_together_and_are_their_owners(call: Call, tmp_path: Path) -> None:
    directory = tmp_path / "a b"
    done = call("certs", "dev", "--dir", str(directory))
    assert done.code == 0, done.err
    assert {one.name for one in directory.iterdir()} == FILES
    assert {stat.S_IMODE(one.stat().st_mode) for one in directory.iterdir()} == {0o600}
    names = names_in(directory / "server.pem", directory / "ca.pem")
    assert {"localhost", "127.0.0.1", "0:0:0:0:0:0:0:1"} <= names
    for line in (
        f"tls_server_cert_path: {directory}/server.pem",
        f"tls.client.trustCertPath={directory}/ca.pem",
        f'ca_file="{directory}/ca.pem"',
        f"--ca-file '{directory}/ca.pem' --cert-file '{directory}/client.pem'",
    ):
        assert line in done.out
    again = call("certs", "dev", "--dir", str(directory))
    assert again.code == 2
    assert "server.pem is there: remove it, or give another --dir" in again.err


@pytest.mark.skipif(sys.platform != "linux", reason="another system has no /sys")
def test_a_directory_that_nobody_may_make_is_5(call: Call) -> None:
    done = call("certs", "dev", "--dir", "/sys/certs")
    assert (done.code, done.err.startswith("aerobee: /sys/certs: ")) == (REFUSED, True)


def test_a_ca_that_is_there_signs_more_servers(tmp_path: Path) -> None:
    made = make(tmp_path, ["one.example"])
    ca = (tmp_path / "ca.pem").read_bytes()
    for name in set(made) - {"ca.pem", "ca-key.pem"}:
        (tmp_path / name).unlink()
    assert sorted(make(tmp_path, ["*.two.example", "10.0.0.7"])) == sorted(
        FILES - {"ca.pem", "ca-key.pem"}
    )
    assert (tmp_path / "ca.pem").read_bytes() == ca
    assert names_in(tmp_path / "server.pem", tmp_path / "ca.pem") == {"*.two.example", "10.0.0.7"}


@pytest.mark.parametrize("host", ["", "a b", "a,DNS:b", "x\ny", "a" * 300, "ä.example"])
def test_a_host_that_no_certificate_can_name_is_refused(tmp_path: Path, host: str) -> None:
    with pytest.raises(ConfigurationError, match="neither the name nor the address"):
        make(tmp_path, [host])


def test_without_openssl_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match="the program openssl is needed"):
        make(tmp_path / "certs", ["localhost"])


def test_a_key_with_a_secret_is_asked_for_at_a_terminal_or_not_at_all(tmp_path: Path) -> None:
    made = make(tmp_path, ["one.example"])
    key = tmp_path / "ca-key.pem"
    subprocess.run(
        ["openssl", "ec", "-in", key, "-aes256", "-passout", "pass:secret", "-out", key],
        check=True,
        capture_output=True,
    )
    for name in set(made) - {"ca.pem", "ca-key.pem"}:
        (tmp_path / name).unlink()
    # A session of its own has no terminal; its stdin stays open and says nothing.
    began = subprocess.Popen(
        command("certs", "dev", "--dir", str(tmp_path)),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    assert began.stderr is not None
    with began:
        err = began.stderr.read()
    assert (began.returncode, err.startswith("aerobee: openssl x509: ")) == (WRONG_USAGE, True), err


def test_an_openssl_that_does_not_end_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.cli.certs.WITHIN_S", 0.001)
    with pytest.raises(ConfigurationError, match="openssl req has not ended within"):
        make(tmp_path / "certs", ["localhost"])
