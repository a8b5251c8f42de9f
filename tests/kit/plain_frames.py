"""A frame read by forty plain lines that share nothing with the product's codec.

Source: remoting §1.3 to §1.5.
"""

import json
import struct
from collections.abc import Mapping
from typing import NamedTuple


class Plain(NamedTuple):
    """A frame of type 0 or 1, all of it but the language."""

    code: int
    opaque: int
    flag: int
    version: int
    remark: str | None
    ext: Mapping[str, str]
    body: bytes


def read_plainly(frame: bytes) -> Plain:
    """One whole frame, its length included. Raises: what reading nonsense raises."""
    length, mark = struct.unpack_from(">II", frame)
    assert len(frame) == length + 4
    end = 8 + (mark & 0xFFFFFF)
    reader = {0: _read_json, 1: _read_rocketmq}[mark >> 24]
    return reader(frame[8:end])._replace(body=frame[end:])


def _read_json(header: bytes) -> Plain:
    found = json.loads(header)
    ext = {name: str(value) for name, value in (found.get("extFields") or {}).items()}
    envelope = (found["code"], found["opaque"], found["flag"], found["version"])
    return Plain(*envelope, found.get("remark") or None, ext, b"")


def _read_rocketmq(header: bytes) -> Plain:
    code, _, version, opaque, flag, remark_length = struct.unpack_from(">hBhiii", header)
    at = 17 + remark_length
    remark = header[17:at].decode() or None
    end, at = at + 4 + int.from_bytes(header[at : at + 4], "big"), at + 4
    ext = {}
    while at < end:
        key_end = at + 2 + int.from_bytes(header[at : at + 2], "big")
        value_end = key_end + 4 + int.from_bytes(header[key_end : key_end + 4], "big")
        ext[header[at + 2 : key_end].decode()] = header[key_end + 4 : value_end].decode()
        at = value_end
    assert end == len(header)
    return Plain(code, opaque, flag, version, remark, ext, b"")
