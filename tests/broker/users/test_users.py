"""There are so many users; of 100,000 neither a list nor a save keeps the loop for 10 ms."""

from __future__ import annotations

import gc
import random
from functools import partial
from time import thread_time
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.broker.config.settings.auth import AuthConfig
from aerobee.broker.errors import LimitReached
from aerobee.broker.users.users import Users
from aerobee.remoting.wire.bodies.auth import UserInfo
from aerobee.remoting.wire.headers import auth
from tests.broker.desk import open_desk
from tests.kit.health import slowness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

USERS = 100_000
STEP_MS = 10.0
TRIES = 5
"""The CPU clock of a virtual machine jumps now and then: one run without a jump is enough."""


def fill(directory: Any) -> None:
    """Take both files, in an order that no sort has seen."""
    names = [f"user-{number:06}" for number in range(USERS)]
    random.Random(7).shuffle(names)
    user = {"password": "a-secret", "userType": "Normal", "userStatus": "enable"}
    directory.users.load({"users": [user | {"username": name} for name in names]})
    entry = {"resource": "Topic:o", "actions": ["Pub"], "decision": "Allow"}
    policies = [{"entries": [entry]}]
    acls = [{"subject": f"User:{name}", "policies": policies} for name in names]
    directory.acls.load({"acls": acls})


def is_quick(begin: Callable[[], Iterator[Any]]) -> bool:
    """Whether no step takes longer than it may."""
    return any(longest_ms(begin()) < STEP_MS * slowness() for _ in range(TRIES))


def longest_ms(steps: Iterator[Any]) -> float:
    """CPU time of the longest step."""
    longest, ended = 0.0, False
    while not ended:
        began = thread_time()
        try:
            next(steps)
        except StopIteration:
            ended = True
        longest = max(longest, (thread_time() - began) * 1_000)
    return longest


def test_there_are_so_many_users_and_no_more() -> None:
    users = Users(lambda: 2)
    for name in ("a", "b"):
        users.create(UserInfo(username=name, password="a-secret"))
    with pytest.raises(LimitReached, match="raise maxUsers"):
        users.create(UserInfo(username="c", password="a-secret"))
    users.delete("a")
    users.create(UserInfo(username="c", password="a-secret"))


@pytest.mark.trio
async def test_lists_and_saves_of_many_users_and_policies_take_turns(tmp_path: Path) -> None:
    config = AuthConfig(authentication_enabled=True, max_users=USERS)
    async with open_desk(tmp_path, auth=config) as desk:
        directory = desk.broker.users.directory
        gc.disable()
        try:
            fill(directory)
            for header in (auth.ListUser(), auth.ListUser(filter="r-00"), auth.ListAcl()):
                assert is_quick(partial(desk.begin, header, by="root")), header
            assert is_quick(directory.users.pieces)
            assert is_quick(directory.acls.pieces)
        finally:
            gc.enable()
