"""Builds the property string of every row, by Arrow in a few passes over the columns. Pure.

Invariant: no name and no value holds the bytes 1 and 2, which separate them. Source: spark §5.6,
store format §1.2.3.
"""

from __future__ import annotations

from hashlib import blake2b
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aerobee.client.message import RESERVED_PROPERTIES, check_property
from aerobee.client.namespaces import INSTANCE_ID
from aerobee.errors import ConfigurationError
from aerobee.spark.rows.buffers import byte_lengths, byte_offsets, value_bytes
from aerobee.store.format.properties import PROPERTIES_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    Place = Callable[[int], str]

IS = "\x01"
END = "\x02"
STAMP = "AB_SINK"
"""The property with write, partition, row and a digest of it: messages with the same value are of
one row. Behind a shuffle a task that is run again may have its rows in another order, so their
numbers alone would make one row look like a copy of another.
"""
DIGEST_BYTES = 8
PLAIN = ("topic", "brokerName", "queueId", "flag", "msgId")
"""Columns of a row, besides its body and its properties, that its digest covers."""
GIVE_WAY = ("WAIT", "AB_REPLAY_FROM", "AB_REPLAY")
"""Properties that we add and that a message can do without, the first to go first."""
BROKER_BYTES = 256
"""Room for what a broker adds to a message that it takes: its cluster, its region."""
TEXTS = {"tags": "TAGS", "keys": "KEYS", "shardingKey": "__SHARDINGKEY"}
"""The property of each column."""
DELAYS = {"delayLevel": "DELAY", "deliverTime": "TIMER_DELIVER_MS", "delayMs": "TIMER_DELAY_MS"}
TAGS_APART = "||"
READ_PROPERTIES = (
    ". Rows that were read have what brokers added, too: aerobee.spark.jobs.sending.outgoing takes "
    "it off, see examples/spark/mirror.py"
)
"""The advice for the column of a read."""
NAMES_KEPT = 10_000
"""The most valid property names that are cached."""


class PropertyTexts:
    """Builds property strings. `tags` is the default tag, `stamp` begins every AB_SINK."""

    def __init__(self, tags: str | None, stamp: str | None, namespace: str | None = None) -> None:
        self._tags = tags
        self._stamp = stamp
        self._of_all = {"WAIT": pa.scalar("true")}
        if namespace is not None:
            self._of_all[INSTANCE_ID] = pa.scalar(namespace)
        self._good_names: set[str] = set()

    def of(
        self, columns: Mapping[str, Any], ids: Sequence[str], first_row: int, place: Place
    ) -> tuple[Any, npt.NDArray[np.bool_]]:
        """The property strings, and which rows ask for delayed delivery.

        `place` names a row in an error. Raises: ConfigurationError.
        """
        count = len(ids)
        named = {"UNIQ_KEY": pa.array(ids, pa.string())}
        if "msgId" in columns:
            check_text("msgId", named["UNIQ_KEY"], place)
        for column, name in TEXTS.items():
            if column in columns:
                named[name] = as_text(columns[column])
                check_text(column, named[name], place)
        if "keys" in columns:
            check_keys(columns["keys"], place)
        if "tags" in columns and "msgId" not in columns:
            # A copied message keeps the properties that it had.
            check_tags(named["TAGS"], place)
        if self._tags is not None:
            tags = pa.scalar(self._tags)
            named["TAGS"] = pc.coalesce(named["TAGS"], tags) if "TAGS" in named else tags
        delays = {
            name: delay_text(column, columns[column], place)
            for column, name in DELAYS.items()
            if column in columns
        }
        alone = one_at_most(delays, count, place)
        named |= delays
        own = self._own(columns.get("properties"), place)
        if self._stamp is not None:
            users = [text for name, text in named.items() if name != "UNIQ_KEY"]
            users += [columns[name].cast(pa.string()) for name in PLAIN if name in columns]
            texts = joined(END, pa.nulls(count, pa.string()), own, *users)
            digests = digests_of(columns["body"], texts)
            stamps = [f"{self._stamp}:{row}:{it}" for row, it in enumerate(digests, first_row)]
            named[STAMP] = pa.array(stamps, pa.string())
        named |= self._of_all
        entries = [pc.binary_join_element_wise(name + IS, v, END, "") for name, v in named.items()]
        whole = joined("", own, *entries)
        return with_room(whole), alone

    def _own(self, column: Any, place: Place) -> Any:
        """Format the entries of the properties column. Raises: ConfigurationError."""
        if column is None:
            return ""
        if column.items.null_count:
            # An entry without a value is left out.
            rows = [
                row and [pair for pair in row if pair[1] is not None] for row in column.to_pylist()
            ]
            column = pa.array(rows, column.type)
        names, values = (
            as_text(column.keys, keep_empty=True),
            as_text(column.items, keep_empty=True),
        )
        self._check(column, names, values, place)
        texts = pc.binary_join_element_wise(names, IS, values, END, "")
        whole = pc.binary_join(pa.ListArray.from_arrays(column.offsets, texts), "")
        return pc.if_else(column.is_valid(), whole, "") if column.null_count else whole

    def _check(self, column: Any, names: Any, values: Any, place: Place) -> None:
        """Refuse entries that could not be read back. Raises: ConfigurationError."""
        new = set(pc.unique(names).to_pylist()) - self._good_names
        if (
            not has_separators(values)
            and byte_lengths(values).all()
            and not pc.any(pc.utf8_is_space(values)).as_py()
            and all(map(is_good_name, new))
        ):
            if len(self._good_names) < NAMES_KEPT:
                self._good_names |= new
            return
        for row, pairs in enumerate(column.to_pylist()):
            for name, value in pairs or ():
                try:
                    check_property(name, value)
                except ConfigurationError as error:
                    hint = READ_PROPERTIES if name in RESERVED_PROPERTIES else ""
                    raise ConfigurationError(f"{place(row)}: {error}{hint}") from None


def joined(between: str, *texts: Any) -> Any:
    """Strings of each row as one, with null as an empty string."""
    return pc.binary_join_element_wise(
        *texts, between, null_handling="replace", null_replacement=""
    )


def digests_of(bodies: Any, texts: Any) -> list[str]:
    """A digest of each body with its text, the same in every process."""
    digests = []
    for body, text in zip(pieces_of(bodies), pieces_of(texts), strict=True):
        digest = blake2b(body, digest_size=DIGEST_BYTES)
        digest.update(text)
        digests.append(digest.hexdigest())
    return digests


def pieces_of(array: Any) -> Iterator[memoryview]:
    """The bytes of each element of a string or binary array, without a copy."""
    data = memoryview(array.buffers()[2] or b"")
    return (data[start:end] for start, end in pairwise(byte_offsets(array).tolist()))


def with_room(texts: Any) -> Any:
    """The property strings without our own additions, where these leave brokers no room.

    A message of somebody else's may be as long as a broker takes it, and is copied all the same.
    """
    long = byte_lengths(texts) > PROPERTIES_BYTES_MAX - BROKER_BYTES
    if not long.any():
        return texts
    shortened = texts.to_pylist()
    for row in np.flatnonzero(long).tolist():
        for name in GIVE_WAY:
            if len(shortened[row].encode()) > PROPERTIES_BYTES_MAX - BROKER_BYTES:
                pairs = shortened[row].split(END)
                shortened[row] = END.join(pair for pair in pairs if not pair.startswith(name + IS))
    return pa.array(shortened, texts.type)


def is_good_name(name: str) -> bool:
    """Whether a string is a valid property name."""
    try:
        check_property(name, "value")
    except ConfigurationError:
        return False
    return True


def as_text(column: Any, *, keep_empty: bool = False) -> Any:
    """A column as strings: lists joined by spaces, empty strings as null unless `keep_empty`."""
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        keys = column.flatten()
        if keys.null_count or pc.any(pc.equal(keys, "")).as_py():
            rows = [row and [key for key in row if key] for row in column.to_pylist()]
            column = pa.array(rows, column.type)
        column = pc.binary_join(column.cast(pa.list_(pa.string())), " ")
    if not pa.types.is_string(column.type):
        column = column.cast(pa.string())
    if not keep_empty and not byte_lengths(column).all():
        column = pc.if_else(pc.equal(column, ""), None, column)
    return column


def has_separators(column: Any) -> bool:
    """Whether any string of the column has byte 1 or 2."""
    data = value_bytes(column)
    if not data.size or data.min() > 2:
        return False
    return bool(((data == 1) | (data == 2)).any())


def check_text(name: str, column: Any, place: Place) -> None:
    """Refuse values with a separator, which would end the property. Raises: ConfigurationError."""
    if has_separators(column):
        row = pc.index(pc.match_substring_regex(column, "[\\x01\\x02]"), True).as_py()
        raise ConfigurationError(
            f"{place(row)}: column {name} is {column[row].as_py()!r}; "
            "\\x01 and \\x02 separate properties"
        )


def check_utf8(name: str, column: Any, place: Place) -> None:
    """Refuse texts of other bytes than UTF-8, which Spark passes. Raises: ConfigurationError."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        for row, value in enumerate(column):
            try:
                value.as_py()
            except UnicodeDecodeError as error:
                raise ConfigurationError(
                    f"{place(row)}: column {name} has bytes that are not UTF-8: {error}"
                ) from None


def check_keys(column: Any, place: Place) -> None:
    """Refuse list elements that would be read as several keys. Raises: ConfigurationError."""
    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        return
    keys = column.flatten()
    spaced = pc.index(pc.match_substring(keys, " "), True).as_py()
    if spaced >= 0:
        row = pc.list_parent_indices(column)[spaced].as_py()
        raise ConfigurationError(
            f"{place(row)}: key {keys[spaced].as_py()!r} has a space, which separates keys"
        )


def check_tags(column: Any, place: Place) -> None:
    """Refuse tags that no subscription can match. Raises: ConfigurationError."""
    row = pc.index(pc.match_substring(column, TAGS_APART), True).as_py()
    if row >= 0:
        raise ConfigurationError(
            f"{place(row)}: column tags is {column[row].as_py()!r}; a message has one tag, and "
            f"{TAGS_APART} separates those of a subscription"
        )


def delay_text(name: str, column: Any, place: Place) -> Any:
    """Format a delay as the value of its property, in ms or as a level; null for none."""
    if name == "deliverTime":
        return milliseconds(column).cast(pa.string())
    below = pc.index(pc.less(column, 0), True).as_py()
    if below >= 0:
        raise ConfigurationError(f"{place(below)}: {name} is {column[below].as_py()}")
    return pc.if_else(pc.equal(column, 0), None, column.cast(pa.string()))


def milliseconds(column: Any) -> Any:
    """Timestamps as ms since the epoch, independent of the column's time zone."""
    return column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())


def one_at_most(delays: Mapping[str, Any], count: int, place: Place) -> npt.NDArray[np.bool_]:
    """Which rows have a delay. Raises: ConfigurationError for a row with more than one."""
    how_many = np.zeros(count, np.int8)
    for column in delays.values():
        how_many += np.asarray(column.is_valid())
    if (how_many > 1).any():
        row = int((how_many > 1).argmax())
        raise ConfigurationError(
            f"{place(row)}: delayLevel, deliverTime and delayMs exclude each other"
        )
    delayed: npt.NDArray[np.bool_] = how_many > 0
    return delayed
