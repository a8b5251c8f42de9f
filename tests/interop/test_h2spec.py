"""h2spec, the tests of HTTP/2 servers that others have written, against the gRPC port."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from tests.kit import golang
from tests.kit.ports import HOST, free_port

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import StartBroker

pytestmark = [pytest.mark.interop, pytest.mark.ours]

WITHIN_S = 340.0
"""h2spec waits for ten seconds where nothing comes."""

FORGOTTEN = "libnghttp2 forgets a closed stream, and drops what still comes on it"
NO_PRIORITIES = "libnghttp2 drops the priorities of RFC 7540, which RFC 9113 has taken out"
STRICTER = "an overflow of a stream's window ends the connection, since attacks begin so"
LEFT = {
    ("http2/5.1", "closed: Sends a DATA frame after sending RST_STREAM frame"): FORGOTTEN,
    ("http2/5.1", "closed: Sends a HEADERS frame after sending RST_STREAM frame"): FORGOTTEN,
    ("http2/5.1", "closed: Sends a DATA frame"): FORGOTTEN,
    ("http2/5.1", "closed: Sends a HEADERS frame"): FORGOTTEN,
    (
        "http2/5.1.1",
        "Sends stream identifier that is numerically smaller than previous",
    ): FORGOTTEN,
    ("http2/5.3.1", "Sends PRIORITY frame that depend on itself"): NO_PRIORITIES,
    ("http2/6.3", "Sends a PRIORITY frame with 0x0 stream identifier"): NO_PRIORITIES,
    (
        "http2/6.9.1",
        "Sends multiple WINDOW_UPDATE frames increasing the flow control window"
        " to above 2^31-1 on a stream",
    ): STRICTER,
}
"""What h2spec finds, and why it stays."""
RACES = {
    ("http2/5.1", "half closed (remote): Sends a DATA frame"),
    ("http2/5.1", "half closed (remote): Sends a HEADERS frame"),
    (
        "http2/6.1",
        'Sends a DATA frame on the stream that is not in "open" or "half-closed (local)" state',
    ),
}
"""What h2spec finds where the answer to its first frames is faster than its next ones."""


def test_h2spec_finds_nothing_but_what_is_known(start_broker: StartBroker, tmp_path: Path) -> None:
    program, port = golang.program("h2spec"), free_port()
    start_broker(grpcPort=port)
    report = tmp_path / "report.xml"
    command = [str(program), HOST, str(port), str(report)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.returncode == 0, done.stderr
    failed = {
        (case.attrib["package"], case.attrib["classname"])
        for case in ElementTree.fromstring(printable(report.read_bytes())).iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    }
    assert failed - RACES == LEFT.keys(), done.stdout[done.stdout.rindex("Failures:") :]


def printable(report: bytes) -> bytes:
    """A report without the raw bytes of frames that h2spec puts into it, which no XML may have."""
    return re.sub(rb"[^\t\n\r -~]", b"?", report)
