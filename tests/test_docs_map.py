"""The map of the documentation leads to every page, and the first examples commit."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def test_the_map_leads_to_every_page_and_every_folder() -> None:
    links = set(re.findall(r"\]\(([^)#]+)\)", (DOCS / "README.md").read_text("utf-8")))
    assert [link for link in links if not (DOCS / link).exists()] == []
    pages = {page.name for page in DOCS.glob("*.md")} - {"README.md"}
    assert pages <= links
    assert {one.name for one in DOCS.iterdir() if one.is_dir()} == {
        link.partition("/")[0] for link in links if (DOCS / link).is_dir() or "/" in link
    } - {".."}
    assert "(docs/README.md)" in (ROOT / "README.md").read_text("utf-8")


def test_the_place_of_each_change_is_there() -> None:
    text = (DOCS / "CONTRIBUTING.md").read_text("utf-8").partition("## Where a change belongs")[2]
    places = re.findall(r"`(\w+/[\w./]+)`", text.partition("\n## ")[0])
    assert len(places) > 20
    assert [place for place in places if not (ROOT / place).exists()] == []


@pytest.mark.parametrize("page", ["README.md", "docs/sdk/start.md"])
def test_an_example_that_leaves_its_loop_finishes_the_message_first(page: str) -> None:
    """Otherwise nothing is committed, and the lag grows by each run."""
    lines = (ROOT / page).read_text("utf-8").splitlines()
    ends = [number for number, line in enumerate(lines) if line.strip() == "break"]
    assert ends
    for number in ends:
        assert lines[number - 1].strip().startswith("consumer.done(message)")


def test_a_file_of_the_server_imports_those_before_it_in_the_table_of_files() -> None:
    text = (DOCS / "design" / "connections.md").read_text("utf-8").partition("## Files")[2]
    rows = re.findall(r"^\| (`.*?`) \|", text, flags=re.MULTILINE)
    places = {file: row for row, cell in enumerate(rows) for file in re.findall(r"`(\w+)`", cell)}
    files = [file for file in (ROOT / "remoting/server").glob("*.py") if file.stem != "__init__"]
    assert places.keys() == {file.stem for file in files}
    for file in files:
        for name in re.findall(r"aerobee\.remoting\.server\.(\w+) import", file.read_text("utf-8")):
            assert places[name] <= places[file.stem], f"{file.stem} imports {name}"
