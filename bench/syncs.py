"""What an append and its `fdatasync` cost, by how the file got its blocks and how bytes get in.

    python -m bench.syncs [DIRECTORY] [--turns N]

Blocks are reserved, as those of the log are, or zeros were written to them, in pieces of two sizes:
the first sync of a reserved block writes the file's extents as well. Bytes are stored into a
mapping, or written by `pwrite`: a store dirties the whole page, which is of up to a piece's size
when the file was read or written in pieces. Files take turns in random order, so that other work on
the disk is shared; prints microseconds, percentiles of the sync, and CPU of the caller.
"""

from __future__ import annotations

import argparse
import mmap
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from statistics import quantiles

from bench.arguments import existing_directory, program, whole
from bench.machine import describe

SIZES = 300, 9_000, 36_000
"""A message of 128 B; what a sync covers with 64 × 1; with 8 × 32."""
TURNS = 300
FILE_BYTES = 64 << 20
PIECES = 0, 64 << 10, 1 << 20
READ_BYTES = 128 << 10
"""As the log's pages are read ahead of its end."""
PAUSE_S = 0.000_3


class Log:
    """One file that is appended to in one way."""

    def __init__(self, path: Path, piece: int, calls: bool) -> None:
        """`piece`: bytes of each write of zeros, 0 for reserved blocks; `calls`: by `pwrite`."""
        self.name = f"zeros by {piece >> 10} KiB" if piece else "reserved"
        self.way = "pwrite" if calls else "mapping"
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.posix_fallocate(self.fd, 0, FILE_BYTES)
        for at in range(0, FILE_BYTES if piece else 0, piece or 1):
            os.pwrite(self.fd, bytes(piece), at)
        os.fsync(self.fd)
        for at in range(0, FILE_BYTES, READ_BYTES):
            os.pread(self.fd, READ_BYTES, at)
        self.mapping = None if calls else mmap.mmap(self.fd, FILE_BYTES)
        self.end = 0
        self.stores: list[float] = []
        self.syncs: list[float] = []
        self.cpu_s = 0.0

    def append(self, data: bytes) -> None:
        """Append and sync once."""
        cpu = time.thread_time()
        began = time.perf_counter()
        if self.mapping is None:
            os.pwrite(self.fd, data, self.end)
        else:
            self.mapping[self.end : self.end + len(data)] = data
        stored = time.perf_counter()
        os.fdatasync(self.fd)
        self.syncs.append((time.perf_counter() - stored) * 1e6)
        self.stores.append((stored - began) * 1e6)
        self.cpu_s += time.thread_time() - cpu
        self.end += len(data)

    def line(self, size: int) -> str:
        """A row of the table."""
        tenths = quantiles(self.syncs, n=20)
        store = quantiles(self.stores, n=2)[0]
        cpu = self.cpu_s / len(self.syncs) * 1e6
        low, quarter, half, high = (f"{tenths[at]:.0f}" for at in (1, 4, 9, 17))
        cells = f"{size:,}", self.name, self.way, f"{store:.1f}", low, quarter, half, high
        return f"| {' | '.join(cells)} | {cpu:.0f} |"

    def close(self) -> None:
        """Give back the file."""
        if self.mapping is not None:
            self.mapping.close()
        os.close(self.fd)


@program
def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=existing_directory, nargs="?")
    parser.add_argument("--turns", type=whole, default=TURNS)
    options = parser.parse_args()
    out = sys.stdout.write
    out(f"{describe()}\n\n| bytes | blocks | by | store | sync p10 | p25 | p50 | p90 | CPU |\n")
    out("|---|---|---|---|---|---|---|---|---|\n")
    for size in SIZES:
        with tempfile.TemporaryDirectory(prefix="syncs-", dir=options.directory) as folder:
            logs = [
                Log(Path(folder) / f"{piece}-{calls}", piece, calls)
                for piece in PIECES
                for calls in (False, True)
            ]
            order = list(logs)
            for _ in range(options.turns):
                random.shuffle(order)
                for log in order:
                    log.append(b"x" * size)
                    time.sleep(PAUSE_S)
            for log in logs:
                out(f"{log.line(size)}\n")
                sys.stdout.flush()
                log.close()


if __name__ == "__main__":
    main()
