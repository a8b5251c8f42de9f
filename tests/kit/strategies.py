"""What properties are tried on: texts, headers of every class, frames, cuts of a byte stream."""

from __future__ import annotations

import importlib
import pkgutil
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
from hypothesis import strategies as st

import aerobee.remoting.wire.headers
from aerobee.remoting.wire.header import I32, I64, Header, fields_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hypothesis.strategies import SearchStrategy

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
texts: SearchStrategy[str] = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
"""Anything that UTF-8 can carry, control characters and quotes included."""
names: SearchStrategy[str] = st.from_regex(r"[%|a-zA-Z0-9_-]{1,40}", fullmatch=True)

VALUES: dict[Any, SearchStrategy[Any]] = {str: texts, bool: st.booleans(), I32: int32, I64: int64}


def declared(cls: type[Header] = Header) -> Iterator[type[Header]]:
    """Every header class there is."""
    for module in pkgutil.iter_modules(aerobee.remoting.wire.headers.__path__):
        importlib.import_module(f"{aerobee.remoting.wire.headers.__name__}.{module.name}")
    for below in cls.__subclasses__():
        if below.__module__.startswith("aerobee.remoting."):
            yield below
            yield from declared(below)


HEADERS: Sequence[type[Header]] = sorted(set(declared()), key=lambda cls: cls.__name__)


@st.composite
def headers(draw: st.DrawFn, *, empty_texts: bool = True) -> Header:
    """A header of any class, with any of its optional fields.

    Without `empty_texts` no text is empty: type 1 cannot tell that from an absent one.
    """
    cls = draw(st.sampled_from(HEADERS))
    absent = {field.name for field in msgspec.structs.fields(cls) if field.default is None}
    values = {}
    for field in fields_of(cls):
        value = VALUES[field.kind]
        if field.kind is str and not empty_texts:
            value = texts.filter(bool)
        values[field.attribute] = draw(st.none() | value if field.attribute in absent else value)
    return cls(**values)


def cuts(length: int) -> SearchStrategy[list[int]]:
    """Where a stream of `length` bytes is cut."""
    return st.lists(st.integers(0, length), max_size=12).map(sorted)


def cut(stream: bytes, at: Sequence[int]) -> list[bytes]:
    """The pieces of a stream."""
    places = [0, *at, len(stream)]
    return [stream[a:b] for a, b in pairwise(places)]
