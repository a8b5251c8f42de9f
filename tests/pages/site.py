"""The documentation as a site: what MkDocs asks of us while it reads `mkdocs.yml`.

The pages are those of `docs`, those that are built from the source, and what they link to in the
rest of the repository. `docs/README.md` is the front page, and its sections are the menu: a link to
a page is an entry, a link to a folder or to its README.md all pages of the folder.
"""

from __future__ import annotations

import os.path
import re
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mkdocs.structure.files import File

from tests.pages.__main__ import BUILT, ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

DOCS = ROOT / "docs"
MAP = DOCS / "README.md"
ELSEWHERE = "repository/"
"""Where the site has what lies outside of docs."""
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!\w+:)([^)#\s]+)(#[^)\s]*)?\)")
FENCE = re.compile(r"\s*(`{3,}|~{3,})")
BEGINS_BLOCK = re.compile(r"[-*] |\d+\. |\||\s*```")
NESTED = re.compile(r" {2,3}(?=[-*] |\d+\. )")
TITLE = re.compile(r"^# (.+)$", re.MULTILINE)


def on_config(config: MkDocsConfig) -> None:
    """Make the menu."""
    config.nav = menu(MAP.read_text("utf-8"))


def on_files(files: Files, *, config: MkDocsConfig) -> None:
    """Add the pages that lie nowhere, or outside of docs."""
    for name, text in BUILT.items():
        if kept := files.get_file_from_path(name):
            files.remove(kept)
        files.append(File.generated(config, name, content=text()))
    for path in outside():
        files.append(File.generated(config, ELSEWHERE + path, abs_src_path=str(ROOT / path)))


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """A page as the site needs it: its links, and blank lines where MkDocs wants them."""
    there = {one.src_uri for one in files}
    return spaced(relinked(markdown, page.file.src_uri, there.__contains__))


def menu(front: str) -> list[Any]:
    """The entries of the menu, section by section, in the form of `nav` in mkdocs.yml."""
    entries: list[Any] = [MAP.name]
    named = {link[3] for link in LINK.finditer(front)}
    for section in front.split("\n## ")[1:]:
        links = list(dict.fromkeys(link[3] for link in LINK.finditer(section)))
        inner = [entry for link in links for entry in _entries(link, named)]
        folders = {link.partition("/")[0] for link in links if "/" in link}
        inner += _built({one for one in folders if one != ".."})
        entries.append({section.partition("\n")[0]: inner})
    return entries


def _entries(link: str, named: set[str]) -> Iterator[Any]:
    path = (DOCS / link).resolve()
    folder = path.parent if path.name == "README.md" and DOCS in path.parents else path
    if not folder.is_dir():
        yield _uri(path)
        return
    others = sorted(set(folder.glob("*.md")) - {path})
    pages = [one for one in others if str(one.relative_to(DOCS)) not in named]
    first = [_uri(path)] if path != folder else []
    if pages:
        yield {folder.name.capitalize(): [*first, *map(_uri, pages)]}


def _built(folders: set[str]) -> Iterator[Any]:
    """Pages of these folders that the repository does not keep, named by what they are about."""
    pages = [name for name in BUILT if not (DOCS / name).exists()]
    inner = [{Path(name).stem: name} for name in pages if name.partition("/")[0] in folders]
    if inner:
        yield {"API": inner}


def outside() -> list[str]:
    """The files of the repository outside of docs that pages link to."""
    found = set()
    for page in DOCS.rglob("*.md"):
        for link in LINK.finditer(page.read_text("utf-8")):
            path = (page.parent / link[3]).resolve()
            if path.is_file() and DOCS not in path.parents:
                found.add(str(path.relative_to(ROOT)))
    return sorted(found)


def _uri(path: Path) -> str:
    """The name of a file of the repository in the site."""
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    return ELSEWHERE + path.relative_to(ROOT).as_posix()


def relinked(markdown: str, uri: str, there: Callable[[str], bool]) -> str:
    """Turn links into those of the site; what is not there keeps its words, without a link."""
    lies = ROOT / uri.removeprefix(ELSEWHERE) if uri.startswith(ELSEWHERE) else DOCS / uri

    def turned(link: re.Match[str]) -> str:
        path = (lies.parent / link[3]).resolve()
        target = _uri(path / "README.md" if path.is_dir() else path)
        if not there(target):
            # A page of the site that is nowhere is a fault, and MkDocs says so.
            return link[2] if path.exists() else link[0]
        way = os.path.relpath(target, Path(uri).parent)
        return f"{link[1]}[{link[2]}]({way}{link[4] or ''})"

    # The words of a link may go over a line.
    parts = groupby(_lines(markdown), key=itemgetter(1))
    texts = ((fenced, "\n".join(line for line, _ in lines)) for fenced, lines in parts)
    return "\n".join(text if fenced else LINK.sub(turned, text) for fenced, text in texts)


def spaced(markdown: str) -> str:
    """What GitHub takes for a list, a table or code below a line of text, MkDocs takes so, too."""
    out: list[str] = []
    for line, fenced in _lines(markdown):
        before = out[-1] if out else ""
        text_before = before.strip() and not (BEGINS_BLOCK.match(before) or before.startswith(" "))
        if not fenced and text_before and BEGINS_BLOCK.match(line):
            out.append("")
        out.append(line if fenced else NESTED.sub("    ", line))
    return "\n".join(out)


def _lines(markdown: str) -> Iterable[tuple[str, bool]]:
    """Each line, and whether it is code between fences; those that open one are not."""
    fence = ""
    for line in markdown.split("\n"):
        found = FENCE.match(line)
        yield line, bool(fence)
        if found and not fence:
            fence = found[1]
        elif found and line.strip() == fence:
            fence = ""
