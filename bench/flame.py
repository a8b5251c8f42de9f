"""Flame graphs of the broker under load, as SVG.

    python -m bench.flame [--only WORDS] [--seconds 6] [--modules 0] [DIRECTORY]

Needs `py-spy` on the PATH (`pip install py-spy`), which looks at the process from outside, 200
times a second. The graph shows the thread of the broker's loop while it works, from its task
upwards: functions and not lines. A function with less than half a percent of the samples is left
out.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from bench.arguments import chosen, positive, program, whole_or_0
from bench.beside_java.sides import DEFAULTS
from bench.load import BINARY, SENDS, Case, build, load
from tests.kit.broker_process import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SAMPLES_PER_S = 200
RISE_S = 1.5
LEAST = 0.005
LOOP, WAIT = "unrolled_run ", "get_events "
"""Functions of trio: all tasks run in the first, and the second waits in epoll."""
WIDTH, ROW, HEAD = 1_200, 17, 40
LETTER = 6.6
"""Width of one, in points: names that do not fit are cut."""
STYLE = """\
text{font:11px ui-monospace,monospace;fill:#1f2328}.head{font:600 13px system-ui;fill:#1f2328}
rect{stroke:#ffffff;stroke-width:.6}@media (prefers-color-scheme:dark){.head{fill:#e6edf3}
rect{stroke:#0d1117}}"""
FRAME = re.compile(r"(?P<name>\S.*) \((?P<file>[^()]*?)(:\d+)?\)$")
BATCHES = ("-m", "batch", "-c", "8", "-d", "4", "-s", "128")
POPS = ("-t", "PopBench", "-q", "4")
FLAMES = {
    "send-64x1": (SENDS, "ASYNC_FLUSH"),
    "send-8x32": (("-m", "produce", "-c", "8", "-d", "32", "-s", "128"), "ASYNC_FLUSH"),
    "batch": (BATCHES, "ASYNC_FLUSH"),
    "pull": (("-m", "pull", "-c", "16", "-d", "1"), "ASYNC_FLUSH"),
    "pop": (("-m", "pop", "-c", "16", *POPS), "ASYNC_FLUSH"),
    "sync-64x1": (SENDS, "SYNC_FLUSH"),
}


class Box(NamedTuple):
    """One function in one place of the stacks: from and to are shares of all samples."""

    name: str
    depth: int
    begin: float
    end: float


def stacks_of(raw: Iterable[str]) -> Counter[tuple[str, ...]]:
    """Samples of the loop by stack, the outermost first."""
    found: Counter[tuple[str, ...]] = Counter()
    for line in raw:
        stack, _, count = line.rstrip().rpartition(" ")
        names = [name_of(frame) for frame in stack.split(";")]
        loops = [at for at, name in enumerate(names) if name.startswith(LOOP)]
        if loops and not names[-1].startswith(WAIT):
            found[tuple(names[loops[0] + 1 :] or names[-1:])] += int(count)
    return found


def name_of(frame: str) -> str:
    """`function module`, without folders of the machine and without the line."""
    match = FRAME.match(frame)
    if not match:
        return frame
    module = match["file"].removesuffix(".py").replace("/", ".")
    module = module.split("site-packages.")[-1].rpartition("aerobee.")[2]
    return f"{match['name']} {module}"


def shares_of(stacks: Counter[tuple[str, ...]]) -> Counter[str]:
    """Samples by the module whose function was at work, system calls of it included."""
    found: Counter[str] = Counter()
    for stack, count in stacks.items():
        found[stack[-1].rpartition(" ")[2]] += count
    return found


def boxes(stacks: Counter[tuple[str, ...]]) -> list[Box]:
    """A box for each function above each other one, side by side in the order of their names."""
    total = stacks.total()
    found: list[Box] = []
    open_boxes: list[tuple[str, int]] = []
    at = 0
    for stack, count in [*sorted(stacks.items()), ((), 0)]:
        same = 0
        while same < min(len(stack), len(open_boxes)) and stack[same] == open_boxes[same][0]:
            same += 1
        for depth in range(len(open_boxes) - 1, same - 1, -1):
            name, begin = open_boxes.pop()
            found.append(Box(name, depth, begin / total, at / total))
        open_boxes += [(name, at) for name in stack[same:]]
        at += count
    return [one for one in found if one.end - one.begin >= LEAST]


def draw(stacks: Counter[tuple[str, ...]], title: str) -> str:
    """The SVG. The share of each stands in its tool tip."""
    found = boxes(stacks)
    height = HEAD + ROW * (1 + max((one.depth for one in found), default=0)) + 8
    parts = [f'<text class="head" x="8" y="22">{escape(title)}</text>']
    for one in found:
        x, width = one.begin * WIDTH, (one.end - one.begin) * WIDTH
        y = height - 8 - ROW * (one.depth + 1)
        share = f"{escape(one.name)}: {one.end - one.begin:.1%}"
        parts.append(
            f'<g><title>{share}</title><rect x="{x:.1f}" y="{y}" width="{width:.1f}" '
            f'height="{ROW}" fill="{colour(one.name)}"/>{label(one.name, x, y, width)}</g>'
        )
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">'
        f"<title>{escape(title)}</title><style>{STYLE}</style>\n{body}\n</svg>\n"
    )


def colour(name: str) -> str:
    """Warm for ours, cool for others; the same name has the same colour everywhere."""
    ours = name.rpartition(" ")[2].startswith(("broker.", "store.", "remoting."))
    shade = crc32(name.encode()) % 40
    return f"hsl({20 + shade if ours else 195 + shade} 80% 70%)"


def label(name: str, x: float, y: int, width: float) -> str:
    """As much of the name as fits."""
    fits = int(width / LETTER) - 1
    if fits < 3:
        return ""
    words = name if len(name) <= fits else name[: fits - 1] + "…"
    return f'<text x="{x + 3:.1f}" y="{y + 12}">{escape(words)}</text>'


def record(directory: Path, options: Sequence[str], flush: str, seconds: float) -> list[str]:
    """Lines of py-spy's raw form: a broker under a load that has begun."""
    raw = directory / "raw"
    settings = DEFAULTS | {"flushDiskType": flush}
    with BrokerProcess(data=directory / "data", settings=settings) as broker:
        if "pull" in options or "pop" in options:
            case = Case("filling", (*BATCHES, *(POPS if "pop" in options else ())))
            load(broker.address, broker.child.pid, case, 2, warm_up_s=0)
        times = ("-W", "0", "-T", str(seconds + 2 * RISE_S))
        command = [str(BINARY), "-a", broker.address, *options, *times]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL):
            time.sleep(RISE_S)
            spy = ["py-spy", "record", "-p", str(broker.child.pid), "-d", f"{seconds:.0f}"]
            spy += ["-r", str(SAMPLES_PER_S), "-f", "raw", "-o", str(raw)]
            subprocess.run(spy, check=True, capture_output=True, timeout=seconds + 60)
    return raw.read_text().splitlines()


@program
def main() -> None:
    """Draw all of `FLAMES`."""
    parser = argparse.ArgumentParser(prog="python -m bench.flame")
    parser.add_argument("directory", type=Path, nargs="?", default=Path("docs/performance"))
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=positive, default=6)
    parser.add_argument(
        "--modules", type=whole_or_0, default=0, help="so many of the dearest, as text"
    )
    given = parser.parse_args()
    if not shutil.which("py-spy"):
        raise SystemExit("bench.flame needs py-spy on the PATH: pip install py-spy")
    names = chosen(given.only, FLAMES)
    build()
    given.directory.mkdir(parents=True, exist_ok=True)
    for name in names:
        options, flush = FLAMES[name]
        with tempfile.TemporaryDirectory(prefix="aerobee-bench-") as directory:
            lines = record(Path(directory), options, flush, given.seconds)
        path = given.directory / f"flame-{name}.svg"
        stacks = stacks_of(lines)
        path.write_text(draw(stacks, f"{name}, {flush}"))
        print(path)
        for module, count in shares_of(stacks).most_common(given.modules):
            print(f"{count / stacks.total():>8.1%} {module}")


if __name__ == "__main__":
    main()
