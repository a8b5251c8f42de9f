"""The ACLs of all users: entries by user, policy and resource, and their compiled policies.

Of one policy each resource has one entry; a new one takes its place. Source: semantics §18.3
(AuthorizationMetadataManagerImpl, Acl, Policy).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from aerobee.broker.access.policies import (
    PolicyType,
    checked_entry,
    compiled_policies,
    policy_type_of,
)
from aerobee.broker.errors import LimitReached, NoPermission, Refusal
from aerobee.broker.saved.documents import list_pieces, names_in
from aerobee.broker.users.users import SUBJECT_PREFIX, checked_name
from aerobee.remoting.wire.bodies.auth import AclInfo, AclTable, PolicyInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    from aerobee.broker.access.policies import Acl, Policy


ENTRIES_OF_USER_MAX: Final = 1_000
"""Entries of one user: compiling them takes a few milliseconds, in one step."""


def user_of(subject: str | None) -> str:
    """The user name of a subject such as `User:alice`; its type is read in any case.

    Raises: NoPermission, Refusal.
    """
    kind, name = (subject or "")[: len(SUBJECT_PREFIX)], (subject or "")[len(SUBJECT_PREFIX) :]
    if kind.lower() != SUBJECT_PREFIX.lower():
        raise NoPermission("The subject is null.")
    return checked_name(name)


class Acls:
    """All ACLs, by user name; at most `max_entries` entries in all."""

    def __init__(self, max_entries: Callable[[], int]) -> None:
        self._max_entries = max_entries
        self._acls: dict[str, Acl] = {}
        self._compiled: dict[str, list[Policy]] = {}
        self.entries = 0
        """How many there are in all."""

    # ── With every request ──

    def policies(self, name: str) -> list[Policy]:
        """The policies of a user, in the order in which they are asked."""
        policies = self._compiled.get(name)
        if policies is None:
            acl = self._acls.get(name)
            if acl is None:
                return []
            policies = self._compiled[name] = compiled_policies(acl)
        return policies

    # ── Changes ──

    def update(self, name: str, new: Acl) -> bool:
        """Add `checked` entries to the ACL of a user, all or none.

        Returns whether that may have taken a right away: an entry was replaced, or denies.
        Raises: LimitReached.
        """
        before = self._acls.get(name, {})
        acl = {kind: {**before.get(kind, {}), **new.get(kind, {})} for kind in PolicyType}
        size, size_before = size_of(acl), size_of(before)
        if size > max(ENTRIES_OF_USER_MAX, size_before):
            remedy = "use prefixes, or delete entries"
            raise LimitReached("ACL entry of this user", ENTRIES_OF_USER_MAX, remedy)
        if size > size_before and self.entries + size - size_before > self._max_entries():
            remedy = "delete entries, or raise maxAclEntries"
            raise LimitReached("ACL entry", self._max_entries(), remedy)
        self._put(name, acl)
        return any(
            entry.decision != "Allow" or entry != before.get(kind, {}).get(resource, entry)
            for kind, entries in new.items()
            for resource, entry in entries.items()
        )

    def delete(self, name: str, policy: PolicyType, resource: str | None) -> None:
        """Remove the entry of a resource, or without one the whole ACL. Raises: NoPermission."""
        acl = self._acls.get(name)
        if acl is None:
            raise NoPermission("The acl is not exist.")
        left = {kind: dict(entries) for kind, entries in acl.items()}
        if resource is not None:
            left.get(policy, {}).pop(resource, None)
        self._put(name, left if resource is not None else {})

    def everyone(self) -> dict[str, Acl]:
        """User → ACL."""
        return dict(self._acls)

    def forget(self, name: str) -> bool:
        """Remove the ACL of a user that is gone, or new; whether there was one."""
        there = name in self._acls
        if there:
            self._put(name, {})
        return there

    def _put(self, name: str, acl: Acl) -> None:
        acl = {kind: entries for kind, entries in acl.items() if entries}
        self.entries += size_of(acl) - size_of(self._acls.pop(name, {}))
        self._compiled.pop(name, None)
        if acl:
            self._acls[name] = acl

    # ── Lists ──

    def get(self, name: str) -> AclInfo | None:
        """The ACL of a user; None without one."""
        acl = self._acls.get(name)
        return None if acl is None else info_of(name, acl)

    def listed(self, subject: str | None, resource: str | None) -> Iterator[AclInfo | None]:
        """The ACLs whose subject contains one text, with the entries whose resource contains the
        other. None for an ACL that was searched and has no such entry: that takes as long.
        """
        for name in names_in(self._acls):
            if subject and subject not in SUBJECT_PREFIX + name:
                continue
            acl = self._acls.get(name, {})
            if resource:
                acl = {
                    kind: {text: entry for text, entry in entries.items() if resource in text}
                    for kind, entries in acl.items()
                }
            yield info_of(name, acl) if size_of(acl) else None

    # ── The file ──

    def load(self, document: Mapping[str, Any]) -> None:
        """Take the ACLs of a file; none of them when one is not as it must be. Raises:
        ValueError.
        """
        self.prepared(document)()

    def prepared(self, document: Mapping[str, Any]) -> Callable[[], None]:
        """The last step of `load`, which takes them and cannot fail. Raises: ValueError."""
        acls: dict[str, Acl] = {}
        for number, info in enumerate(AclTable.from_document(document).acls):
            try:
                name = user_of(info.subject)
                steps = checked(info)
                while True:
                    next(steps)
            except StopIteration as end:
                acls[name] = end.value
            except Refusal as error:
                raise ValueError(f"acls[{number}]: {error.remark}") from None
        return partial(self._take, acls)

    def _take(self, acls: dict[str, Acl]) -> None:
        self._acls = acls
        self._compiled = {}
        self.entries = sum(map(size_of, acls.values()))

    def pieces(self) -> Iterator[bytes]:
        """The content of the file."""
        # An ACL is never changed in place.
        acls = list(self._acls.items())
        return list_pieces("acls", (info_of(name, acl) for name, acl in acls))


def checked(wanted: AclInfo) -> Generator[None, None, Acl]:
    """The entries of a request, checked, in steps. Raises: NoPermission, Refusal."""
    acl: Acl = {}
    for policy in wanted.policies or ():
        entries = acl.setdefault(policy_type_of(policy.policy_type), {})
        for number, entry in enumerate(policy.entries or ()):
            if number % 16 == 0:
                yield
            right = checked_entry(entry)
            assert right.resource is not None
            entries[right.resource] = right
    if not size_of(acl):
        raise NoPermission("The policies is empty.")
    return acl


def size_of(acl: Acl) -> int:
    """How many entries an ACL has."""
    return sum(map(len, acl.values()))


def info_of(name: str, acl: Acl) -> AclInfo:
    """The ACL as bodies and the file have it."""
    policies = [
        PolicyInfo(policy_type=kind, entries=list(entries.values()))
        for kind, entries in acl.items()
        if entries
    ]
    return AclInfo(subject=SUBJECT_PREFIX + name, policies=policies)
