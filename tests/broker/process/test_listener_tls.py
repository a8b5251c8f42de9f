"""Certificates are taken over while connections stay open, and wrong ones are not."""

from __future__ import annotations

import errno
import os
import shutil
from typing import TYPE_CHECKING

import pytest

from aerobee.broker.process.listener_tls import PAIR_S, SETTLE_S, ListenerTls
from aerobee.cli.certs import make
from aerobee.remoting.server.reactor import Reactor
from aerobee.remoting.tls_config import TlsConfig, TlsMode
from aerobee.store.files.system_clock import SystemClock
from tests.remoting.server.stage import LIMITS

if TYPE_CHECKING:
    import ssl
    from pathlib import Path

    from tests.kit.logged import Logged

pytestmark = pytest.mark.trio


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two generations of certificates of one CA."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    root = tmp_path_factory.mktemp("certs")
    make(root / "old", ["127.0.0.1"])
    (root / "new").mkdir()
    for name in ("ca.pem", "ca-key.pem"):
        shutil.copy(root / "old" / name, root / "new")
    make(root / "new", ["127.0.0.1"])
    return root


class Scene:
    """The files in use, and the reactor that has them."""

    def __init__(self, made: Path, directory: Path) -> None:
        self.made = made
        self.directory = directory
        self.reactor = Reactor(pools={}, limits=LIMITS, selectors=1, refusals=lambda _: None)
        self.put("old", "server.pem", "server-key.pem")
        config = TlsConfig(
            tls_server_cert_path=str(directory / "server.pem"),
            tls_server_key_path=str(directory / "server-key.pem"),
        )
        self.tls = ListenerTls(config, self.reactor, SystemClock())

    def put(self, generation: str, *names: str) -> None:
        """Replace files as a careful operator does: whole, by a rename."""
        for name in names:
            shutil.copy(self.made / generation / name, self.directory / "next")
            os.rename(self.directory / "next", self.directory / name)

    @property
    def context(self) -> ssl.SSLContext:
        assert self.reactor.shared.handshakes is not None
        return self.reactor.shared.handshakes.context


@pytest.fixture
def scene(made: Path, tmp_path: Path) -> Scene:
    scene = Scene(made, tmp_path)
    scene.tls.open()
    return scene


async def test_a_new_pair_is_taken_when_both_are_there(scene: Scene, logged: Logged) -> None:
    before = scene.context
    await scene.tls.look(1.0)
    assert scene.context is before
    scene.put("new", "server.pem")
    for now in (2.0, 1.9 + PAIR_S):
        await scene.tls.look(now)
    assert scene.context is before
    assert logged == []
    scene.put("new", "server-key.pem")
    await scene.tls.look(2.0 + PAIR_S)
    assert scene.context is not before
    assert [line["event"] for line in logged] == ["tls.loaded"]


@pytest.mark.parametrize("wrong", ["half", "text", "gone"])
async def test_what_cannot_work_changes_nothing_and_is_said_once(
    scene: Scene, logged: Logged, wrong: str
) -> None:
    before = scene.context
    if wrong == "half":
        scene.put("new", "server-key.pem")
    elif wrong == "text":
        for name in ("server.pem", "server-key.pem"):
            (scene.directory / name).write_text("no certificate\n")
    else:
        (scene.directory / "server.pem").unlink()
    await scene.tls.look(1.0)
    # They may be half written.
    assert logged == []
    for now in (1.0 + SETTLE_S, 1.0 + PAIR_S, 2.0 + PAIR_S):
        await scene.tls.look(now)
    assert scene.context is before
    [said] = logged
    assert said["event"] == "tls.reload_failed"
    assert "server" in said["reason"]
    scene.put("new", "server.pem", "server-key.pem")
    await scene.tls.look(3.0 + PAIR_S)
    assert scene.context is not before


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EACCES, errno.EMFILE, errno.EIO])
@pytest.mark.parametrize("step", ["readable", "doubts_about_key", "try_out", "plain_context"])
async def test_a_file_that_goes_while_it_is_read_ends_no_watch(
    scene: Scene, logged: Logged, monkeypatch: pytest.MonkeyPatch, number: int, step: str
) -> None:
    """Removed and written again, between two of the calls that read it."""

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number), str(scene.directory / "server.pem"))

    before = scene.context
    scene.put("new", "server.pem", "server-key.pem")
    with monkeypatch.context() as patched:
        patched.setattr(f"aerobee.remoting.server.tls_files.{step}", fail)
        for now in (1.0, 1.0 + SETTLE_S):
            await scene.tls.look(now)
        assert scene.context is before
    [said] = logged
    assert said["event"] == "tls.reload_failed"
    assert os.strerror(number) in said["reason"]
    await scene.tls.reload()
    assert scene.context is not before


async def test_a_signal_reads_them_at_once(scene: Scene, logged: Logged) -> None:
    before = scene.context
    await scene.tls.reload()
    assert scene.context is not before
    (scene.directory / "server.pem").write_text("no certificate\n")
    again = scene.context
    await scene.tls.reload()
    assert scene.context is again
    assert [line["event"] for line in logged] == ["tls.loaded", "tls.reload_failed"]


async def test_nothing_is_read_where_tls_is_off(made: Path) -> None:
    reactor = Reactor(pools={}, limits=LIMITS, selectors=1, refusals=lambda _: None)
    nowhere = TlsConfig(
        tls_server_mode=TlsMode.DISABLED, tls_server_cert_path=str(made / "nothing.pem")
    )
    tls = ListenerTls(nowhere, reactor, SystemClock())
    tls.open()
    await tls.run()
    await tls.reload()
    assert reactor.shared.handshakes is None
