"""The scripts of others: exactly what their makers published, with licence, and in the wheel."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from aerobee.broker.console import pages

VENDOR = Path(pages.__file__).parent / "static" / "vendor"
PINNED = {
    "htmx.min.js": (
        "htmx.org 4.0.1",
        "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130",
    ),
    "htmx.LICENSE": (
        "Zero-Clause BSD",
        "d3d2456f76414f2456104660ebd65aff1c04cd7966b942bdabd63f3cdb316a38",
    ),
    "uPlot.min.js": (
        "uplot 1.6.32",
        "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    ),
    "uPlot.min.css": (
        "uplot 1.6.32",
        "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    ),
    "uPlot.LICENSE": (
        "The MIT License",
        "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
    ),
}
"""File → what it is, and its SHA-256."""


@pytest.mark.parametrize("name", PINNED)
def test_a_foreign_file_is_what_was_published(name: str) -> None:
    assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == PINNED[name][1]


def test_every_foreign_file_is_pinned_and_named_with_its_version() -> None:
    assert {path.name for path in VENDOR.iterdir()} == {*PINNED, "README.md"}
    page = (VENDOR / "README.md").read_text("utf-8")
    for name in ("htmx.min.js", "uPlot.min.js", "uPlot.min.css"):
        package, _, version = PINNED[name][0].partition(" ")
        assert f"| `{name}` | `{package}` {version}, " in page


@pytest.mark.parametrize("name", ["htmx.LICENSE", "uPlot.LICENSE"])
def test_the_licence_beside_it_allows_to_hand_it_on(name: str) -> None:
    text = (VENDOR / name).read_text("utf-8")
    assert PINNED[name][0] in text
    assert "hereby granted" in text
