"""Users in files that several brokers share: what one of them took away, no other gives back."""

from __future__ import annotations

import errno
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from aerobee.broker.config.settings.auth import AuthConfig
from aerobee.broker.errors import Refusal
from aerobee.broker.saved.tables import Tables
from aerobee.broker.users.directory import UserDirectory
from aerobee.remoting.wire.command import Command
from aerobee.remoting.wire.headers import auth
from aerobee.store.files.system_clock import SystemClock
from tests.broker.peers import Peer
from tests.kit.faulty_disk import Fault, FaultyDisk
from tests.kit.logged import events

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from trio.testing import MockClock

    from aerobee.remoting.wire.header import Header
    from tests.kit.logged import Logged

pytestmark = pytest.mark.trio

ROOT = '{"username":"root","password":"root-secret"}'
ON = AuthConfig(authentication_enabled=True, init_authentication_user=ROOT)


class Two:
    """Two brokers on the same files."""

    def __init__(self, folder: Path) -> None:
        self.file, self.acls = folder / "users.json", folder / "acls.json"
        self.disk = FaultyDisk(folder)
        tables = Tables(folder, self.disk, SystemClock())
        self.asking, self.other = Peer("127.0.0.1:50000"), Peer("127.0.0.1:50001")
        self.asking.accounts = self.other.accounts = frozenset({"root"})
        self.ended: list[Peer] = []
        self.first, self.second = (
            UserDirectory(ON, tables, self.cut_off, shared=self.disk) for _ in range(2)
        )

    async def cut_off(self, ends: Callable[[Any], bool]) -> None:
        """Note whose connections end, at either of them."""
        self.ended += filter(ends, (self.asking, self.other))

    async def ask(self, directory: UserDirectory, header: Header, **more: Any) -> None:
        """A change by the super user. Raises: Refusal."""
        body = json.dumps({"password": "a-secret", **more}).encode()
        command = Command(code=int(header.code), body=body)
        command.ext = {"AccessKey": "root"}
        (handler,) = (one.handler for one in directory.routes if isinstance(header, one.header))
        answer: Any = handler(header, command, self.asking)
        # While it waits the worker keeps the body alone.
        command.release()
        command.body = body
        await answer

    def names(self) -> set[str]:
        """The users that the file has."""
        return {one["username"] for one in json.loads(self.file.read_text())["users"]}


async def two(folder: Path, clock: MockClock) -> Two:
    """Both of them know the user adam, whom the first has deleted since."""
    clock.rate = 50
    both = Two(folder)
    both.first.load()
    await both.ask(both.first, auth.CreateUser(username="adam"))
    both.second.load()
    await both.ask(both.first, auth.DeleteUser(username="adam"))
    return both


@asynccontextmanager
async def serving(directory: UserDirectory) -> AsyncIterator[None]:
    """It follows the files."""
    async with trio.open_nursery() as nursery:
        for service in directory.services:
            await nursery.start(service.run)
        yield
        nursery.cancel_scope.cancel()


async def until(done: Callable[[], bool]) -> None:
    """Wait for it, 60 s of the clock at most."""
    with trio.fail_after(60):
        while not done():  # noqa: ASYNC110  (nobody tells)
            await trio.sleep(0.1)


async def test_a_file_that_could_not_be_read_once_is_read_again(
    tmp_path: Path, mock_clock: MockClock, logged: Logged
) -> None:
    """The other broker had no descriptor left at that moment: a deleted user stayed there."""
    both = await two(tmp_path, mock_clock)
    both.disk.faults.append(Fault(name="open", path="users.json", error=errno.EMFILE, times=3))
    async with serving(both.second):
        await until(lambda: both.second.users.get("adam") is None)
    assert events(logged).count("user.not_reread") == 1


@pytest.mark.parametrize("number", [errno.ELOOP, errno.EIO, errno.ESTALE, errno.EACCES])
async def test_files_that_the_system_does_not_show_for_a_while_end_nobody(
    tmp_path: Path, mock_clock: MockClock, logged: Logged, number: int
) -> None:
    """It ended all brokers of a machine, and their supervisor."""
    both = await two(tmp_path, mock_clock)
    away = Fault(name="lstat", path="users.json", error=number, times=10**9)
    both.disk.faults.append(away)
    async with serving(both.second):
        await until(lambda: "user.not_reread" in events(logged))
        with pytest.raises(Refusal, match="cannot be looked at"):
            await both.ask(both.second, auth.CreateUser(username="eve"))
        await trio.sleep(5)
        away.times = 0
        await until(lambda: both.second.users.get("adam") is None)
    assert events(logged).count("user.not_reread") == 1


async def test_users_are_not_taken_without_their_rights(
    tmp_path: Path, mock_clock: MockClock, logged: Logged
) -> None:
    """With rights that cannot be read the users were those of now, and the rights of before."""
    both = await two(tmp_path, mock_clock)
    both.acls.write_text('{"acls":[{"subject":"adam"}]}')
    both.acls.chmod(0o600)
    async with serving(both.second):
        await until(lambda: "user.not_reread" in events(logged))
        assert both.second.users.get("adam") is not None
        both.acls.write_text('{"acls":[]}')
        await until(lambda: both.second.users.get("adam") is None)


async def test_no_change_is_made_to_users_that_are_not_those_of_the_file(
    tmp_path: Path, mock_clock: MockClock, logged: Logged
) -> None:
    """It would have written the users of before, the deleted one with them."""
    both = await two(tmp_path, mock_clock)
    both.file.chmod(0o644)
    async with serving(both.second):
        await until(lambda: "user.not_reread" in events(logged))
        with pytest.raises(Refusal, match="chmod 600"):
            await both.ask(both.second, auth.CreateUser(username="eve"))
        assert both.names() == {"root"}
        both.file.chmod(0o600)
        await until(lambda: both.second.users.get("adam") is None)
        await both.ask(both.second, auth.CreateUser(username="eve"))
    assert both.names() == {"root", "eve"}


async def test_a_super_user_changes_super_users(tmp_path: Path) -> None:
    """Who asks was forgotten while the change waited for its turn: it was refused to everybody."""
    both = Two(tmp_path)
    both.first.load()
    await both.ask(both.first, auth.CreateUser(username="chief"), userType="Super")
    await both.ask(both.first, auth.UpdateUser(username="root"), password="another-secret")
    await both.ask(both.first, auth.DeleteUser(username="chief"))
    assert both.names() == {"root"}
    with pytest.raises(Refusal, match="last enabled super user"):
        await both.ask(both.first, auth.DeleteUser(username="root"))


async def test_a_user_that_changes_its_own_secret_hears_so_from_each_broker(tmp_path: Path) -> None:
    """The second one was told already by the files, and ended the connection that asked it, too."""
    both = Two(tmp_path)
    both.first.load()
    both.second.load()
    for broker in (both.first, both.second):
        await both.ask(broker, auth.UpdateUser(username="root"), password="another-secret")
    assert set(both.ended) == {both.other}


async def test_a_user_made_anew_while_the_files_are_read_has_no_rights_of_the_one_before(
    tmp_path: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = await two(tmp_path, mock_clock)
    await both.ask(both.first, auth.CreateUser(username="adam"))
    policies = [{"entries": [{"resource": "Topic:*", "actions": ["Sub"], "decision": "Allow"}]}]
    await both.ask(both.first, auth.CreateAcl(subject="User:adam"), policies=policies)
    seen: list[tuple[str, bool]] = []

    async def cut_off(ends: Callable[[Any], bool]) -> None:
        user = known.users.get("adam")
        secret = "" if user is None else user.password or ""
        seen.append((secret, known.acls.get("adam") is not None))

    tables = Tables(tmp_path, both.disk, SystemClock())
    known = UserDirectory(ON, tables, cut_off, shared=both.disk)
    known.load()
    await both.ask(both.first, auth.CreateUser(username="eve"))
    in_thread, reading = both.disk.in_thread, 0

    async def between(function: Callable[..., Any], *args: Any) -> Any:
        nonlocal reading
        result = await in_thread(function, *args)
        if getattr(function, "__self__", None) is known.shared:
            reading += 1
            if reading == 1:
                await both.ask(both.first, auth.DeleteUser(username="adam"))
                await both.ask(both.first, auth.CreateUser(username="adam"), password="another")
        return result

    monkeypatch.setattr(both.disk, "in_thread", between)
    async with serving(known):
        await until(lambda: ("another", False) in seen)
    assert ("another", True) not in seen
