"""Hypothesis strategies: SQL filters by their grammar, and properties that some of them want."""

from typing import TypeAlias

from hypothesis import strategies as st

Texts: TypeAlias = st.SearchStrategy[str]

NAMES = ["a", "b", "c", "price", "$_0"]
LITERALS = [
    *("1", "2", "0", "-1", "2147483647", "2147483648", "5000000000L", "1.5", ".5", "2.", "1e3"),
    *("'1'", "'x'", "'true'", "''", "'it''s'", "'1.5'", "'é'", "TRUE", "false", "NULL"),
]
VALUES = [
    *("1", "2", "x", "xx1", "true", "TRUE", "1.5", "1.0", "5000000000", "NaN", "-0.0", "0", "-1"),
    *("1e3", "2f", " 1 ", "it's", "é", "-Infinity", "1_0", "+2", "", "9" * 40),
]
SPACES = st.sampled_from([" ", "  ", "\n", "\t", " /* x */ ", " -- y\n "])
TEXTS = st.sampled_from(["'x'", "'1'", "''", "'it''s'", "'.'", "'é'"])

properties = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(VALUES), max_size=5)
texts = st.text(st.sampled_from("aNOT'\"1.0e()<>=,-+/* \n\x00é;"), max_size=40)
"""Mostly no filters at all."""


@st.composite
def expressions(draw: st.DrawFn) -> str:
    """A filter by the grammar; what may not be compared is still refused."""
    text: str = draw(disjunction)
    return text


def spaced(*desk: Texts | str) -> Texts:
    """The parts with something between them."""
    pieces: list[Texts] = []
    for part in desk:
        pieces += [st.just(part) if isinstance(part, str) else part, SPACES]
    return st.tuples(*pieces[:-1]).map("".join)


def chained(part: Texts, *links: Texts) -> Texts:
    """The part, followed by up to two links."""
    return st.tuples(part, st.lists(st.one_of(*links), max_size=2)).map(
        lambda found: " ".join([found[0], *found[1]])
    )


MAYBE_NOT = st.sampled_from(["", "NOT", "not"])
disjunction: Texts = st.deferred(lambda: chained(conjunction, spaced("OR", conjunction)))
conjunction: Texts = st.deferred(lambda: chained(equality, spaced("AND", equality)))
equality: Texts = st.deferred(
    lambda: chained(
        comparison,
        spaced(st.sampled_from(["=", "<>"]), comparison),
        st.sampled_from(["IS NULL", "is NOT NULL"]),
    )
)
comparison: Texts = st.deferred(
    lambda: st.one_of(
        unary,
        unary,
        spaced(unary, st.sampled_from([">", ">=", "<", "<="]), unary),
        spaced(unary, MAYBE_NOT, "BETWEEN", unary, "AND", unary),
        spaced(unary, MAYBE_NOT, "IN", "(", TEXTS, ",", TEXTS, ")"),
        spaced(unary, MAYBE_NOT, st.sampled_from(["CONTAINS", "startswith", "ENDSWITH"]), TEXTS),
    )
)
unary: Texts = st.deferred(
    lambda: st.one_of(primary, primary, primary, spaced(st.sampled_from(["+", "-", "NOT"]), unary))
)
primary: Texts = st.deferred(
    lambda: st.one_of(
        st.sampled_from(NAMES),
        st.sampled_from(NAMES),
        st.sampled_from(LITERALS),
        spaced("(", disjunction, ")"),
    )
)
