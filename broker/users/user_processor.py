"""Administration of users and ACLs: codes 3001 to 3010.

A change is answered when it is on disk. Super users are changed by super users only, and one that
is enabled always remains. No answer contains a secret. Source: admin §4.6 (AdminBrokerProcessor).
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

import msgspec

from aerobee.broker.access.policies import checked_resource, policy_type_of
from aerobee.broker.changes import ChangeAnswer, change
from aerobee.broker.core.lists import encoded, size_with
from aerobee.broker.errors import NoPermission, Refusal
from aerobee.broker.users.acls import checked, user_of
from aerobee.broker.users.users import (
    UserStatus,
    UserType,
    checked_name,
    is_super,
    status_of,
    type_of,
    without_secret,
)
from aerobee.remoting.server.routes import PendingAnswer
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.bodies.auth import AclInfo, UserInfo
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.request_signature import ACCESS_KEY

if TYPE_CHECKING:
    from aerobee.broker.saved.save import SavedTable
    from aerobee.broker.users.acl_files import CutOff
    from aerobee.broker.users.acls import Acls
    from aerobee.broker.users.users import Users
    from aerobee.remoting.server.caller import Caller
    from aerobee.remoting.server.routes import Outcome, Steps
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.headers import auth as headers

DONE: Final = Answer()
NONE: Final = b"[]"
OFF: Final = (
    " request type {} not supported: while authenticationEnabled is false, users are prepared from"
    " the broker's own host"
)


class UserProcessor:
    """The handlers. `enabled`: whether users count; else they are prepared. `cut_off` ends the
    connections of a user whose rights shrink, with the requests that are held for them.
    """

    def __init__(
        self,
        users: Users,
        acls: Acls,
        *,
        users_file: SavedTable,
        acls_file: SavedTable,
        enabled: bool,
        shared: bool,
        cut_off: CutOff,
    ) -> None:
        """`shared`: another broker may have made a change already, which is no error then."""
        self._users = users
        self._acls = acls
        self._users_file = users_file
        self._acls_file = acls_file
        self._enabled = enabled
        self.unread = ""
        """Why the files could not be read; a broker that needs them does not start then."""
        self._shared = shared
        self._cut_off = cut_off

    # ── Users ──

    def create_user(
        self, header: headers.CreateUser, command: Command, connection: Caller
    ) -> Outcome:
        """AUTH_CREATE_USER."""
        wanted = self._wanted(header.username, command, connection)
        if type_of(wanted.user_type) is UserType.SUPER:
            self._check_super(command, "create", ResponseCode.SYSTEM_ERROR)
        if self._shared and self._users.is_there(wanted):
            return DONE
        # Rights that a user of this name once had are not for the new one.
        user = self._users.create(wanted)
        stale = self._acls.forget(user.username)
        return self._saved(change(user.username, None, user), acls=stale)

    def update_user(
        self, header: headers.UpdateUser, command: Command, connection: Caller
    ) -> Outcome:
        """AUTH_UPDATE_USER: changes what the body has."""
        wanted = self._wanted(header.username, command, connection)
        if type_of(wanted.user_type) is UserType.SUPER:
            self._check_super(command, "update", ResponseCode.SYSTEM_ERROR)
        before = self._users.get(wanted.username)
        if before is not None and is_super(before):
            self._check_super(command, "update", ResponseCode.NO_PERMISSION)
            demoted = type_of(wanted.user_type) is UserType.NORMAL
            if demoted or status_of(wanted.user_status) is UserStatus.DISABLE:
                self._check_another(before)
        after = self._users.update(wanted)
        cut_off = wanted.username if after != before else ""
        answer = change(after.username, before, after)
        return self._saved(answer, cut_off=cut_off, asking=connection)

    def delete_user(
        self, header: headers.DeleteUser, command: Command, connection: Caller
    ) -> Outcome:
        """AUTH_DELETE_USER: the user, and the policies; an unknown one is no error."""
        self._check_door(command, connection)
        if not (header.username or "").strip():
            raise NoPermission("username can not be blank")
        name = checked_name(header.username)
        before = self._users.get(name)
        if before is not None and is_super(before):
            self._check_super(command, "update", ResponseCode.NO_PERMISSION)
            self._check_another(before)
        self._users.delete(name)
        answer = change(name, before, None)
        return self._saved(answer, acls=self._acls.forget(name), cut_off=name, asking=connection)

    def user(self, header: headers.GetUser, command: Command, connection: Caller) -> Answer:
        """AUTH_GET_USER: no body for an unknown one."""
        self._check_door(command, connection)
        user = self._users.get(checked_name(header.username))
        return DONE if user is None else Answer(body=without_secret(user).to_bytes())

    def list_users(self, header: headers.ListUser, command: Command, connection: Caller) -> Steps:
        """AUTH_LIST_USER: no body when there is none."""
        self._check_door(command, connection)
        body = yield from encoded(self._users.listed(header.filter))
        return DONE if body == NONE else Answer(body=body)

    def _wanted(self, name: str | None, command: Command, connection: Caller) -> UserInfo:
        self._check_door(command, connection)
        name = checked_name(name)
        return msgspec.structs.replace(UserInfo.from_client(command.body), username=name)

    def _check_super(self, command: Command, what: str, code: int) -> None:
        if not self._enabled:
            return
        asking = self._users.account(command.ext_fields().get(ACCESS_KEY, ""))
        if asking is None or not asking.is_super:
            raise Refusal(code, f"The super user can only be {what} by super user")

    def _check_another(self, user: UserInfo) -> None:
        if user.user_status == UserStatus.ENABLE and self._users.super_users() == 1:
            raise NoPermission(
                f"{user.username} is the last enabled super user; create another one first"
            )

    # ── ACLs ──

    def update_acl(
        self,
        header: headers.CreateAcl | headers.UpdateAcl,
        command: Command,
        connection: Caller,
    ) -> Steps:
        """AUTH_CREATE_ACL, AUTH_UPDATE_ACL: adds entries, each in place of the one on its
        resource.
        """
        self._check_door(command, connection)
        wanted = AclInfo.from_client(command.body)
        if not wanted.policies:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "The body of acl is null")
        name = user_of(wanted.subject or header.subject)
        if header.subject and user_of(header.subject) != name:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER, "The subjects of header and body are different"
            )
        new = yield from checked(wanted)
        # Behind the steps: no rights are left to a user that was deleted meanwhile.
        if self._users.get(name) is None:
            raise NoPermission(f"The subject of User:{name} is not exist.")
        before = rights_of(self._acls.get(name))
        less = self._acls.update(name, new)
        answer = change(name, before, rights_of(self._acls.get(name)), hides=False)
        cut_off = name if less else ""
        return self._saved(answer, users=False, acls=True, cut_off=cut_off, asking=connection)

    def delete_acl(
        self, header: headers.DeleteAcl, command: Command, connection: Caller
    ) -> Outcome:
        """AUTH_DELETE_ACL: the entry on a resource, or without one the whole ACL."""
        name = self._known(header.subject, command, connection)
        policy = policy_type_of(header.policy_type)
        resource = checked_resource(header.resource) if header.resource else None
        if self._shared and self._acls.get(name) is None:
            return DONE
        before = rights_of(self._acls.get(name))
        self._acls.delete(name, policy, resource)
        answer = change(name, before, rights_of(self._acls.get(name)), hides=False)
        return self._saved(answer, users=False, acls=True, cut_off=name, asking=connection)

    def acl(self, header: headers.GetAcl, command: Command, connection: Caller) -> Answer:
        """AUTH_GET_ACL: no body without policies."""
        acl = self._acls.get(self._known(header.subject, command, connection))
        return DONE if acl is None else Answer(body=acl.to_bytes())

    def list_acls(self, header: headers.ListAcl, command: Command, connection: Caller) -> Steps:
        """AUTH_LIST_ACL: no body when there is none."""
        self._check_door(command, connection)
        text = bytearray()
        for acl in self._acls.listed(header.subject_filter, header.resource_filter):
            if acl is not None:
                piece = acl.to_bytes()
                size_with(len(text), piece)
                text += b"," if text else b"["
                text += piece
            yield
        # Not copied: 15 MiB take longer than a step may.
        return Answer(body=(memoryview(text), b"]")) if text else DONE

    def _known(self, subject: str | None, command: Command, connection: Caller) -> str:
        self._check_door(command, connection)
        name = user_of(subject)
        if self._users.get(name) is None:
            raise NoPermission("The subject is not exist.")
        return name

    # ── Both ──

    def _check_door(self, command: Command, connection: Caller) -> None:
        """While users do not count yet, this host alone sees and prepares them. Raises: Refusal."""
        if self._enabled:
            return
        if not ip_address(connection.host[:-4]).is_loopback:
            code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            raise Refusal(code, OFF.format(command.code))
        if self.unread:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"the users cannot be read: {self.unread}")

    def _saved(
        self,
        changes: str,
        *,
        users: bool = True,
        acls: bool = False,
        cut_off: str = "",
        asking: object = None,
    ) -> PendingAnswer:
        """The answer, when both tables are on disk, and no connection serves a user whose rights
        have shrunk, but the one that asked. Its work raises: Refusal.
        """

        async def saved() -> Answer:
            if cut_off:
                await self._cut_off(
                    lambda connection: cut_off in connection.accounts and connection is not asking
                )
            try:
                # The rights of a deleted user go first: after a crash between the two the user is
                # left without any.
                if acls:
                    await self._acls_file.save()
                if users:
                    await self._users_file.save()
            except OSError as error:
                raise Refusal(
                    ResponseCode.SYSTEM_ERROR,
                    f"the change is in force but could not be saved: {error.strerror or error}",
                ) from error
            return ChangeAnswer(changes=changes)

        # However late: the change has been made.
        return PendingAnswer(saved())


def rights_of(acl: AclInfo | None) -> dict[str, str]:
    """The rights of an ACL on each resource, for the audit log."""
    policies = (acl.policies if acl is not None else None) or ()
    return {
        f"{policy.policy_type}/{entry.resource}": " ".join(
            (
                entry.decision or "",
                ",".join(entry.actions or ()),
                *(f"from {','.join(ips)}" for ips in (entry.source_ips,) if ips),
            )
        )
        for policy in policies
        for entry in policy.entries or ()
    }
