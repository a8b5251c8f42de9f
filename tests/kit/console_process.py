"""`aerobee console` as a process, and what it shows first."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.kit.console_client import ConsoleClient
from tests.kit.ports import free_port
from tests.kit.process import Child
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WITHIN_S = 60.0


@contextmanager
def alone(namesrv: str, folder: Path, **env: str) -> Iterator[ConsoleClient]:
    """A console for the cluster of a name server; it ends clean."""
    port = free_port()
    command = [sys.executable, "-m", "aerobee", "console", "-n", namesrv, "-p", str(port)]
    child = Child(command, log=folder / "console.log", env=dict(os.environ) | env)
    try:
        child.read_until("aerobee console ready at ", within_s=WITHIN_S)
        account = (env["AEROBEE_ACCESS_KEY"], env["AEROBEE_SECRET_KEY"]) if env else None
        yield ConsoleClient(port, account)
        assert child.stop(within_s=WITHIN_S) == 0
    finally:
        child.kill()


def known(console: ConsoleClient) -> list[dict[str, Any]]:
    """The brokers that it shows, as soon as it has asked them."""
    found = eventually(
        lambda: console.get("/brokers").value, within_s=WITHIN_S, what="the brokers are asked"
    )
    assert found is not None
    return list(found)
