"""The worth, or the cost, of each parameter: a broker with it and one without, in alternating
turns.

    python -m bench.tuning [--only WORDS] [--runs 5] [--seconds 2] [--kernel] [--set key=value]…

A parameter is a setting (those of TLS and access control too, and with `--set` any others), what
the client does differently, or, with `--kernel` and as root, a setting of the kernel, which is put
back. Prints a table: what is without and what is with
it, and their ratio; medians of rate and p99, and CPU per message of the best turn, which other work
on the machine disturbs least.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from aerobee.cli.certs import make
from bench.arguments import chosen, positive, program, setting, whole
from bench.beside_java.figures import Row, number
from bench.beside_java.sides import DEFAULTS, Plan, Side, take_turns
from bench.load import SENDS, Case, build, load
from bench.machine import describe
from tests.kit.broker_process import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bench.beside_java.figures import Turn

PIPELINED = ("-m", "produce", "-c", "8", "-d", "32", "-s", "128")
LARGE = ("-m", "produce", "-c", "64", "-d", "1", "-s", "1024")
BATCHES = ("-m", "batch", "-c", "8", "-d", "4", "-s", "128")
PULLS = ("-m", "pull", "-c", "16", "-d", "1")
PACE = ("-pace", "-c", "256")
MiB = 1 << 20
NAME, SECRET = "bench-user", "bench-secret"
SIGNED = ("-user", NAME, "-secret", SECRET)
ACL = {"aclEnable": True}
USERS = {
    "authenticationEnabled": True,
    "authorizationEnabled": True,
    "initAuthenticationUser": f'{{"username":"bench-admin","password":"{SECRET}"}}',
    "migrateAuthFromV1Enabled": True,
}
ACCOUNTS = f"""\
accounts:
- accessKey: {NAME}
  secretKey: {SECRET}
  topicPerms: [BenchmarkTest=PUB|SUB]
  groupPerms: [rawload=SUB]
"""
"""The account that signs, for either kind of access control."""
WITHOUT, WITH = "without", "with"
WARM_UP_S = 1.0
HEAD = """\
| parameter | msgs/s | ratio | p99 ms | ratio | µs/msg at best | ratio |
|---|---|---|---|---|---|---|"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A change, and the load under which it is looked at."""

    name: str
    load: tuple[str, ...]
    settings: Mapping[str, object] = field(default_factory=dict)
    instead: tuple[str, ...] = ()
    """The load with it, where the client is what changes."""
    kernel: Mapping[str, str] = field(default_factory=dict)
    """File below /proc/sys or /sys → value."""
    cores: frozenset[int] = frozenset()
    """The broker may run on these only."""


PARAMETERS = (
    Parameter(
        name="flushDiskType=SYNC_FLUSH, 64 × 1",
        load=SENDS,
        settings={"flushDiskType": "SYNC_FLUSH"},
    ),
    Parameter(
        name="messageIndexEnable=false, 8 × 32",
        load=PIPELINED,
        settings={"messageIndexEnable": "false"},
    ),
    Parameter(
        name="serverSelectorThreads=3, 64 × 1", load=SENDS, settings={"serverSelectorThreads": 3}
    ),
    Parameter(
        name="serverSelectorThreads=3, 8 × 32",
        load=PIPELINED,
        settings={"serverSelectorThreads": 3},
    ),
    Parameter(
        name="warmMapedFileEnable=false, 1 KiB, 64 × 1",
        load=LARGE,
        settings={"warmMapedFileEnable": "false"},
    ),
    Parameter(
        name="flushIntervalCommitLog=5000, 1 KiB, 64 × 1",
        load=LARGE,
        settings={"flushIntervalCommitLog": 5_000},
    ),
    Parameter(
        name="socket buffers of 1 MiB, pull of 32",
        load=PULLS,
        settings={"serverSocketSndBufSize": MiB, "serverSocketRcvBufSize": MiB},
    ),
    Parameter(
        name="pulls of 128 and not 32",
        load=PULLS,
        instead=(*PULLS, "-b", "128"),
        settings={"maxTransferCountOnMessageInMemory": 128},
    ),
    Parameter(
        name="the client: batches of 32 and not single sends, 8 × 4",
        load=("-c", "8", "-d", "4"),
        instead=BATCHES,
    ),
    Parameter(
        name="the client: batches of 256 and not of 32, 8 × 4",
        load=BATCHES,
        instead=(*BATCHES, "-b", "256"),
    ),
    Parameter(
        name="the client: 8 × 32 and not 256 × 1", load=("-c", "256", "-d", "1"), instead=PIPELINED
    ),
    Parameter(
        name="the client: binary headers and not JSON, 256 × 1",
        load=PACE,
        instead=(*PACE, "-header", "binary"),
    ),
    Parameter(name="the client: TLS, 64 × 1", load=SENDS, instead=(*SENDS, "-tls")),
    Parameter(name="the client: TLS, pull of 32, 16 × 1", load=PULLS, instead=(*PULLS, "-tls")),
    Parameter(name="signed, ACL 1.0, 64 × 1", load=SENDS, instead=(*SENDS, *SIGNED), settings=ACL),
    Parameter(
        name="signed, ACL 1.0, 8 × 32",
        load=PIPELINED,
        instead=(*PIPELINED, *SIGNED),
        settings=ACL,
    ),
    Parameter(
        name="signed, users and policies, 64 × 1",
        load=SENDS,
        instead=(*SENDS, *SIGNED),
        settings=USERS,
    ),
    Parameter(
        name="broker on one core of its own (taskset), 64 × 1", load=SENDS, cores=frozenset({0})
    ),
    Parameter(
        name="vm.dirty_background_bytes=64 MiB, 1 KiB, 64 × 1",
        load=LARGE,
        kernel={"/proc/sys/vm/dirty_background_bytes": str(64 * MiB)},
    ),
    Parameter(
        name="transparent huge pages: always, 8 × 32",
        load=PIPELINED,
        kernel={"/sys/kernel/mm/transparent_hugepage/enabled": "always"},
    ),
)


@contextmanager
def kernel_set(values: Mapping[str, str]) -> Iterator[None]:
    """Settings of the kernel during the block. Needs root."""
    before = {}
    try:
        for name, value in values.items():
            text = Path(name).read_text()
            chosen = text[text.find("[") + 1 : text.find("]")] if "[" in text else text.strip()
            before[name] = chosen
            Path(name).write_text(value)
        yield
    finally:
        for name, value in before.items():
            # The ratio that these bytes replace is 0 meanwhile, and cannot be set to 0.
            if value == "0" and name.endswith("_bytes"):
                Path(name.replace("_bytes", "_ratio")).write_text("10")
            else:
                Path(name).write_text(value)


def identities(directory: Path) -> dict[str, object]:
    """Settings with the account that signs, and with a certificate; both are used where asked."""
    accounts = directory / "plain_acl.yml"
    accounts.touch(0o600)
    accounts.write_text(ACCOUNTS)
    make(directory, ["127.0.0.1"])
    return {
        "aclConfigDir": directory,
        "tlsServerCertPath": directory / "server.pem",
        "tlsServerKeyPath": directory / "server-key.pem",
    }


def measure(plan: Plan, parameter: Parameter) -> Row:
    """Both brokers, alternating."""
    row = Row(parameter.name, ())
    with ExitStack() as stack:
        sides = []
        for name, settings in ((WITHOUT, {}), (WITH, parameter.settings)):
            data = plan.place() / "data"
            given = DEFAULTS | dict(settings) | identities(data.parent)
            broker = BrokerProcess(data=data, settings=given)
            sides.append(Side(name, stack.enter_context(broker)))
            if "pull" in parameter.load:
                load(sides[-1].address, sides[-1].pid, Case("fill", BATCHES), 2, warm_up_s=0)
        if parameter.cores:
            os.sched_setaffinity(sides[-1].pid, parameter.cores)

        def one(side: Side) -> Turn:
            options = parameter.instead or parameter.load if side.name == WITH else parameter.load
            case = Case(parameter.name, options)
            with kernel_set(parameter.kernel if side.name == WITH else {}):
                return load(side.address, side.pid, case, plan.seconds, warm_up_s=WARM_UP_S)

        return take_turns(plan, sides, row, one)


def line(row: Row) -> str:
    """One line of the table."""
    medians = [
        change(row.median(WITHOUT, figure), row.median(WITH, figure)) for figure in ("rate", "p99")
    ]
    best = [min(turn["cpu"] for turn in row.turns[side]) for side in (WITHOUT, WITH)]
    cells = [row.name, *medians, change(*best)]
    return f"| {' | '.join(cells)} |"


def change(without: float | None, with_it: float | None) -> str:
    """Two figures and their ratio."""
    assert without
    assert with_it
    return f"{number(without)} → {number(with_it)} | {with_it / without:.2f}"


@program
def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.tuning")
    parser.add_argument("--only", default="")
    parser.add_argument("--runs", type=whole, default=5)
    parser.add_argument("--seconds", type=positive, default=2)
    parser.add_argument("--kernel", action="store_true", help="also the kernel's settings; root")
    parser.add_argument("--set", type=setting, action="append", default=[], metavar="KEY=VALUE")
    given = parser.parse_args()
    possible = [one for one in PARAMETERS if given.kernel or not one.kernel]
    if given.set:
        name = ", ".join("=".join(pair) for pair in given.set)
        possible = [Parameter(name=f"{name}, 64 × 1", load=SENDS, settings=dict(given.set))]
    names = chosen(given.only, [one.name for one in possible])
    build()
    print(describe())
    print(HEAD)
    with tempfile.TemporaryDirectory(prefix="aerobee-bench-") as directory:
        plan = Plan(
            runs=given.runs,
            seconds=given.seconds,
            warm_up_s=WARM_UP_S,
            quick=False,
            java=False,
            pythons={},
            directory=Path(directory),
            ends_at=time.monotonic() + 3_600,
        )
        for parameter in possible:
            if parameter.name in names:
                print(line(measure(plan, parameter)), flush=True)


if __name__ == "__main__":
    main()
