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
    }
    assert "(docs/README.md)" in (ROOT / "README.md").read_text("utf-8")


@pytest.mark.parametrize("page", ["README.md", "docs/sdk/start.md"])
def test_an_example_that_leaves_its_loop_finishes_the_message_first(page: str) -> None:
    """Otherwise nothing is committed, and the lag grows by each run."""
    lines = (ROOT / page).read_text("utf-8").splitlines()
    ends = [number for number, line in enumerate(lines) if line.strip() == "break"]
    assert ends
    for number in ends:
        assert lines[number - 1].strip().startswith("consumer.done(message)")
