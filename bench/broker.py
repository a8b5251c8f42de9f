"""The broker under load, compared with the Java broker: rate, latency, CPU per message, memory.

Each case runs alternately against both, each on its own fresh directory, and the medians and their
ratios are printed. The load comes from `bench/rawload` (Go), so that the broker is measured and not
a client: without Go there is no bench, without Java and Maven only our own figures. Everything
talks over 127.0.0.1, is bounded in time, and is ended by its pid.

    python -m bench.broker [--runs 3] [--seconds 10] [--only produce] [--alone] [--set key=value]…
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path

from aerobee.cli.certs import make
from bench.arguments import chosen, positive, program, setting, whole
from bench.java_peer import java_broker
from bench.load import DEFAULT_SIZES, SENDS, Case, Figures, build, load
from bench.machine import describe
from tests.kit.broker_process import BrokerProcess

FEW_QUEUES = ("-t", "PopBench", "-q", "4")
"""A topic that is made with the first message; pops look at all of its queues."""

TLS = "-tls"
"""The option of rawload to encrypt. RocketMQ's broker has a certificate for that by itself."""

NAME, SECRET = "bench-user", "bench-secret"
SIGNED = ("-user", NAME, "-secret", SECRET)
"""The options of rawload to sign. RocketMQ's broker takes that without looking."""
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

CASES = (
    Case("produce 128 B, 64 x 1", SENDS),
    Case("produce 128 B, 8 x 32", ("-m", "produce", "-c", "8", "-d", "32", "-s", "128")),
    Case("TLS, produce 128 B, 64 x 1", (*SENDS, TLS)),
    Case("ACL 1.0, produce 128 B, 64 x 1", SENDS + SIGNED, access={"aclEnable": True}),
    Case(
        "ACL 1.0, produce 128 B, 8 x 32",
        ("-m", "produce", "-c", "8", "-d", "32", "-s", "128", *SIGNED),
        access={"aclEnable": True},
    ),
    Case("users, produce 128 B, 64 x 1", SENDS + SIGNED, access=USERS),
    Case("TLS, pull of 32, 16 x 1", ("-m", "pull", "-c", "16", "-d", "1", TLS)),
    Case("produce 1 KiB, 64 x 1", ("-m", "produce", "-c", "64", "-d", "1", "-s", "1024")),
    Case("batch of 32 x 128 B, 8 x 4", ("-m", "batch", "-c", "8", "-d", "4", "-s", "128")),
    Case("pull of 32, 16 x 1", ("-m", "pull", "-c", "16", "-d", "1")),
    Case("pop of 32, batch ack, 16 x 1", ("-m", "pop", "-c", "16", *FEW_QUEUES)),
    Case("pop of 32, 32 acks, 16 x 1", ("-m", "popack", "-c", "16", *FEW_QUEUES)),
    Case("sync produce 128 B, 64 x 1", ("-m", "produce", "-c", "64", "-d", "1"), sync=True),
    Case("sync produce 128 B, 1 x 1", ("-m", "produce", "-c", "1", "-d", "1"), sync=True),
    Case("sync produce 128 B, 8 x 32", ("-m", "produce", "-c", "8", "-d", "32"), sync=True),
)


READS = frozenset({"pull", "pop", "popack"})
"""Modes of rawload that need messages to read."""


class Side:
    """One of the two brokers in one flush mode, started for one run."""

    def __init__(self, name: str, directory: Path, settings: dict[str, object]) -> None:
        self.name = name
        self.directory = directory
        self.settings = settings

    def run(self, case: Case, seconds: float) -> Figures:
        """Start it on an empty directory, fill it if the case reads, measure, stop it."""
        mode = "SYNC_FLUSH" if case.sync else "ASYNC_FLUSH"
        settings = {**self.settings, "flushDiskType": mode}
        data = Path(tempfile.mkdtemp(dir=self.directory)) / "data"
        with ExitStack() as stack:
            if TLS in case.options:
                make(data.parent, ["127.0.0.1"])
                settings["tlsServerCertPath"] = data.parent / "server.pem"
                settings["tlsServerKeyPath"] = data.parent / "server-key.pem"
            if case.access and self.name == "aerobee":
                settings |= {**case.access, "aclConfigDir": data.parent}
                accounts = data.parent / "plain_acl.yml"
                accounts.touch(0o600)
                accounts.write_text(ACCOUNTS)
            address, pid = self._start(stack, data, settings)
            if READS.intersection(case.options):
                queues = FEW_QUEUES if FEW_QUEUES[1] in case.options else ()
                filling = Case("fill", ("-m", "batch", "-c", "8", "-d", "4", "-s", "128", *queues))
                load(address, pid, filling, 3)
            figures = load(address, pid, case, seconds)
        shutil.rmtree(data.parent)
        return figures

    def _start(self, stack: ExitStack, data: Path, settings: dict[str, object]) -> tuple[str, int]:
        if self.name == "aerobee":
            ours = stack.enter_context(BrokerProcess(data=data, settings=DEFAULT_SIZES | settings))
            return ours.address, ours.child.pid
        java = stack.enter_context(java_broker(data.parent, settings))
        java.start()
        return java.address, java.child.pid


def compare(sides: list[Side], case: Case, runs: int, seconds: float) -> dict[str, Figures]:
    """Medians of `runs` alternating runs, by side."""
    seen: dict[str, list[Figures]] = {side.name: [] for side in sides}
    for _ in range(runs):
        for side in sides:
            seen[side.name].append(side.run(case, seconds))
    return {
        name: Figures({key: statistics.median(run[key] for run in got) for key in got[0]})
        for name, got in seen.items()
    }


def row(name: str, figures: Figures) -> str:
    """One line of the table."""
    return (
        f"{name:<28} {figures['rate']:>9.0f} {figures['p50']:>8.2f} {figures['p99']:>8.2f} "
        f"{figures['cpu']:>8.2f} {figures['cores']:>6.2f} {figures['rss']:>7.0f}"
    )


@program
def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.broker")
    parser.add_argument("--runs", type=whole, default=3)
    parser.add_argument("--seconds", type=positive, default=10)
    parser.add_argument("--only", default="")
    parser.add_argument("--alone", action="store_true", help="without the Java broker")
    parser.add_argument("--set", type=setting, action="append", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    names = chosen(arguments.only, [case.name for case in CASES])
    build()
    settings: dict[str, object] = dict(arguments.set)
    print(describe())
    print(
        f"{'':<28} {'msgs/s':>9} {'p50 ms':>8} {'p99 ms':>8} {'us/msg':>8} {'cores':>6} {'MB':>7}"
    )
    with tempfile.TemporaryDirectory(prefix="aerobee-bench-") as directory:
        sides = [Side("aerobee", Path(directory), settings)]
        if not arguments.alone and shutil.which("java") and shutil.which("mvn"):
            sides.append(Side("java", Path(directory), {}))
        for case in CASES:
            if case.name in names:
                report(case, compare(sides, case, arguments.runs, arguments.seconds))


def report(case: Case, medians: dict[str, Figures]) -> None:
    """Print a case: a line per side, and the ratio."""
    print(f"\n{case.name}")
    for name, figures in medians.items():
        print(row(f"  {name}", figures), flush=True)
    if "java" in medians:
        ours, java = medians["aerobee"], medians["java"]
        rate, cpu = ours["rate"] / java["rate"], ours["cpu"] / java["cpu"]
        print(f"  ratio: rate {rate:.2f}, CPU per message {cpu:.2f}")


if __name__ == "__main__":
    main()
