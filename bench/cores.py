"""One broker and several of one configuration: `python -m bench.cores`.

Each broker has a load generator of its own (bench/rawload); together they have as many connections
in both cases. The figures are medians of alternating runs. The share of the generators is told as
well: it is what limits the brokers on a small machine.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import statistics
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from bench.arguments import positive, program, whole
from bench.load import DEFAULT_SIZES, Case, Figures, build, load
from bench.machine import describe
from tests.kit.supervised import BROKERS_MOST, Supervised

CONNECTIONS = 64
WARM_UP_S = 5.0
CASES = (
    Case("produce 128 B, 64 x 1", ("-m", "produce", "-d", "1", "-s", "128")),
    Case("produce 128 B, 64 x 4", ("-m", "produce", "-d", "4", "-s", "128")),
    Case("batch of 32 x 128 B, 64 x 1", ("-m", "batch", "-d", "1", "-s", "128")),
)


def measured(case: Case, brokers: int, seconds: float, directory: Path) -> Figures:
    """One run: rate of all, CPU per message of the brokers, cores of brokers and generators."""
    data = Path(tempfile.mkdtemp(dir=directory)) / "data"
    whole = Supervised(data=data, brokers=brokers, settings=DEFAULT_SIZES)
    options = ("-c", str(CONNECTIONS // brokers))
    # When it is stopped the generators end with their brokers.
    with ThreadPoolExecutor(brokers) as pool, whole:
        pids = list(whole.pids().values()) if brokers > 1 else [whole.child.pid]
        each = replace(case, options=case.options + options)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        runs = [
            pool.submit(
                load,
                f"127.0.0.1:{whole.ports.listen + 10 * number}",
                pid,
                each,
                seconds,
                warm_up_s=WARM_UP_S,
            )
            for number, pid in enumerate(pids)
        ]
        found = [run.result() for run in runs]
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        whole.stop()
    shutil.rmtree(data.parent)
    rate = sum(one["rate"] for one in found)
    used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Figures(
        rate=rate,
        cpu=sum(one["cpu"] * one["rate"] for one in found) / rate,
        p99=max(one["p99"] for one in found),
        cores=sum(one["cores"] for one in found),
        load=used_s / (WARM_UP_S + seconds),
    )


@program
def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.cores")
    parser.add_argument("--brokers", type=whole, choices=range(2, BROKERS_MOST + 1), default=2)
    parser.add_argument("--runs", type=whole, default=3)
    parser.add_argument("--seconds", type=positive, default=5)
    arguments = parser.parse_args()
    build()
    print(describe())
    print(f"{'':<32} {'msgs/s':>9} {'p99 ms':>8} {'us/msg':>8} {'cores':>6} {'load':>6}")
    with tempfile.TemporaryDirectory(prefix="aerobee-bench-") as directory:
        for case in CASES:
            seen: dict[int, list[Figures]] = {1: [], arguments.brokers: []}
            for _ in range(arguments.runs):
                for brokers, runs in seen.items():
                    runs.append(measured(case, brokers, arguments.seconds, Path(directory)))
            rates = []
            for brokers, runs in seen.items():
                one = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
                rates.append(one["rate"])
                print(
                    f"{case.name:<28} x {brokers} {one['rate']:>9.0f} {one['p99']:>8.2f}"
                    f" {one['cpu']:>8.2f} {one['cores']:>6.2f} {one['load']:>6.2f}",
                    flush=True,
                )
            print(f"{'ratio':<32} {rates[-1] / rates[0]:>9.2f}", flush=True)


if __name__ == "__main__":
    main()
