"""Type 2: one msgpack array, between Aerobee peers that agreed on it.

    [code, flag, opaque, ext, remark, language, version]

Defaults at the end of the array are left out: ext nil, remark nil, language 3 (PYTHON), and our own
version, since both ends have the same. Ext is a map of scalars, or the values alone in the order of
the header's declaration. Source: remoting §1.6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgpack  # type: ignore[import-untyped] # ships no types

from aerobee.remoting.errors import FrameError
from aerobee.remoting.wire.codec.envelope import MAX_INT32, MIN_INT32, Envelope, check_ext_count
from aerobee.remoting.wire.codes import LANGUAGE_CODES, LANGUAGES, VERSION, LanguageCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LEAST = 3
MOST = 7
PYTHON = int(LanguageCode.PYTHON)
SCALARS = frozenset({str, int, bool, type(None)})
TEXT = frozenset({str})
INT = frozenset({int})
DEFAULTS = (None, None, PYTHON, VERSION)

_pack = msgpack.Packer().pack


def decode(header: memoryview | bytes) -> Envelope:
    """The envelope that a MessagePack header holds. Raises: FrameError."""
    size = len(header)
    try:
        values = msgpack.unpackb(
            header,
            raw=False,
            strict_map_key=True,
            max_str_len=size,
            max_bin_len=0,
            max_array_len=size,
            max_map_len=size,
            max_ext_len=0,
        )
    except (ValueError, msgpack.UnpackException, RecursionError) as error:
        raise FrameError(f"header is not msgpack: {error}") from error
    if type(values) is not list or not LEAST <= len(values) <= MOST:
        raise FrameError(f"header is no array of {LEAST} to {MOST} elements")
    values += DEFAULTS[len(values) - LEAST :]
    code, flag, opaque, ext, remark, language, version = values
    numbers = (code, flag, opaque, language, version)
    if (
        not INT.issuperset(map(type, numbers))
        or min(numbers) < MIN_INT32
        or max(numbers) > MAX_INT32
    ):
        raise FrameError("a number of the header is no int32")
    if remark is not None and type(remark) is not str:
        raise FrameError("header remark is no text")
    name = LANGUAGES.get(language, language)
    return Envelope(code, opaque, flag, name, version, remark, checked_ext(ext))


def checked_ext(ext: Any) -> dict[str, Any] | list[Any]:
    """The fields, if they are nil, a map of scalars under texts, or a list of scalars.

    Raises: FrameError unless it is nil, a map of scalars under texts, or a list of scalars.
    """
    if ext is None:
        return {}
    if not isinstance(ext, dict | list):
        raise FrameError("ext is neither a map nor an array")
    check_ext_count(len(ext))
    if isinstance(ext, dict) and not TEXT.issuperset(map(type, ext)):
        raise FrameError("an ext field's name is no text")
    if not SCALARS.issuperset(map(type, ext.values() if isinstance(ext, dict) else ext)):
        raise FrameError("an ext value is no scalar")
    return ext


def encode(
    code: int,
    opaque: int,
    flag: int,
    ext: Mapping[str, Any] | Sequence[Any] | None,
    remark: str | None,
    language: str,
    version: int,
) -> bytes:
    """Encode a header, without trailing defaults."""
    number = LANGUAGE_CODES.get(language, LanguageCode.OTHER)
    values = [int(code), flag, opaque, ext or None, remark, int(number), version]
    at = MOST
    while at > LEAST and values[at - 1] == DEFAULTS[at - 1 - LEAST]:
        at -= 1
    header: bytes = _pack(values[:at])
    return header
