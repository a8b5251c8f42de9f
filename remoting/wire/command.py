"""One request or answer: the envelope, with its ext fields undecoded until they are typed.

    frame → decode → Command → .header(SendMessageV2) → SendMessageV2
    (Command, Header) → answer_head → length prefix and header, in the encoding of the request

Source: remoting §1.4–1.9 (RemotingCommand).
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Raw

from aerobee.remoting.errors import FrameError
from aerobee.remoting.wire.codec import json_header, msgpack_header, rocketmq_header
from aerobee.remoting.wire.codec.envelope import MAX_EXT_FIELDS
from aerobee.remoting.wire.codes import VERSION, Encoding
from aerobee.remoting.wire.frame import HEAD, MAX_FRAME_BYTES
from aerobee.remoting.wire.header import (
    Header,
    by_position,
    number_names,
    read_fields,
    reader,
    text_writer,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Ext: TypeAlias = Raw | dict[str, Any] | list[Any]
    Buffer: TypeAlias = bytes | memoryview
else:
    # The annotation for msgspec, which takes no union with Raw.
    Ext = Raw
    Buffer = Any

RESPONSE = 1
"""Flag bit: an answer."""
ONEWAY = 2
"""Flag bit: a request that is never answered."""

JSON = int(Encoding.JSON)
ROCKETMQ = int(Encoding.ROCKETMQ)
MSGPACK = int(Encoding.MSGPACK)
OUR_LANGUAGE = "JAVA"
"""The language of answers: some clients know few languages, and all know this one."""
NO_EXT = Raw(b"{}")
OPAQUE_ZERO = b'"opaque":0'

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
H = TypeVar("H", bound=Header)


class Command(msgspec.Struct, gc=False):
    """One request or answer.

    Invariant: the fields after `ext` never come from the peer's header: `decode` sets each of them,
    and the server `arrived`.
    `body` and `ext` may be views of the receive buffer: call `detached` before that is used again.
    """

    code: Int32 = 0
    opaque: Int32 = 0
    flag: Int32 = 0
    language: str | int | None = None
    """A name, or the number of a language that we do not know."""
    version: Int32 = 0
    remark: str | None = None
    ext: Ext = msgspec.field(default=NO_EXT, name="extFields")
    encoding: int = JSON
    body: Buffer = b""
    pool: Any = None
    """The pool that counts the request, while it does; used by the server."""
    answered: bool = False
    """Whether it has been answered; used by the server."""
    arrived: float = 0.0
    """Its arrival time on the loop's clock."""

    @property
    def oneway(self) -> bool:
        """Whether the sender expects no answer."""
        return self.flag & ONEWAY != 0

    @property
    def is_response(self) -> bool:
        """Whether this answers a request."""
        return self.flag & RESPONSE != 0

    def header(self, cls: type[H]) -> H:
        """The ext fields, typed. Raises: HeaderError naming the field."""
        ext = self.ext
        if type(ext) is Raw:
            try:
                typed: H = reader(cls)(ext)
                return typed
            except (ValueError, RecursionError):
                return read_fields(cls, json_header.ext_fields(memoryview(ext)))
        return read_fields(cls, ext if isinstance(ext, dict) else by_position(cls, ext))

    def ext_fields(self) -> dict[str, str]:
        """The ext fields as texts; none of a positional header. Raises: HeaderError."""
        ext = self.ext
        if type(ext) is Raw:
            try:
                fields: dict[str, str] = _texts(ext)
                if len(fields) <= MAX_EXT_FIELDS:
                    return fields
            except (ValueError, RecursionError):
                pass
            return json_header.ext_fields(memoryview(ext))
        if isinstance(ext, dict):
            return {name: json_header.scalar(v) for name, v in ext.items() if v is not None}
        return {}

    def uncount(self) -> None:
        """There will be no answer: remove the request from its pool's count."""
        if self.pool is not None:
            self.pool.depth -= 1
            self.pool = None

    def detached(self) -> Command:
        """Itself, with copies in place of views of the receive buffer."""
        if type(self.ext) is Raw:
            self.ext = self.ext.copy()
        self.body = bytes(self.body)
        return self

    def release(self) -> None:
        """Keep only what its answer needs, and drop the frame that it came in."""
        self.ext = NO_EXT
        self.body = b""


class RequestLine(msgspec.Struct, gc=False):
    """The part of a request's header that its refusal needs."""

    code: Int32 = 0
    opaque: Int32 = 0
    flag: Int32 = 0


request_line = msgspec.json.Decoder(RequestLine).decode
"""The line of a strict JSON header, in half of the time of `decode`. Raises: ValueError."""


# The lax decoder takes texts for numbers, as the lenient decoder does, and 3.0 for 3, as Java does.
_lax = msgspec.json.Decoder(Command, strict=False).decode
_texts = msgspec.json.Decoder(dict[str, str]).decode


def decode(encoding: int, header: memoryview | bytes, body: memoryview | bytes) -> Command:
    """A frame's command. Raises: FrameError when its header does not decode."""
    if encoding == JSON:
        try:
            command = _lax(header)
        except (ValueError, RecursionError):
            command = Command(*json_header.decode(header))
    elif encoding == ROCKETMQ:
        command = Command(*rocketmq_header.decode(header))
    elif encoding == MSGPACK:
        command = Command(*msgpack_header.decode(header))
    else:
        raise FrameError(f"unknown header type {encoding}")
    command.encoding = encoding
    command.body = body
    command.pool = None
    command.answered = False
    return command


@cache
def typed_decoder(cls: type[H]) -> Callable[[Buffer, Buffer], tuple[Command, H]]:
    """JSON header and body → command and typed ext fields, read together, in half of the time.

    The command has no ext fields left. Raises: FrameError, HeaderError.
    """
    none: Any = None  # Not of the type None, which compiled code would then expect of the field.
    fields = [("ext", cls | None, msgspec.field(name="extFields", default=none))]
    typed = msgspec.defstruct(f"{cls.__name__}Command", fields, bases=(Command,), gc=False)
    # The typed decoder takes the envelopes that `decode` takes; a header that it refuses is decoded
    # by the rules.
    lax = msgspec.json.Decoder(typed, strict=False).decode

    def decode_typed(header: Buffer, body: Buffer) -> tuple[Command, H]:
        try:
            command: Any = lax(header)
        except (ValueError, RecursionError):
            command = None
        if command is None or command.ext is None:
            command = decode(JSON, header, body)
            return command, command.header(cls)
        ext: H = command.ext
        command.ext = NO_EXT
        command.encoding = JSON
        command.body = body
        command.pool = None
        command.answered = False
        return command, ext

    return decode_typed


def encode_request(
    code: int,
    opaque: int,
    header: Header | Mapping[str, str] | None,
    body: bytes | memoryview = b"",
    *,
    encoding: int = JSON,
    oneway: bool = False,
    version: int = VERSION,
    language: str = OUR_LANGUAGE,
    remark: str | None = None,
) -> bytes:
    """Encode a whole frame. Raises: FrameError when it is longer than any peer takes."""
    flag = ONEWAY if oneway else 0
    head = encode_header(
        encoding, code, opaque, flag, header, remark, language, version, positional=True
    )
    length = 4 + len(head) + len(body)
    if 4 + length > MAX_FRAME_BYTES:
        raise FrameError(f"frame of {length} bytes, peers take at most {MAX_FRAME_BYTES - 4}")
    return b"".join((HEAD.pack(length, encoding << 24 | len(head)), head, body))


def answer_head(
    request: Command,
    answer_code: int,
    header: Header | Mapping[str, str] | None,
    remark: str | None,
    body_length: int,
) -> bytes:
    """Length prefix and header of an answer whose body follows, in the encoding of the request."""
    encoding = request.encoding
    if encoding == JSON:
        if isinstance(header, Header):
            template = _of_numbers(type(header), answer_code, remark)
            if template is not None:
                head = template % (request.opaque, *_values(header))
                return HEAD.pack(4 + len(head) + body_length, len(head)) + head
            ext: msgspec.Struct | Mapping[str, str] | None = text_writer(type(header))(header)
        else:
            ext = header
        head = json_header.encode(
            answer_code, request.opaque, RESPONSE, ext, remark, OUR_LANGUAGE, VERSION
        )
    else:
        # An error's fields are not those that the operation's class lists by position.
        language = "PYTHON" if encoding == MSGPACK else OUR_LANGUAGE
        head = encode_header(
            encoding,
            answer_code,
            request.opaque,
            RESPONSE,
            header,
            remark,
            language,
            VERSION,
            positional=answer_code == 0,
        )
    return HEAD.pack(4 + len(head) + body_length, encoding << 24 | len(head)) + head


_values = msgspec.structs.astuple


@lru_cache(maxsize=256)
def _of_numbers(cls: type[Header], answer_code: int, remark: str | None) -> bytes | None:
    """The JSON header of an answer whose fields are all numbers, to be filled with its opaque and
    these; None for another class.
    """
    names = number_names(cls)
    if names is None:
        return None
    remark = None if remark is None else remark.replace("%", "%%")
    return b"%d".join(answer_around(answer_code, remark, dict.fromkeys(names, "%d")))


def answer_around(
    answer_code: int, remark: str | None, fields: Mapping[str, str] | None = None
) -> tuple[bytes, bytes]:
    """The bytes before and behind the opaque in the JSON header of an answer."""
    head = json_header.encode(answer_code, 0, RESPONSE, fields, remark, OUR_LANGUAGE, VERSION)
    before, after = head.split(OPAQUE_ZERO, 1)
    return before + OPAQUE_ZERO[:-1], after


def encode_header(
    encoding: int,
    code: int,
    opaque: int,
    flag: int,
    header: Header | Mapping[str, str] | None,
    remark: str | None,
    language: str,
    version: int,
    *,
    positional: bool,
) -> bytes:
    """Encode a header in any encoding; `positional` leaves the names out where the encoding can."""
    if encoding == JSON:
        texts = text_writer(type(header))(header) if isinstance(header, Header) else header
        return json_header.encode(code, opaque, flag, texts, remark, language, version)
    if encoding == MSGPACK and positional and isinstance(header, Header):
        values = header.positional()
        return msgpack_header.encode(code, opaque, flag, values, remark, language, version)
    ext = header.ext() if isinstance(header, Header) else header or {}
    if encoding == MSGPACK:
        return msgpack_header.encode(code, opaque, flag, ext, remark, language, version)
    return rocketmq_header.encode(code, opaque, flag, ext, remark, language, version)
