"""Clients in Node: the real ones, installed once from `tests/interop/node` and `node5`.

Its packages come by npm, as pinned in package-lock.json. Where Node, npm or the network is missing
the test is skipped with the reason; with AEROBEE_CI=1 it fails.
"""

import fcntl
import functools
import hashlib
import shutil
from pathlib import Path

from tests.kit.java import CACHE, run_tool, unavailable
from tests.kit.piped_member import PipedMember

INTEROP = Path(__file__).parents[1] / "interop"
INSTALL = ("npm", "ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund")
INSTALL_WITHIN_S = 300


@functools.cache
def program(name: str = "member.js", *, folder: str = "node") -> Path:
    """A program of a folder of `tests/interop`, beside its packages; skips where that cannot be."""
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            unavailable(f"{tool} is not installed")
    files = [INTEROP / folder / one for one in (name, "package.json", "package-lock.json")]
    content = hashlib.sha256(b"".join(one.read_bytes() for one in files)).hexdigest()
    installed = CACHE.with_name("node") / f"{Path(name).stem}-{content[:16]}"
    installed.parent.mkdir(parents=True, exist_ok=True)
    with (installed.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not installed.exists():
            half = installed.with_suffix(".part")
            shutil.rmtree(half, ignore_errors=True)
            half.mkdir()
            for one in files:
                shutil.copy(one, half)
            run_tool(INSTALL, INSTALL_WITHIN_S, at=half)
            half.rename(installed)
    return installed / name


class NodeMember(PipedMember):
    """One running member, which shares by AVG; `instance` is a part of its client id."""

    def __init__(self, home: Path, namesrv: str, group: str, topic: str, *, instance: str) -> None:
        command = ["node", str(program()), namesrv, group, topic, instance]
        super().__init__(command, home / f"{instance}.log")

    def send(self, topic: str, body: str, *, tag: str, key: str) -> None:
        """Have it send a message; nothing waits for the answer."""
        self.child.write_line(f"{topic} {body} {tag} {key}")
