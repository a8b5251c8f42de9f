from functools import partial
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from aerobee.errors import ConfigurationError
from aerobee.spark import option_values as values
from aerobee.spark.offsets import (
    CommittedPosition,
    EarliestPosition,
    ExplicitPosition,
    LatestPosition,
    Queue,
    TimePosition,
)
from aerobee.spark.option_values import BYTES, SECONDS, OptionDeclaration, declared
from tests.pages.spark_options import SECTIONS

MODE = Literal["TAG", "SQL92"]


def of(hint: Any) -> values.Parse:
    """What reads the texts for a field of that type."""
    return partial(values.value, hint=hint)


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (of(bool), " TRUE ", True),
        (of(bool), "no", False),
        (of(Annotated[int, Meta(ge=1)]), " 12 ", 12),
        (of(Annotated[int, Meta(ge=1, le=1 << 40), BYTES]), "64m", 64 << 20),
        (of(Annotated[int, Meta(ge=1, le=1 << 40), BYTES]), "32 MiB", 32 << 20),
        (of(Annotated[int, Meta(ge=1, le=1 << 40), BYTES]), "100", 100),
        (of(Annotated[float, SECONDS]), "15m", 900.0),
        (of(Annotated[float, SECONDS]), "500ms", 0.5),
        (of(Annotated[float, SECONDS]), "250", 0.25),
        (values.time_ms, "1700000000000", 1_700_000_000_000),
        (values.time_ms, "2023-11-14T22:13:20Z", 1_700_000_000_000),
        (values.time_ms, "2023-11-15 06:13:20.5+08:00", 1_700_000_000_500),
        (of(MODE), "sql92", "SQL92"),
        (values.names, "a, b,a,", ("a", "b")),
        (values.brokers, "broker-a, b", ("broker-a", "b")),
        (values.brokers, " 2 ", 2),
        (values.topics, "%DLQ%g,orders", ("%DLQ%g", "orders")),
        (values.addresses, "h1;h2:1", ("h1:9876", "h2:1")),
        (values.assignment, '{"t":{"b":[1,0]}}', (Queue("t", "b", 0), Queue("t", "b", 1))),
        (values.offsets, "Earliest", EarliestPosition()),
        (values.offsets, "latest", LatestPosition()),
        (values.offsets, "committed", CommittedPosition()),
        (values.offsets, '{"t":{"b":{"0":-2}}}', ExplicitPosition({Queue("t", "b", 0): -2})),
        (
            values.offsets,
            '{"t":"earliest","u":-1,"v":{"b":{"0":3}}}',
            ExplicitPosition({Queue("v", "b", 0): 3}, {"t": -2, "u": -1}),
        ),
        (
            values.times,
            '{"t":17,"u":"1970-01-01T00:00:01Z"}',
            TimePosition(topics={"t": 17, "u": 1000}),
        ),
        (values.times, '{"t":{"b":{"0":17}}}', TimePosition(queues={Queue("t", "b", 0): 17})),
    ],
)
def test_texts_become_values(parse: values.Parse, text: str, value: object) -> None:
    assert parse("x", text) == value


@pytest.mark.parametrize(
    ("parse", "text", "said"),
    [
        (values.text, " ", "is not a text"),
        (of(bool), "maybe", "'maybe' is not true or false"),
        (of(Annotated[int, Meta(ge=1)]), "0", "'0' is not a whole number, 1 or more"),
        (of(Annotated[int, Meta(ge=1, le=9)]), "10", "is not a whole number, 1 to 9"),
        (of(Annotated[int, Meta(ge=1)] | None), "9223372036854775808", "a whole number, 1 or more"),
        (of(Annotated[int, Meta(ge=1)]), "1e3", "is not a whole number"),
        (
            of(Annotated[int, Meta(ge=1, le=1 << 20), BYTES]),
            "2m",
            "is not a size of 1 to 1048576 bytes",
        ),
        (of(Annotated[float, SECONDS]), "15 parsecs", "is not a duration such as"),
        (values.time_ms, "yesterday", "is not milliseconds since the epoch or an ISO-8601 time"),
        (values.time_ms, "2023-11-14T22:13:20", "is not a time with a zone; add Z"),
        (of(MODE), "regex", "is not one of TAG, SQL92"),
        (values.names, " , ", "is not a name or a comma list"),
        (values.topics, "a,b c", "topic 'b c': use letters"),
        (values.group, "g" * 200, "is longer than 120 characters"),
        (values.addresses, "h:x", "'h:x' is no address"),
        (values.pattern, "(", "is not a regular expression"),
        (values.pattern, "a{4294967296}", "is not a regular expression"),
        (values.pattern, "(" * 10_000, "is not a regular expression"),
        (values.assignment, "[0]", "is not an object such as"),
        (values.assignment, "{}", "is not an object such as"),
        (values.assignment, '{"t":{"b":[0]},"t":{"b":[1]}}', "'t' stands twice"),
        (values.assignment, '{"t":[0]}', "is not an object such as"),
        (values.assignment, '{"t":{"b":[-1]}}', "topic t, broker b: a list of queue numbers"),
        (values.assignment, '{"t":{"b":[2147483648]}}', "broker b: a list of queue numbers"),
        (values.assignment, "[" * 100_000, "is not an object such as"),
        (values.offsets, "newest", "is not earliest, latest, committed or"),
        (values.offsets, '{"t":{"b":{"0":-3}}}', "topic t, broker b, queue 0: -3 is not"),
        (values.times, "{}", "is not an object such as"),
        (values.times, '{"t":null}', "is not an object such as"),
        (values.times, '{"t":"noon"}', "x, topic t: 'noon' is not"),
        (values.times, '{"t":{"b":{"0":-1}}}', "topic t, broker b, queue 0: -1 is not"),
    ],
)
def test_what_is_wrong_is_said_with_the_name_of_the_option(
    parse: values.Parse, text: str, said: str
) -> None:
    with pytest.raises(ConfigurationError, match=r"^option x") as caught:
        parse("x", text)
    assert said in str(caught.value)


OPTIONS = [option for cls in SECTIONS.values() for option in declared(cls)]


# Python warns the writer of a pattern such as [[a].
@pytest.mark.filterwarnings("ignore:Possible:FutureWarning")
@given(st.sampled_from(OPTIONS), st.text(max_size=30) | st.sampled_from(['{"a":[]}', "[[", "-1"]))
def test_no_text_breaks_a_parser(option: OptionDeclaration, text: str) -> None:
    said = parsed(option, text)
    assert said is None or option.names[0] in said


def parsed(option: OptionDeclaration, text: str) -> str | None:
    """What the error says, if there is one."""
    try:
        values.value(option.names[0], text, option.hint)
    except ConfigurationError as error:
        return str(error)
    return None
