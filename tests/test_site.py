"""The site of the documentation: built strictly, no dead link or anchor, nothing from outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.pages import site
from tests.pages.__main__ import BUILT

ROOT = Path(__file__).parents[1]
SECTIONS = ["Start", "Understand", "Operate", "SDK", "Spark", "Reference"]
LOADS = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src"}
"""What a browser fetches by itself, without a click."""


class Html(HTMLParser):
    """What a page has and wants."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.paragraphs: list[str] = []
        self._open = False
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value is not None}
        self.ids.update(given[name] for name in ("id", "name") if name in given)
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        wanted = LOADS.get(tag)
        if wanted in given and given.get("rel") not in ("canonical", "next", "prev"):
            self.loads.append(given[wanted])
        if tag == "p":
            self.paragraphs.append("")
        self._open = tag == "p" or (self._open and tag != "div")

    def handle_endtag(self, tag: str) -> None:
        self._open = self._open and tag != "p"

    def handle_data(self, data: str) -> None:
        if self._open:
            self.paragraphs[-1] += data


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.fixture(scope="module")
def pages(built: Path) -> dict[Path, Html]:
    return {path: Html(path) for path in built.rglob("*.html") if path.name != "404.html"}


def test_every_link_and_anchor_is_there(built: Path, pages: dict[Path, Html]) -> None:
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            assert target.is_file(), f"{path.relative_to(built)}: {link}"
            if parts.fragment and target in pages:
                found = unquote(parts.fragment) in pages[target].ids
                assert found, f"{path.relative_to(built)}: {link}"


def test_a_browser_asks_no_other_host_for_anything(built: Path, pages: dict[Path, Html]) -> None:
    for path, page in pages.items():
        for link in page.loads:
            assert not urlsplit(link).netloc, f"{path.relative_to(built)}: {link}"
            assert (path.parent / urlsplit(link).path).exists(), f"{path}: {link}"


def test_every_page_of_the_repository_and_every_built_one_is_found_by_the_search(
    built: Path, pages: dict[Path, Html]
) -> None:
    names = {page.relative_to(site.DOCS).as_posix() for page in site.DOCS.rglob("*.md")}
    wanted = {name.replace("README.md", "index.md") for name in names | set(BUILT)}
    places = {path.relative_to(built).with_suffix(".md").as_posix() for path in pages}
    assert wanted <= places
    index = json.loads((built / "search" / "search_index.json").read_bytes())
    searched = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert {name.removesuffix(".md") + ".html" for name in wanted} <= searched


def test_a_list_or_a_table_below_a_line_of_text_is_one(pages: dict[Path, Html]) -> None:
    for path, page in pages.items():
        for text in page.paragraphs:
            for line in text.splitlines()[1:]:
                assert not line.startswith(("- ", "| ", "```")), f"{path}: {line}"


def test_the_front_page_has_a_door_for_each_reader_and_the_menu_its_sections() -> None:
    text = site.MAP.read_text("utf-8")
    doors = [line for line in text.partition("\n## ")[0].splitlines() if "](" in line]
    assert len(doors) == 5
    assert [name for entry in site.menu(text)[1:] for name in entry] == SECTIONS


def test_links_are_turned_only_where_they_are_links() -> None:
    there = {"operations/tls.md", "repository/README.md", "design.md"}.__contains__
    text = (
        "[a\nb](../../README.md#x) ![b](tls.md) [c](../../store/format)\n"
        "```\n[a](../../README.md)\n```\n[d](nowhere.md) [e](https://x.y/z)"
    )
    assert site.relinked(text, "operations/access.md", there) == (
        "[a\nb](../repository/README.md#x) ![b](tls.md) c\n"
        "```\n[a](../../README.md)\n```\n[d](nowhere.md) [e](https://x.y/z)"
    )
    assert site.relinked("[f](docs/design.md)", "repository/README.md", there) == (
        "[f](../design.md)"
    )


def test_blocks_get_their_blank_lines_and_code_is_left_alone() -> None:
    text = "text:\n- one\n  - inner\n- two\n```\na\n- b\n```\nmore\n| t |"
    assert site.spaced(text) == (
        "text:\n\n- one\n    - inner\n- two\n```\na\n- b\n```\nmore\n\n| t |"
    )
