"""The users of this broker: names, secrets, types, and whether they are enabled.

Users are never changed in place. A signature needs the secret itself, so the file has it, readable
by its owner only; no answer and no log line ever does. Source: semantics §18.3
(AuthenticationMetadataManagerImpl).
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from aerobee.broker.access.authority import Account
from aerobee.broker.errors import LimitReached, NoPermission, Refusal
from aerobee.broker.saved.documents import list_pieces, names_in
from aerobee.remoting.wire.bodies.auth import UserInfo, UserTable
from aerobee.remoting.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

E = TypeVar("E", bound=StrEnum)


NAME: Final = re.compile(r"[%|a-zA-Z0-9_.@-]{1,127}")
SECRET_MAX_CHARS: Final = 256
SUBJECT_PREFIX: Final = "User:"


class UserType(StrEnum):
    """SUPER may do everything, NORMAL what policies allow."""

    SUPER = "Super"
    NORMAL = "Normal"


class UserStatus(StrEnum):
    """Whether the user's requests are accepted at all."""

    ENABLE = "enable"
    DISABLE = "disable"


def is_super(user: UserInfo) -> bool:
    """Whether the user may do everything."""
    return user.user_type == UserType.SUPER


class Users:
    """All users, by name; at most `max_users` of them."""

    def __init__(self, max_users: Callable[[], int]) -> None:
        self._max_users = max_users
        self._users: dict[str, UserInfo] = {}
        self._accounts: dict[str, Account] = {}
        self.get: Callable[[str], UserInfo | None] = self._users.get
        self.account: Callable[[str], Account | None] = self._accounts.get
        """The enabled user of an access key."""

    def __len__(self) -> int:
        return len(self._users)

    def create(self, wanted: UserInfo) -> UserInfo:
        """Add a user; by default a normal one that is enabled. Raises: Refusal, LimitReached."""
        name = checked_name(wanted.username)
        if not (wanted.password or "").strip():
            raise NoPermission("password can not be blank")
        if name in self._users:
            raise NoPermission("The user is existed")
        if len(self._users) >= self._max_users():
            raise LimitReached("user", self._max_users(), "delete users, or raise maxUsers")
        user = UserInfo(
            username=name,
            password=checked_secret(wanted.password),
            user_type=type_of(wanted.user_type) or UserType.NORMAL,
            user_status=status_of(wanted.user_status) or UserStatus.ENABLE,
        )
        return self._put(user)

    def update(self, wanted: UserInfo) -> UserInfo:
        """Change what is given of a user. Raises: Refusal."""
        name = checked_name(wanted.username)
        user = self._users.get(name)
        if user is None:
            raise NoPermission("The user is not exist")
        return self._put(
            UserInfo(
                username=name,
                password=checked_secret(wanted.password) or user.password,
                user_type=type_of(wanted.user_type) or user.user_type,
                user_status=status_of(wanted.user_status) or user.user_status,
            )
        )

    def delete(self, name: str) -> bool:
        """Remove a user; whether there was one."""
        if self._users.pop(name, None) is None:
            return False
        self._accounts.pop(name, None)
        return True

    def everyone(self) -> dict[str, UserInfo]:
        """Name → user."""
        return dict(self._users)

    def is_there(self, wanted: UserInfo) -> bool:
        """Whether there is just the user that `create` would make. Raises: Refusal."""
        user = self._users.get(wanted.username)
        return user is not None and user == UserInfo(
            username=wanted.username,
            password=checked_secret(wanted.password),
            user_type=type_of(wanted.user_type) or UserType.NORMAL,
            user_status=status_of(wanted.user_status) or UserStatus.ENABLE,
        )

    def super_users(self) -> int:
        """How many enabled super users there are."""
        return sum(account.is_super for account in self._accounts.values())

    def listed(self, part: str | None) -> Iterator[UserInfo]:
        """The users whose name contains `part`, without their secrets."""
        for name in names_in(self._users):
            user = self._users.get(name)
            if user is not None and (not part or part in name):
                yield without_secret(user)

    def _put(self, user: UserInfo) -> UserInfo:
        name = user.username
        self._users[name] = user
        self._accounts.pop(name, None)
        if user.user_status == UserStatus.ENABLE:
            self._accounts[name] = Account(name, (user.password or "").encode(), is_super(user))
        return user

    # ── The file ──

    def load(self, document: Mapping[str, Any]) -> None:
        """Take the users of a file; none of them when one is not as it must be.

        Raises: ValueError, without a secret in its text.
        """
        self.prepared(document)()

    def prepared(self, document: Mapping[str, Any]) -> Callable[[], None]:
        """The last step of `load`, which takes them and cannot fail. Raises: as it does."""
        users: dict[str, UserInfo] = {}
        for number, user in enumerate(UserTable.from_document(document).users):
            try:
                name = checked_name(user.username)
                secret, kind = checked_secret(user.password), type_of(user.user_type)
                status = status_of(user.user_status)
            except Refusal as error:
                raise ValueError(f"users[{number}]: {error.remark}") from None
            if not secret or not kind or not status or name in users:
                raise ValueError(f"users[{number}]: {name} is incomplete, or there twice")
            users[name] = msgspec.structs.replace(user, user_type=kind, user_status=status)
        return partial(self._take, users)

    def _take(self, users: Mapping[str, UserInfo]) -> None:
        self._users.clear()
        self._accounts.clear()
        for user in users.values():
            self._put(user)

    def pieces(self) -> Iterator[bytes]:
        """The content of the file."""
        return list_pieces("users", list(self._users.values()))


# ── What may be written ──


def without_secret(user: UserInfo) -> UserInfo:
    """The user as answers show it."""
    return msgspec.structs.replace(user, password=None)


def checked_name(name: str | None) -> str:
    """A legal user name. Raises: Refusal; its text is the Java broker's for a blank one."""
    if not (name or "").strip():
        raise Refusal(ResponseCode.INVALID_PARAMETER, "The username is blank")
    assert name is not None
    if not NAME.fullmatch(name):
        raise Refusal(
            ResponseCode.INVALID_PARAMETER,
            "The username has illegal characters or more than 127: letters, digits and %|_.@- are"
            " allowed",
        )
    return name


def checked_secret(secret: str | None) -> str | None:
    """A secret that can be typed; None without one. Raises: Refusal."""
    if not (secret or "").strip():
        return None
    assert secret is not None
    if len(secret) > SECRET_MAX_CHARS or not secret.isprintable() or secret != secret.strip():
        raise Refusal(
            ResponseCode.INVALID_PARAMETER,
            f"The password has control characters, blanks at an end, or more than"
            f" {SECRET_MAX_CHARS} characters",
        )
    return secret


def type_of(text: str | None) -> UserType | None:
    """The type that a request names, in any case. Raises: Refusal."""
    return member(UserType, "userType", text)


def status_of(text: str | None) -> UserStatus | None:
    """The status that a request names, in any case. Raises: Refusal."""
    return member(UserStatus, "userStatus", text)


def member(kind: type[E], field: str, text: str | None) -> E | None:
    """The member of an enum; None for no text. The Java broker takes its default for a typo."""
    if not text:
        return None
    for value in kind:
        if value.lower() == text.strip().lower():
            return value
    known = ", ".join(kind)
    raise Refusal(ResponseCode.INVALID_PARAMETER, f"The {field} {text!r:.40} is unknown: {known}")
