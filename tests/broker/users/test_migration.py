"""Accounts of ACL 1.0 become users, once, with the same rights and no more."""

from __future__ import annotations

import json
from ipaddress import ip_address
from typing import TYPE_CHECKING

import pytest

from aerobee.broker.access.authority import AccessQuery
from aerobee.broker.access.permissions import Action, Kind, Need
from aerobee.broker.config.files.entries import ConfigurationError
from aerobee.broker.config.settings.auth import AuthConfig
from aerobee.remoting.wire.headers import auth
from tests.broker.desk import open_desk

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.desk import Desk

pytestmark = pytest.mark.trio

ACCOUNTS = """\
accounts:
- {accessKey: the-admin, secretKey: admin-secret, admin: true}
- accessKey: one-shop
  secretKey: shop-secret
  defaultTopicPerm: PUB
  defaultGroupPerm: SUB
  topicPerms: [orders=SUB, prices=DENY, both=PUB|SUB]
  groupPerms: [billing=DENY]
- {accessKey: no-rights, secretKey: some-secret}
"""
RIGHTS = {
    ("one-shop", "Topic:orders", Action.SUB): True,
    # ACL 1.0 does not ask the default for what is listed.
    ("one-shop", "Topic:orders", Action.PUB): False,
    ("one-shop", "Topic:prices", Action.PUB): False,
    ("one-shop", "Topic:both", Action.PUB): True,
    ("one-shop", "Topic:both", Action.SUB): True,
    ("one-shop", "Topic:others", Action.PUB): True,
    ("one-shop", "Topic:others", Action.SUB): False,
    ("one-shop", "Group:billing", Action.SUB): False,
    ("one-shop", "Group:others", Action.SUB): True,
    ("one-shop", "Cluster:DefaultCluster", Action.GET): False,
    ("no-rights", "Topic:orders", Action.SUB): False,
    ("the-admin", "Cluster:DefaultCluster", Action.UPDATE): True,
}
SIGNED = 310


def config_of(root: Path, text: str = ACCOUNTS) -> AuthConfig:
    """The settings of a broker that takes over these accounts."""
    (root / "plain_acl.yml").write_text(text)
    (root / "plain_acl.yml").chmod(0o600)
    return AuthConfig(
        authentication_enabled=True,
        authorization_enabled=True,
        migrate_auth_from_v1_enabled=True,
        acl_config_dir=str(root),
    )


def may(desk: Desk, name: str, resource: str, action: Action) -> bool:
    """Whether the authority lets a user do that."""
    authority = desk.broker.users.directory.authority
    assert authority is not None
    account = authority.account(name)
    assert account is not None
    kind, _, wanted = resource.partition(":")
    need = Need(Kind(kind), wanted, frozenset({action}))
    return authority.objection(account, AccessQuery(SIGNED, [need], ip_address("10.0.0.1"))) is None


async def test_accounts_become_users_with_their_rights_and_stay_over_a_restart(
    tmp_path: Path,
) -> None:
    config = config_of(tmp_path)
    async with open_desk(tmp_path, auth=config) as desk:
        directory = desk.broker.users.directory
        assert directory.first_admin is None
        assert {case: may(desk, *case) for case in RIGHTS} == RIGHTS
        account = directory.users.account("one-shop")
        assert account is not None
        assert account.secret == b"shop-secret"
        changed = json.dumps({"username": "one-shop", "password": "another"}).encode()
        done = await desk.ask(auth.UpdateUser(username="one-shop"), changed, by="the-admin")
        assert done.code == 0
    async with open_desk(tmp_path, auth=config) as desk:
        account = desk.broker.users.directory.users.account("one-shop")
        assert account is not None
        assert account.secret == b"another"
    without = AuthConfig(authentication_enabled=True, authorization_enabled=True)
    async with open_desk(tmp_path, auth=without) as desk:
        assert {case: may(desk, *case) for case in RIGHTS} == RIGHTS


async def test_without_an_administrator_among_them_there_is_a_first_admin(tmp_path: Path) -> None:
    config = config_of(tmp_path, "accounts: [{accessKey: no-rights, secretKey: some-secret}]")
    async with open_desk(tmp_path, auth=config) as desk:
        assert desk.broker.users.directory.first_admin is not None
        assert may(desk, "admin", "Cluster:DefaultCluster", Action.UPDATE)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("accounts: [{accessKey: a/b/c/d, secretKey: some-secret}]", "'a/b/c/d': The username has"),
        (
            "accounts: [{accessKey: one-shop, secretKey: some-secret, topicPerms: ['o*=PUB']}]",
            "'one-shop': 'o[*]' is a pattern",
        ),
        ("accounts: [{accessKey: one-shop}]", "secretKey: has at least 7"),
    ],
)
async def test_what_cannot_be_taken_over_refuses_the_start_and_nothing_is_written(
    tmp_path: Path, text: str, said: str
) -> None:
    match = pytest.RaisesExc(ConfigurationError, match=said)
    with pytest.RaisesGroup(match, allow_unwrapped=True, flatten_subgroups=True):
        async with open_desk(tmp_path, auth=config_of(tmp_path, text)):
            pass
    assert not (tmp_path / "config" / "users.json").exists()
    assert not (tmp_path / "config" / "acls.json").exists()
