"""Templates: everything is escaped, nothing stands in a page that a policy would have to allow."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aerobee.broker.console import pages
from aerobee.broker.console.pages.rendering import MEDIA_TYPES, Rendering

TEMPLATES = sorted((Path(pages.__file__).parent / "templates").glob("*.html"))


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_has_no_script_no_style_and_nothing_unescaped(path: Path) -> None:
    text = path.read_text("utf-8")
    assert not re.search(r"<script(?![^>]*\ssrc=)", text)
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:|hx-on", text)
    assert not re.search(r"\|\s*safe\b|autoescape", text)
    for form in re.findall(r'<form[^>]*method="post"[^>]*>.{0,40}', text):
        assert "parts.csrf()" in form or "{{ csrf() }}" in form


def test_an_address_of_a_file_changes_with_its_content() -> None:
    rendering = Rendering()
    path = rendering.path_of("console.css")
    assert path == f"/static/console.css?{rendering.assets['console.css'].tag}"
    assert {Path(name).suffix for name in rendering.assets} == set(MEDIA_TYPES)
    assert "vendor/htmx.LICENSE" not in rendering.assets


def test_a_page_takes_no_value_for_html() -> None:
    row = dict.fromkeys(("id", "address", "in_per_s", "out_per_s", "disk", "aerobee", "version"))
    row |= {"broker": "a", "severity": "error", "word": "does not answer", "why": "<b>x</b>"}
    html = Rendering().page("brokers.html", "en", {"brokers": [row]})
    assert "&lt;b&gt;x&lt;/b&gt;" in html
