"""Requests about users and ACLs: answers as the Java broker's, on disk when answered, no secret."""

from __future__ import annotations

import json
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from aerobee.broker.config.settings.auth import AuthConfig
from aerobee.broker.errors import NoPermission, TableDamaged
from aerobee.remoting.server.routes import finished
from aerobee.remoting.wire.command import Command
from aerobee.remoting.wire.headers import auth
from tests.broker.desk import body_of, open_desk

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aerobee.remoting.wire.header import Header
    from tests.broker.desk import Desk

pytestmark = pytest.mark.trio

ROOT = '{"username":"root","password":"root-secret"}'
ON = AuthConfig(
    authentication_enabled=True, authorization_enabled=True, init_authentication_user=ROOT
)


@asynccontextmanager
async def desk_of(root: Path, config: AuthConfig = ON) -> AsyncIterator[Desk]:
    async with open_desk(root, auth=config) as desk:
        yield desk


async def ask(desk: Desk, header: Header, body: Any = None, *, by: str = "root") -> Any:
    """The answer to a request that the gate has let through."""
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    return await desk.ask(header, data, by=by)


def acl_body(user: str, **entry: Any) -> dict[str, Any]:
    whole = {"resource": "Topic:T", "actions": ["Pub"], "decision": "Allow"} | entry
    return {"subject": f"User:{user}", "policies": [{"entries": [whole]}]}


async def test_a_user_is_created_changed_listed_and_deleted_without_showing_a_secret(
    tmp_path: Path,
) -> None:
    """S4: secrets are written, and never read back."""
    async with desk_of(tmp_path) as desk:
        body = {"username": "u1", "password": "secret-1"}
        assert (await ask(desk, auth.CreateUser(username="u1"), body)).code == 0
        on_disk = json.loads((tmp_path / "config" / "users.json").read_text())["users"]
        assert {one["username"]: one["password"] for one in on_disk}["u1"] == "secret-1"
        assert (tmp_path / "config" / "users.json").stat().st_mode & 0o777 == 0o600
        off = {"username": "u1", "userStatus": "Disable"}
        assert (await ask(desk, auth.UpdateUser(username="u1"), off)).code == 0
        shown = json.loads((await ask(desk, auth.GetUser(username="u1"))).body)
        assert shown == {"username": "u1", "userType": "Normal", "userStatus": "disable"}
        listed = bytes((await ask(desk, auth.ListUser(filter="u"))).body)
        assert [one["username"] for one in json.loads(listed)] == ["u1"]
        assert b"secret" not in bytes((await ask(desk, auth.ListUser())).body)
        assert (await ask(desk, auth.DeleteUser(username="u1"))).code == 0
        assert not (await ask(desk, auth.GetUser(username="u1"))).body
        assert (await ask(desk, auth.DeleteUser(username="u1"))).code == 0


U1 = {"username": "u1", "password": "x"}
WRONG: list[tuple[Header, Any, int, str]] = [
    (auth.CreateUser(username=""), U1, 29, "The username is blank"),
    (auth.CreateUser(), U1, 29, "The username is blank"),
    (auth.CreateUser(username="../x"), U1, 29, "illegal characters"),
    (auth.CreateUser(username="u\n1"), U1, 29, "illegal characters"),
    (auth.CreateUser(username="u1"), {}, 16, "password can not be blank"),
    (auth.CreateUser(username="root"), U1, 16, "The user is existed"),
    (auth.CreateUser(username="u1"), U1 | {"password": "a\x07b"}, 29, "control characters"),
    (auth.CreateUser(username="u1"), U1 | {"userType": "King"}, 29, "'King' is unknown"),
    (auth.CreateUser(username="u1"), U1 | {"userStatus": "off"}, 29, "'off' is unknown"),
    (auth.UpdateUser(username="u9"), U1, 16, "The user is not exist"),
    (auth.UpdateUser(username=""), U1, 29, "The username is blank"),
    (auth.UpdateUser(username="root"), {"userStatus": "disable"}, 16, "last enabled super user"),
    (auth.UpdateUser(username="root"), {"userType": "Normal"}, 16, "last enabled super user"),
    (auth.DeleteUser(username="root"), None, 16, "last enabled super user"),
    (auth.DeleteUser(username=""), None, 16, "username can not be blank"),
    (auth.GetUser(), None, 29, "The username is blank"),
    (auth.CreateAcl(subject="User:u9"), acl_body("u9"), 16, "User:u9 is not exist."),
    (auth.CreateAcl(subject="user:u9"), acl_body("u9"), 16, "User:u9 is not exist."),
    (auth.CreateAcl(subject="User:root"), {"policies": []}, 1, "The body of acl is null"),
    (auth.CreateAcl(subject="User:root"), {"policies": [{}]}, 16, "The policies is empty."),
    (auth.CreateAcl(subject="root"), acl_body("root") | {"subject": None}, 16, "subject is null"),
    (auth.CreateAcl(subject="User:a"), acl_body("root"), 29, "are different"),
    (auth.UpdateAcl(subject="User:root"), acl_body("root", resource="x"), 16, "resource is null"),
    (auth.DeleteAcl(subject="User:root"), None, 16, "The acl is not exist."),
    (auth.DeleteAcl(subject="User:u9"), None, 16, "The subject is not exist."),
    (auth.DeleteAcl(subject="User:root", policy_type="x"), None, 29, "policy type 'x'"),
    (auth.DeleteAcl(subject="User:root", resource="x"), None, 16, "The resource is null."),
    (auth.GetAcl(subject=""), None, 16, "The subject is null."),
    (auth.GetAcl(subject="User:u9"), None, 16, "The subject is not exist."),
]


async def test_each_wrong_request_is_refused_as_by_the_java_broker(tmp_path: Path) -> None:
    """S2: one validator at every door."""
    async with desk_of(tmp_path) as desk:
        for header, body, code, said in WRONG:
            answer = await ask(desk, header, body)
            assert (answer.code, said in (answer.remark or "")) == (code, True), (header, answer)
        assert desk.broker.users.directory.users.get("u1") is None


async def test_super_users_are_changed_by_super_users_only(tmp_path: Path) -> None:
    async with desk_of(tmp_path) as desk:
        await ask(desk, auth.CreateUser(username="u1"), U1)
        king = U1 | {"userType": "Super"}
        for header, body in (
            (auth.CreateUser(username="u2"), king),
            (auth.UpdateUser(username="u1"), king),
            (auth.UpdateUser(username="root"), U1),
            (auth.DeleteUser(username="root"), None),
        ):
            answer = await ask(desk, header, body, by="u1")
            assert "super user can only be" in (answer.remark or "")
        assert (await ask(desk, auth.CreateUser(username="u2"), king)).code == 0
        assert (await ask(desk, auth.DeleteUser(username="root"))).code == 0


async def test_an_acl_grows_is_listed_and_is_deleted_piece_by_piece(tmp_path: Path) -> None:
    async with desk_of(tmp_path) as desk:
        await ask(desk, auth.CreateUser(username="u1"), U1)
        subject = "User:u1"
        for body in (
            acl_body("u1"),
            acl_body("u1", resource="topic:p*", sourceIps=["10.0.0.0/8"]),
            acl_body("u1", decision="deny", actions=["sub"]),
        ):
            assert (await ask(desk, auth.CreateAcl(subject=subject), body)).code == 0
        shown = json.loads((await ask(desk, auth.GetAcl(subject=subject))).body)
        assert shown == {
            "subject": subject,
            "policies": [
                {
                    "policyType": "Custom",
                    "entries": [
                        {"resource": "Topic:T", "actions": ["Sub"], "decision": "Deny"},
                        {
                            "resource": "Topic:p*",
                            "actions": ["Pub"],
                            "decision": "Allow",
                            "sourceIps": ["10.0.0.0/8"],
                        },
                    ],
                }
            ],
        }
        assert json.loads((tmp_path / "config" / "acls.json").read_text()) == {"acls": [shown]}
        found = await ask(desk, auth.ListAcl(subject_filter="u1", resource_filter="Topic:p"))
        [listed] = json.loads(body_of(found))
        assert [one["resource"] for one in listed["policies"][0]["entries"]] == ["Topic:p*"]
        assert not (await ask(desk, auth.ListAcl(resource_filter="zzz"))).body
        assert (await ask(desk, auth.DeleteAcl(subject=subject, resource="Topic:T"))).code == 0
        assert (await ask(desk, auth.DeleteAcl(subject=subject))).code == 0
        assert not (await ask(desk, auth.GetAcl(subject=subject))).body


async def test_the_audit_log_tells_a_right_on_a_topic_that_is_named_like_a_secret(
    tmp_path: Path,
) -> None:
    async with desk_of(tmp_path) as desk:
        await ask(desk, auth.CreateUser(username="u1"), U1)
        subject, resource = "User:u1", "Topic:tokens"
        body = acl_body("u1", resource=resource)
        await ask(desk, auth.CreateAcl(subject=subject), body)
        await ask(desk, auth.DeleteAcl(subject=subject, resource=resource))
        told = [line["changes"] for line in desk.broker.audit.newest][-2:]
        assert told == [
            'u1: Custom/Topic:tokens - -> "Allow Pub"',
            'u1: Custom/Topic:tokens "Allow Pub" -> -',
        ]


async def test_a_user_that_is_deleted_while_its_entries_are_checked_leaves_no_rights(
    tmp_path: Path,
) -> None:
    """Nobody could have taken them away: an ACL of nobody is not deleted."""
    async with desk_of(tmp_path) as desk:
        await ask(desk, auth.CreateUser(username="u1"), U1)
        one = {"actions": ["Pub"], "decision": "Allow"}
        entries = [one | {"resource": f"Topic:T{number}"} for number in range(40)]
        body = {"subject": "User:u1", "policies": [{"entries": entries}]}
        header = auth.CreateAcl(subject="User:u1")
        command = Command(code=int(header.code), body=json.dumps(body).encode())
        steps: Any = desk.handlers[int(header.code)](header, command, desk.peer)
        next(steps)
        assert (await ask(desk, auth.DeleteUser(username="u1"))).code == 0
        with pytest.raises(NoPermission, match="User:u1 is not exist"):
            finished(steps)
        assert not (await ask(desk, auth.ListAcl())).body


async def test_without_its_type_only_the_entry_of_the_custom_policy_is_deleted(
    tmp_path: Path,
) -> None:
    """As in the Java broker: what the default policy denies stays denied."""
    async with desk_of(tmp_path) as desk:
        await ask(desk, auth.CreateUser(username="u1"), U1)
        subject = "User:u1"
        for kind in ("Custom", "Default"):
            entry = {"resource": "Topic:T", "actions": ["Pub"], "decision": "Deny"}
            policy = {"policyType": kind, "entries": [entry]}
            body = json.dumps({"subject": subject, "policies": [policy]}).encode()
            assert (await ask(desk, auth.CreateAcl(subject=subject), body)).code == 0
        assert (await ask(desk, auth.DeleteAcl(subject=subject, resource="Topic:T"))).code == 0
        left = json.loads((await ask(desk, auth.GetAcl(subject=subject))).body)
        assert [policy["policyType"] for policy in left["policies"]] == ["Default"]


async def test_a_new_user_does_not_inherit_what_one_of_the_same_name_was_allowed(
    tmp_path: Path,
) -> None:
    async with desk_of(tmp_path) as desk:
        await ask(desk, auth.CreateUser(username="u1"), U1)
        await ask(desk, auth.CreateAcl(subject="User:u1"), acl_body("u1"))
        await ask(desk, auth.DeleteUser(username="u1"))
        await ask(desk, auth.CreateUser(username="u1"), U1)
        assert not (await ask(desk, auth.GetAcl(subject="User:u1"))).body


async def test_users_are_prepared_from_this_host_before_authentication_is_turned_on(
    tmp_path: Path,
) -> None:
    """As with the Java broker, whose tools need no account then; nobody else may, unlike there."""
    files = tmp_path / "config"
    async with desk_of(tmp_path, AuthConfig()) as desk:
        assert (await ask(desk, auth.ListUser(), by="")).body == b""
        assert not (files / "users.json").exists(), "who does not ask for users has none"
        king = U1 | {"userType": "Super"}
        assert (await ask(desk, auth.CreateUser(username="boss"), king, by="")).code == 0
        assert (await ask(desk, auth.CreateUser(username="u1"), U1, by="")).code == 0
        grant = auth.CreateAcl(subject="User:u1")
        assert (await ask(desk, grant, acl_body("u1"), by="")).code == 0
        desk.peer.host = bytes((10, 0, 0, 1, 0, 0, 0, 1))
        for header in (auth.ListUser(), auth.GetAcl(subject="User:u1"), auth.DeleteUser("u1")):
            refused = await ask(desk, header, by="boss")
            assert (refused.code, "own host" in (refused.remark or "")) == (3, True)
    config = AuthConfig(authentication_enabled=True)
    async with desk_of(tmp_path, config) as desk:
        directory = desk.broker.users.directory
        assert directory.first_admin is None, "there is a super user already"
        assert (await ask(desk, auth.GetAcl(subject="User:u1"), by="boss")).body
        refused = await ask(desk, auth.CreateUser(username="u2"), U1 | {"userType": "Super"}, by="")
        assert refused.code == 1


async def test_prepared_users_without_an_administrator_get_one(tmp_path: Path) -> None:
    async with desk_of(tmp_path, AuthConfig()) as desk:
        assert (await ask(desk, auth.CreateUser(username="u1"), U1, by="")).code == 0
    async with desk_of(tmp_path, AuthConfig(authentication_enabled=True)) as desk:
        assert desk.broker.users.directory.first_admin is not None


async def test_a_damaged_file_of_users_stops_no_broker_that_does_not_need_it(
    tmp_path: Path,
) -> None:
    async with desk_of(tmp_path, AuthConfig()) as desk:
        assert (await ask(desk, auth.CreateUser(username="u1"), U1, by="")).code == 0
    path = tmp_path / "config" / "users.json"
    path.write_text("{")
    async with desk_of(tmp_path, AuthConfig()) as desk:
        refused = await ask(desk, auth.CreateUser(username="u2"), U1, by="")
        assert (refused.code, "users.json" in (refused.remark or "")) == (1, True)
    assert path.read_text() == "{"


async def test_the_first_start_makes_an_admin_once(tmp_path: Path) -> None:
    config = AuthConfig(authentication_enabled=True)
    async with desk_of(tmp_path, config) as desk:
        admin = desk.broker.users.directory.first_admin
        assert admin is not None
        assert admin[0] == "admin"
        assert len(admin[1]) >= 32
        user = desk.broker.users.directory.users.account("admin")
        assert user is not None
        assert (user.secret.decode(), user.is_super) == (admin[1], True)
        assert admin[1] not in repr(user)
    async with desk_of(tmp_path, config) as desk:
        assert desk.broker.users.directory.first_admin is None


@pytest.mark.parametrize("name", ["users.json", "acls.json"])
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"users":[{"username":"u"}],"acls":[{"subject":"x"}]}',
        b'{"users":[{"username":"../u","password":"x","userType":"Super","userStatus":"enable"}],'
        b'"acls":[{"subject":"User:u","policies":[{"entries":[{"resource":"Topic:T"}]}]}]}',
    ],
)
async def test_a_damaged_file_refuses_the_start_by_name(
    tmp_path: Path, name: str, content: bytes
) -> None:
    """Never open, and never with older rights from a backup."""
    async with desk_of(tmp_path) as desk:
        await ask(desk, auth.CreateUser(username="u1"), U1)
        await ask(desk, auth.CreateAcl(subject="User:u1"), acl_body("u1"))
    (tmp_path / "config" / name).write_bytes(content)
    with pytest.RaisesGroup(TableDamaged, allow_unwrapped=True, flatten_subgroups=True) as refused:
        async with desk_of(tmp_path):
            pass
    assert name in str(refused.value) or name in str(refused.value.exceptions)


async def test_a_file_that_others_can_read_refuses_the_start(tmp_path: Path) -> None:
    """S17."""
    async with desk_of(tmp_path):
        pass
    (tmp_path / "config" / "users.json").chmod(0o644)
    with pytest.RaisesGroup(TableDamaged, allow_unwrapped=True, flatten_subgroups=True) as refused:
        async with desk_of(tmp_path):
            pass
    (command,) = re.findall("chmod 600 [^ )]+", repr(refused.value))
    await trio.run_process(["sh", "-c", command.rstrip("',")])
    async with desk_of(tmp_path):
        pass
