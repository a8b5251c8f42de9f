"""Reads the text of a `plain_acl.yml`. Every problem is named with its line and field.

RocketMQ drops what it cannot read; here a mistake in a file of rights is an error, except for the
text of a permission that it does not know, which means DENY in both and is reported.
Source: semantics §18.2 (PlainAccessData).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

import yaml

from aerobee.broker.access.white_addresses import WhiteAddresses
from aerobee.broker.config.files.entries import ConfigurationError
from aerobee.broker.config.files.yaml_file import is_null, location, root_of
from aerobee.broker.users.plain_acl import DENY, Perm, PlainAccount

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

ROOT: Final = ("globalWhiteRemoteAddresses", "accounts", "dataVersion")
ACCOUNT: Final = (
    "accessKey",
    "secretKey",
    "whiteRemoteAddress",
    "admin",
    "defaultTopicPerm",
    "defaultGroupPerm",
    "topicPerms",
    "groupPerms",
)
KEY_CHARS_MIN: Final = 7
PERMS: Final = {
    "DENY": DENY,
    "PUB": Perm.PUB,
    "SUB": Perm.SUB,
    "PUB|SUB": Perm.PUB | Perm.SUB,
    "SUB|PUB": Perm.PUB | Perm.SUB,
}
PLAIN_NUMBER: Final = re.compile(r"0|[1-9][0-9]*", re.ASCII)
TRUE, FALSE = ("true", "yes", "on"), ("false", "no", "off", "")

Fields = dict[str, yaml.Node]


@dataclass(slots=True)
class AclText:
    """The accounts of one file. `places`: where each account stands."""

    file: str
    accounts: list[PlainAccount] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    white: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def problem(self, node: yaml.Node, name: str, text: str) -> None:
        """Note a problem of a field."""
        self.problems.append(f"{location(node, self.file)}: {name}: {text}")

    def warn_of_everyone(self) -> None:
        """Note where every address is let in without a signature."""
        if WhiteAddresses(self.white).everyone:
            opens = "globalWhiteRemoteAddresses lets every address in, without an account"
            self.warnings.append(f"{self.file}: {opens}")
        for account, place in zip(self.accounts, self.places, strict=True):
            if account.white.everyone:
                opens = f"whiteRemoteAddress lets every address be {account.access_key}"
                self.warnings.append(f"{place}: {opens}, without a signature")


def read_acl(content: bytes, file: str) -> AclText:
    """The content of a file, with all its problems."""
    acl = AclText(file)
    try:
        root = root_of(content, file)
    except ConfigurationError as error:
        acl.problems += error.problems
        return acl
    if root is None:
        return acl
    fields = fields_of(root, ROOT, acl)
    for node in items(fields, "globalWhiteRemoteAddresses", acl):
        address = text_of(node, "globalWhiteRemoteAddresses", acl)
        if are_addresses(node, "globalWhiteRemoteAddresses", address, acl):
            acl.white.append(address)
    for node in items(fields, "accounts", acl):
        if isinstance(node, yaml.MappingNode):
            read_account(node, acl)
        else:
            acl.problem(node, "accounts", "an account has fields, such as accessKey: name")
    acl.warn_of_everyone()
    return acl


def read_account(node: yaml.MappingNode, acl: AclText) -> None:
    """Add an account, or its problems."""
    before = len(acl.problems)
    fields = fields_of(node, ACCOUNT, acl)

    def text(name: str) -> str:
        return text_of(fields[name], name, acl) if name in fields else ""

    for name in ("accessKey", "secretKey"):
        if len(text(name)) < KEY_CHARS_MIN:
            place = fields.get(name, node)
            acl.problem(place, name, f"has at least {KEY_CHARS_MIN} characters in RocketMQ")
    white = text("whiteRemoteAddress")
    if white:
        are_addresses(fields["whiteRemoteAddress"], "whiteRemoteAddress", white, acl)
    admin = text("admin").lower()
    if admin not in TRUE + FALSE:
        acl.problem(fields["admin"], "admin", "is true or false")
    topics = listed_perms(fields, "topicPerms", acl)
    groups = listed_perms(fields, "groupPerms", acl)
    defaults = [
        default_perm(fields, name, acl) for name in ("defaultTopicPerm", "defaultGroupPerm")
    ]
    if len(acl.problems) > before:
        return
    acl.places.append(location(node, acl.file))
    acl.accounts.append(
        PlainAccount(
            access_key=text("accessKey"),
            secret=text("secretKey").encode(),
            white=WhiteAddresses([white]),
            admin=admin in TRUE,
            default_topic=defaults[0],
            default_group=defaults[1],
            topics=topics,
            groups=groups,
        )
    )


def fields_of(node: yaml.MappingNode, known: Collection[str], acl: AclText) -> Fields:
    """The fields that have a value, by name."""
    fields: Fields = {}
    for name, value in node.value:
        text = name.value if isinstance(name, yaml.ScalarNode) else "?"
        if text not in known:
            near = get_close_matches(text, known, 1)
            hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"
            acl.problem(name, text, f"no such field{hint}")
        elif text in fields:
            acl.problem(name, text, "is there twice")
        elif not is_null(value):
            fields[text] = value
    return fields


def items(fields: Fields, name: str, acl: AclText) -> Iterator[yaml.Node]:
    """The items of a list."""
    node = fields.get(name)
    if isinstance(node, yaml.SequenceNode):
        yield from node.value
    elif node is not None and not is_empty(node):
        acl.problem(node, name, "is a list: one line `- …` for each")


def is_empty(node: yaml.Node) -> bool:
    """Whether the node is an empty text."""
    return isinstance(node, yaml.ScalarNode) and not node.value


def text_of(node: yaml.Node, name: str, acl: AclText) -> str:
    """A text. Numbers are texts too, if they read the same as numbers."""
    if not isinstance(node, yaml.ScalarNode):
        acl.problem(node, name, "is one value")
        return ""
    kind, text = node.tag.rpartition(":")[2], node.value.strip()
    plain = kind in ("str", "null") or (kind == "int" and PLAIN_NUMBER.fullmatch(text))
    if not plain and name != "admin":
        acl.problem(node, name, "looks like a number, a date or a switch: put it in quotes")
    return "" if kind == "null" else text


def are_addresses(node: yaml.Node, name: str, text: str, acl: AclText) -> bool:
    """Whether a text has the form of addresses."""
    try:
        WhiteAddresses([text])
    except ValueError as error:
        acl.problem(node, name, str(error))
        return False
    return True


def default_perm(fields: Fields, name: str, acl: AclText) -> Perm:
    """A default right; none is DENY."""
    node = fields.get(name)
    return DENY if node is None else perm(text_of(node, name, acl), node, name, acl)


def listed_perms(fields: Fields, name: str, acl: AclText) -> dict[str, Perm]:
    """Name → right, of a list of texts like `orders=PUB|SUB`."""
    perms: dict[str, Perm] = {}
    for node in items(fields, name, acl):
        resource, equals, right = text_of(node, name, acl).partition("=")
        if not equals or not resource.strip():
            acl.problem(node, name, "has the form name=PUB|SUB")
            continue
        perms[resource.strip()] = perm(right, node, name, acl)
    return perms


def perm(text: str, node: yaml.Node, name: str, acl: AclText) -> Perm:
    """The right that a text means; one that RocketMQ does not know means DENY."""
    right = PERMS.get(text.strip())
    if right is None:
        place = location(node, acl.file)
        acl.warnings.append(
            f"{place}: {name}: {text.strip()!r} is none of {', '.join(PERMS)}: it means DENY"
        )
        return DENY
    return right
