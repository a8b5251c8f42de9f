"""Templates, texts and files of the pages.

In: the name of a template and what it shows. Out: HTML in which every value is escaped. Templates
and texts are read and compiled once, before the first request, in a thread: compiling holds the
loop for longer than a round may take.
"""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import jinja2
from markupsafe import Markup, escape

from aerobee.broker.console.pages import formats
from aerobee.broker.console.pages.links import link

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

HERE: Final = Path(__file__).parent
LANGUAGES: Final = ("en", "zh")
MEDIA_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
HASH_DIGITS: Final = 12


@dataclass(frozen=True, slots=True)
class Asset:
    """A file that browsers load and keep: its address has the hash of its content."""

    content: bytes
    media_type: str
    tag: str


class Rendering:
    """All that pages are made of."""

    def __init__(self) -> None:
        self.assets = dict(_assets())
        with (HERE / "chinese.toml").open("rb") as file:
            self._chinese: dict[str, str] = tomllib.load(file)
        self._environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(HERE / "templates"),
            autoescape=True,
            auto_reload=False,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=jinja2.StrictUndefined,
            finalize=_shown,
        )
        self._environment.globals.update(asset=self.path_of, share=formats.share, link=link)
        self._environment.filters.update(
            iso=formats.iso,
            listed=formats.listed,
            number=formats.number,
            percent=formats.percent,
            rate=formats.rate,
            size=formats.size,
            unchanged=unchanged,
            utc=formats.utc,
        )
        self._templates = {
            name: self._environment.get_template(name)
            for name in self._environment.list_templates()
        }

    def page(self, name: str, language: str, shown: Mapping[str, Any]) -> str:
        """A page, or a piece of one."""
        text = self.translator(language)

        def duration(seconds: float | None) -> str | None:
            return formats.duration(seconds, language)

        return self._templates[name].render(
            shown, language=language, t=text, t_n=counting(text), duration=duration
        )

    def translator(self, language: str) -> Callable[..., str]:
        """The function that puts a text into this language, and values into the text."""
        texts = self._chinese if language == "zh" else {}

        def translated(text: str, /, **values: object) -> str:
            own = texts.get(text, text)
            return own.format(**values) if values else own

        return translated

    def path_of(self, name: str) -> str:
        """The address of a file."""
        return f"/static/{name}?{self.assets[name].tag}"


def unchanged(text: object) -> Markup:
    """Escaped as HTML alone: for fields that send back what they hold."""
    return escape(text)


def counting(text: Callable[..., str]) -> Callable[..., str]:
    """The function for texts with a number `n`: one for 1, another for all else."""

    def counted(single: str, many: str, n: float | None, /, **values: object) -> str:
        return text(single if n == 1 else many, n=formats.number(n or 0), **values)

    return counted


def _shown(value: object) -> object:
    """The form of every value before it is escaped."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return formats.visible(value)
    return "" if value is None else value


def _assets() -> Any:
    static = HERE / "static"
    for path in sorted(static.rglob("*")):
        if path.suffix in MEDIA_TYPES:
            content = path.read_bytes()
            tag = hashlib.sha256(content).hexdigest()[:HASH_DIGITS]
            asset = Asset(content, MEDIA_TYPES[path.suffix], tag)
            yield path.relative_to(static).as_posix(), asset
