"""The body with which a broker registers its topics with a name server: REGISTER_BROKER.

Plain JSON, or a zlib stream around length-prefixed parts. A 5.x broker that compresses declares the
opposite, so the first byte decides. Source: nameserver §4.3.
"""

from __future__ import annotations

import struct
import zlib
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

import msgspec

from aerobee.remoting.errors import BodyError
from aerobee.remoting.wire import relaxed_json
from aerobee.remoting.wire.bodies.body import Body
from aerobee.remoting.wire.bodies.data_version import DataVersion
from aerobee.remoting.wire.bodies.topic import TopicConfig, TopicConfigSerializeWrapper

if TYPE_CHECKING:
    from collections.abc import Generator

V3_0_11 = 37
"""Before this version the body was the wrapper alone."""
ZLIB_MARK = 0x78
BYTES_MAX: Final = 8 << 20
"""The largest registration, after decompression."""
SIGNS_MAX: Final = 400_000
"""More than 20,000 topics as JSON, which is decoded in one step; brokers with more split or
compress."""
PART_BYTES_MAX: Final = 64 << 10
"""The largest topic of a compressed registration, and its filter servers."""
INFLATED_STEP: Final = 256 << 10
TOPICS_STEP: Final = 200
"""Topics of a compressed registration that are decoded in one step."""
TEXT_SHOWN: Final = 60
"""Characters of a wrong topic that are repeated to the peer."""
I32 = Struct(">i")


class RegisterBrokerBody(Body, msgspec.Struct, rename="camel", kw_only=True):
    """The topics of a broker, or those that changed."""

    filter_server_list: list[str] = []
    wrapper: TopicConfigSerializeWrapper = msgspec.field(
        default_factory=TopicConfigSerializeWrapper, name="topicConfigSerializeWrapper"
    )

    @property
    def topics(self) -> dict[str, TopicConfig]:
        """Topic name → settings."""
        return self.wrapper.topic_config_table

    @property
    def mapped(self) -> bool:
        """Whether it says which queues of static topics are where."""
        return bool(self.wrapper.topic_queue_mapping_info_map)

    @property
    def data_version(self) -> DataVersion:
        """The version of the broker's topic table."""
        return self.wrapper.data_version

    @classmethod
    def of(cls, topics: dict[str, TopicConfig], version: DataVersion) -> RegisterBrokerBody:
        """The body of our own broker."""
        return cls(
            wrapper=TopicConfigSerializeWrapper(data_version=version, topic_config_table=topics)
        )

    @classmethod
    def in_steps(
        cls, body: bytes | memoryview, *, version: int, compressed: bool | None = None
    ) -> Generator[None, None, RegisterBrokerBody]:
        """Decode the body of a broker of `version`; an empty body is an empty table. Raises:
        BodyError.

        Others may run at each yield.
        """
        if not body:
            return cls()
        if body[0] == ZLIB_MARK:
            return (yield from read_compressed((yield from inflated(body))))
        if compressed:
            raise BodyError("RegisterBrokerBody: is called compressed but is no zlib stream")
        if version < V3_0_11:
            return cls(wrapper=TopicConfigSerializeWrapper.from_client(body, BYTES_MAX, SIGNS_MAX))
        return cls.from_client(body, BYTES_MAX, SIGNS_MAX)


def inflated(body: bytes | memoryview) -> Generator[None, None, bytes]:
    """The body, decompressed.

    Raises: BodyError, also when it would become too long.
    """
    inflater = zlib.decompressobj()
    pieces, left, size = [], bytes(body), 0
    try:
        while not inflater.eof and size < BYTES_MAX:
            piece = inflater.decompress(left, INFLATED_STEP)
            left = inflater.unconsumed_tail
            if not piece and not left:
                break
            pieces.append(piece)
            size += len(piece)
            yield
    except zlib.error as error:
        raise BodyError(f"RegisterBrokerBody: {error}") from error
    if not inflater.eof:
        raise BodyError("RegisterBrokerBody: the zlib stream is cut or too long")
    return b"".join(pieces)


def read_compressed(data: bytes) -> Generator[None, None, RegisterBrokerBody]:
    """Decode an inflated body; of the queue mappings at its end only their number counts.

    Raises: BodyError.
    """
    try:
        text, at = part(data, 0)
        version = DataVersion.from_client(text)
        (count,) = I32.unpack_from(data, at)
        at += I32.size
        topics = {}
        for number in range(count):
            if number % TOPICS_STEP == TOPICS_STEP - 1:
                yield
            text, at = part(data, at)
            config = read_topic(text.decode())
            topics[config.topic_name] = config
        text, at = part(data, at)
        servers = msgspec.convert(relaxed_json.decode(text), list[str])
        mapped = at + I32.size <= len(data) and I32.unpack_from(data, at)[0] > 0
    except struct.error as error:
        raise BodyError("RegisterBrokerBody: ends before its last part") from error
    except ValueError as error:
        raise BodyError(f"RegisterBrokerBody: {error}") from error
    wrapper = TopicConfigSerializeWrapper(data_version=version, topic_config_table=topics)
    if mapped:
        wrapper.topic_queue_mapping_info_map = {"": {}}
    return RegisterBrokerBody(filter_server_list=servers, wrapper=wrapper)


def part(data: bytes, at: int) -> tuple[bytes, int]:
    """A length-prefixed part and where it ends. Raises: ValueError, struct.error."""
    (length,) = I32.unpack_from(data, at)
    start = at + I32.size
    if not 0 <= length <= min(PART_BYTES_MAX, len(data) - start):
        raise ValueError(f"a part of {length} bytes where {len(data) - start} are left")
    return data[start : start + length], start + length


def read_topic(text: str) -> TopicConfig:
    """`name read write perm FILTER_TYPE attributes`; 4.9 has no attributes. Raises: ValueError."""
    parts = text.split(" ", 5)
    if len(parts) < 5:
        raise ValueError(f"a topic is {text[:TEXT_SHOWN]!r}, not its name and four settings")
    name, read, write, perm, filter_type, *rest = parts
    attributes: dict[str, Any] = msgspec.json.decode(rest[0]) if rest else {}
    return TopicConfig(
        attributes=msgspec.convert(attributes, dict[str, str]),
        perm=int(perm),
        read_queue_nums=int(read),
        topic_filter_type=filter_type,
        topic_name=name,
        write_queue_nums=int(write),
    )
