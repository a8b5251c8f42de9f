"""The command that counts the shape of the source counts what it says."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.message_way import KINDS
from tests.kit.source_tree import ROOT, folder_graphs, packages
from tests.shape import PROBE, Row, decoders, rows, waiting_words

SOURCES = {
    "broker/one/a.py": "from aerobee.broker.two import b\n",
    "broker/two/b.py": '"""Two\nlines."""\n\ndef f():\n    from aerobee.broker.one import a\n',
    "broker/three/c.py": "from aerobee.broker.two import b\n# Why.\n",
    "broker/root.py": "from aerobee.broker.one import a\n",
    "store/format/record.py": (
        "HEAD = Layout(Head, size=88)\n_head = HEAD.unpack_from\n_size = HEAD.pick('size')\n"
        "def parse(data, at):\n    return _head(data, at)\n"
        "def size(data, at):\n    return _size(data, at)\n"
        "def write(data, at):\n    HEAD.pack_into(data, at)\n"
    ),
    "store/messages/reader.py": (
        "from aerobee.store.format.record import HEAD\n"
        "FAST = {0: HEAD}\nTIME_AT = HEAD.offset['store_timestamp']\n"
        "def read(data):\n    layout = FAST[0]\n    return layout.unpack_from(data)\n"
        "def time(data):\n    return int.from_bytes(data[TIME_AT:])\n"
    ),
    "store/format/arrays.py": "def heads(at):\n    return at + 28, at + 36\n",
    "remoting/server/loop.py": "def serve(held_back):\n    connection.heldBack = held_back\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for place, text in SOURCES.items():
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def counted(tree: Path) -> dict[str, Row]:
    return {row.name: row for row in rows(packages(tree))}


def test_lines_are_statements_docstrings_imports_comments_or_blank(tree: Path) -> None:
    found = counted(tree)
    kinds = {
        kind: found[f"  {kind}"].value for kind in ("docstrings", "imports", "comments", "blank")
    }
    assert kinds == {"docstrings": 2, "imports": 5, "comments": 1, "blank": 1}
    assert found["lines"].value == sum(text.count("\n") for text in SOURCES.values())
    assert found["modules"].value == len(SOURCES)


def test_folders_that_import_each_other_in_whatever_way_are_a_knot(tree: Path) -> None:
    found = counted(tree)
    assert found["folders of broker that import each other"].counted == ("broker: one ↔ two",)
    assert found["folder knots of broker"].counted == ("broker: 2 folders (one two)",)
    assert "root" not in folder_graphs(packages(tree))["broker"]


def test_a_circle_through_a_function_is_counted_by_itself(tree: Path) -> None:
    found = counted(tree)
    assert found["import circles"].value == 0
    assert found["import circles, in functions too"].counted == ("broker.one.a broker.two.b",)


def test_a_decoder_reads_a_whole_head_or_knows_its_offsets_as_numbers(tree: Path) -> None:
    assert decoders(packages(tree)) == [
        "store/format/arrays.py: heads",
        "store/format/record.py: parse",
        "store/messages/reader.py: read",
    ]


def test_words_for_waiting_are_counted_in_names(tree: Path) -> None:
    assert waiting_words(packages(tree)) == {"held_back": 3}


@pytest.mark.service
def test_the_way_of_each_kind_of_request_is_measured_in_a_running_broker() -> None:
    done = subprocess.run(
        [sys.executable, str(PROBE)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=120,
    )
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("{"))
    ways = json.loads(line)
    assert list(ways) == list(KINDS)
    for kind, way in ways.items():
        assert way["deepest"] >= way["at_write"]
        assert (way["at_write"] > 0) == ("send" in kind)
        assert way["calls"] > len(way["files"]) > 5
