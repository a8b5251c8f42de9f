"""Users and their rights, of RocketMQ 5.3 and later. Source: admin §4.6.

Each broker has users of its own, so changes are sent to every master and slave; brokers of one
supervisor share theirs, and take a repeated change for done. A name server that runs alone has them
too: it is named by its address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from aerobee.admin import AclEntry, User
from aerobee.client.steps.admin.brokers import Broker, ask, at_each, cluster_info, masters
from aerobee.client.steps.answers import body_of
from aerobee.errors import (
    AerobeeError,
    ConfigurationError,
    PermissionDeniedError,
    UnsupportedRequestError,
)
from aerobee.remoting.wire.bodies.auth import (
    AclInfo,
    AclTable,
    PolicyEntryInfo,
    PolicyInfo,
    UserInfo,
    UserTable,
)
from aerobee.remoting.wire.headers import auth as headers

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from aerobee.client.steps.admin.brokers import Exchange
    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.routes import Routes
    from aerobee.remoting.wire.bodies.body import Body
    from aerobee.remoting.wire.header import Header

B = TypeVar("B", bound="Body")

SUBJECT_PREFIX = "User:"
CUSTOM, DEFAULT = "Custom", "Default"


def targets(routes: Routes, broker: str | None) -> Steps[list[Broker]]:
    """The brokers to ask: every master, the one of a name, or the server at an address.

    Raises: BrokerNotFoundError, NoNameServerError.
    """
    if broker is not None and ":" in broker:
        return [Broker(broker, broker)]
    return (yield from masters(routes, broker=broker))


def change_all(
    routes: Routes,
    broker: str | None,
    header: Header,
    body: UserInfo | AclInfo | None = None,
    *,
    where_there: Header | None = None,
) -> Steps[None]:
    """Have every broker, or one, make a change: a right that is taken away where a broker answers
    is not kept by one that does not. Slaves make it too, as the next master has its own users;
    those that know no users are passed over.

    `where_there` is asked in place of a slave's refusal: it may have what is made, by itself or
    from a try before. Raises: as `at_each`, with a note that names the way to change a slave alone.
    """
    content = b"" if body is None else body.to_bytes()
    chosen = yield from targets(routes, broker)
    slaves = yield from slaves_of(routes, {master.name for master in chosen})

    def change(target: Broker) -> Steps[None]:
        try:
            yield from ask(routes, target, header, body=content)
        except UnsupportedRequestError:
            if target not in slaves:
                raise
        except PermissionDeniedError:
            if target not in slaves or where_there is None:
                raise
            yield from ask(routes, target, where_there, body=content)

    def noted(target: Broker) -> Steps[None]:
        try:
            yield from change(target)
        except AerobeeError as error:
            if target in slaves:
                error.add_note(f"{target.name} is a slave: `--broker {target.name}` is it alone")
            raise

    yield from at_each([*chosen, *slaves], noted)


def slaves_of(routes: Routes, names: Collection[str]) -> Steps[list[Broker]]:
    """The registered slaves of brokers with these names. Raises: NoNameServerError."""
    if all(":" in name for name in names):
        return []  # the server at an address may be a name server alone
    info = yield from cluster_info(routes)
    return [
        Broker(known.address, known.address, known.cluster)
        for known in info.brokers
        if not known.is_master and known.name in names and known.address not in routes.left_out
    ]


# ── Users ──


def users(routes: Routes, part: str | None = None, broker: str | None = None) -> Steps[list[User]]:
    """The users whose name contains `part`, of every broker or of one.

    Raises: UnsupportedRequestError where users are not known; PermissionDeniedError, BrokerError,
    TransportError.
    """
    accounts: list[User] = []
    for target in (yield from targets(routes, broker)):
        answered = yield from ask(routes, target, headers.ListUser(filter=part))
        accounts += [
            User(
                broker=target.name,
                name=info.username,
                is_super=info.user_type == "Super",
                enabled=info.user_status != "disable",
            )
            for info in listed(answered, "users", UserTable).users
        ]
    return accounts


def create_user(
    routes: Routes,
    name: str,
    secret: str,
    *,
    is_super: bool = False,
    broker: str | None = None,
) -> Steps[None]:
    """Create an enabled user on every broker, or on one.

    Raises: PermissionDeniedError, also where there is one of that name; BrokerError,
    TransportError.
    """
    kind = "Super" if is_super else "Normal"
    wanted = UserInfo(username=name, password=secret, user_type=kind, user_status="enable")
    update = headers.UpdateUser(username=name)
    yield from change_all(
        routes, broker, headers.CreateUser(username=name), wanted, where_there=update
    )


def change_user(
    routes: Routes,
    name: str,
    *,
    secret: str | None = None,
    is_super: bool | None = None,
    enabled: bool | None = None,
    broker: str | None = None,
) -> Steps[None]:
    """Change a user: what is not named stays. Open connections of the user end, where brokers are
    Aerobee's.

    Raises: PermissionDeniedError, also where there is none; BrokerError, TransportError.
    """
    if secret is None and is_super is None and enabled is None:
        raise ConfigurationError("name at least one of secret, is_super and enabled")
    wanted = UserInfo(
        username=name,
        password=secret,
        user_type=None if is_super is None else ("Normal", "Super")[is_super],
        user_status=None if enabled is None else ("disable", "enable")[enabled],
    )
    yield from change_all(routes, broker, headers.UpdateUser(username=name), wanted)


def delete_user(routes: Routes, name: str, broker: str | None = None) -> Steps[None]:
    """Delete a user and the user's rights; no error if there is none.

    Raises: PermissionDeniedError, BrokerError, TransportError.
    """
    yield from change_all(routes, broker, headers.DeleteUser(username=name))


# ── Rights ──


def acl(
    routes: Routes,
    user: str | None = None,
    resource: str | None = None,
    broker: str | None = None,
) -> Steps[list[AclEntry]]:
    """The rights of users: of all, or of one; on resources that contain a text.

    Raises: UnsupportedRequestError where users are not known; PermissionDeniedError, BrokerError,
    TransportError.
    """
    acl_entries: list[AclEntry] = []
    subject = None if user is None else SUBJECT_PREFIX + user
    for target in (yield from targets(routes, broker)):
        header = headers.ListAcl(subject_filter=subject, resource_filter=resource)
        answered = yield from ask(routes, target, header)
        for info in listed(answered, "acls", AclTable).acls:
            if subject in (None, info.subject):
                acl_entries += entries(target.name, info)
    return acl_entries


def entries(broker: str, info: AclInfo) -> Iterator[AclEntry]:
    """The entries of an ACL as public values."""
    for policy in info.policies or ():
        for entry in policy.entries or ():
            yield AclEntry(
                broker=broker,
                user=(info.subject or "").removeprefix(SUBJECT_PREFIX),
                resource=entry.resource or "",
                actions=tuple(entry.actions or ()),
                allow=entry.decision == "Allow",
                sources=tuple(entry.source_ips or ()),
                policy=policy.policy_type or CUSTOM,
            )


def grant(
    routes: Routes,
    user: str,
    resource: str,
    actions: Sequence[str],
    *,
    deny: bool = False,
    sources: Sequence[str] = (),
    default: bool = False,
    broker: str | None = None,
) -> Steps[None]:
    """Allow a user actions on a resource such as `Topic:orders`, `Group:billing*` or `Topic:*`,
    or `deny` them; an entry on the same resource is replaced.

    `sources`: addresses and networks for which it counts. `default`: in the policy that is asked
    last. Raises: PermissionDeniedError, also where there is no such user; BrokerError,
    TransportError.
    """
    if isinstance(actions, str) or not actions:
        raise ConfigurationError('actions is a list such as ["Pub", "Sub"]')
    entry = PolicyEntryInfo(
        resource=resource,
        actions=list(actions),
        source_ips=list(sources) or None,
        decision="Deny" if deny else "Allow",
    )
    policy = PolicyInfo(policy_type=DEFAULT if default else CUSTOM, entries=[entry])
    subject = SUBJECT_PREFIX + user
    acl = AclInfo(subject=subject, policies=[policy])
    yield from change_all(routes, broker, headers.UpdateAcl(subject=subject), acl)


def revoke(
    routes: Routes,
    user: str,
    resource: str | None = None,
    *,
    default: bool = False,
    broker: str | None = None,
) -> Steps[None]:
    """Delete the entry of a user on a resource, or all entries of the user.

    Raises: PermissionDeniedError, also where the user has none; BrokerError, TransportError.
    """
    header = headers.DeleteAcl(
        subject=SUBJECT_PREFIX + user,
        policy_type=DEFAULT if default else CUSTOM,
        resource=resource,
    )
    yield from change_all(routes, broker, header)


def listed(answered: Exchange, name: str, kind: type[B]) -> B:
    """The table whose member `name` is the list in a body; no body is an empty list.

    Raises: TransportError.
    """
    body = b'{"%b":%b}' % (name.encode(), bytes(answered.answer.body) or b"[]")
    return body_of(answered.ask, msgspec.structs.replace(answered.answer, body=body), kind)
