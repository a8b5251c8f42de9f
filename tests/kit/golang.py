"""Programs in Go with a real client, each built once from its folder below `tests/interop`.

Their modules come by the Go module proxy, as pinned in go.mod and go.sum. Where Go or the network
is missing the test is skipped with the reason; with AEROBEE_CI=1 it fails.
"""

import functools
import hashlib
import os
import shutil
from pathlib import Path

from tests.kit.java import CACHE, run_tool, unavailable
from tests.kit.piped_member import PipedMember

INTEROP = Path(__file__).parents[1] / "interop"
BUILD_WITHIN_S = 600


@functools.cache
def program(folder: str = "go") -> Path:
    """The program of a folder, built; skips where that cannot be."""
    sources = INTEROP / folder
    if shutil.which("go") is None:
        unavailable("go is not installed")
    content = hashlib.sha256(b"".join(one.read_bytes() for one in sorted(sources.iterdir())))
    built = CACHE.with_name("go") / f"{folder}-{content.hexdigest()[:16]}"
    if not built.exists():
        built.parent.mkdir(parents=True, exist_ok=True)
        half = built.with_suffix(f".{os.getpid()}.part")
        run_tool(["go", "build", "-o", str(half), "."], BUILD_WITHIN_S, at=sources)
        half.rename(built)
    return built


class GoMember(PipedMember):
    """One running member; `instance` is a part of its client id.

    `given`, with blanks between: the queues of CONFIG as `topic/broker/id`, or the rooms
    of MACHINE_ROOM. `strategy` PRODUCER makes it a producer that sends what is given. `account`:
    access key and secret key.
    """

    def __init__(
        self,
        home: Path,
        namesrv: str,
        group: str,
        topic: str,
        *,
        strategy: str,
        instance: str,
        given: str,
        account: tuple[str, str] = ("", ""),
    ) -> None:
        command = [str(program()), namesrv, group, topic, strategy, instance, given, *account]
        super().__init__(command, home / f"{instance}.log")
