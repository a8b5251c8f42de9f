"""Addresses of the pages. Pure."""

from __future__ import annotations

from urllib.parse import urlencode


def link(path: str, /, **query: object) -> str:
    """An address on these pages; what is None or empty is left out."""
    parameters = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(parameters, doseq=True)}" if parameters else path
