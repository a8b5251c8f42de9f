"""What a key changes about what `aerobee top` shows."""

import pytest

from aerobee.cli.top_view import SORTED_BY, View

ROWS = [
    {"group": "b", "lag": 1, "per_s": None, "topics": ["Orders"]},
    {"group": "a", "lag": 30, "per_s": 2.0, "topics": ["Mails"]},
    {"group": "c", "lag": 4, "per_s": 9.5, "topics": ["Orders", "Mails"]},
]
COLUMNS = list(ROWS[0])


def pressed(*keys: str) -> View:
    view = View()
    for key in keys:
        assert view.press(key, COLUMNS)
    return view


def shown(view: View) -> str:
    return "".join(str(row["group"]) for row in view.arranged(ROWS))


def test_numbers_go_down_and_texts_go_up() -> None:
    assert shown(View()) == "acb"
    assert shown(View(column="group")) == "abc"


def test_what_is_not_known_comes_last_in_both_directions() -> None:
    assert shown(View(column="per_s")) == "cab"
    assert shown(View(column="per_s", reverse=True)) == "acb"


@pytest.mark.parametrize(
    ("keys", "groups"),
    [
        ((">",), "cab"),
        (("\x1b[C",), "cab"),
        (("<",), "abc"),
        (("<", "<", "r"), "cba"),  # round the end: topics, as text
        (("r",), "bca"),
        (("r", "r"), "acb"),
        ((*"/orders", "\n"), "cb"),
        ((*"/ordersx", "\x7f", "\n"), "cb"),
        ((*"/orders", "\x1b"), "acb"),
        ((*"/orders", "\n", "\x1b"), "acb"),
        ((*"/A", "\n"), "ac"),  # Mails as well
    ],
)
def test_keys_sort_turn_round_and_filter(keys: tuple[str, ...], groups: str) -> None:
    assert shown(pressed(*keys)) == groups


def test_q_quits_but_not_within_a_filter() -> None:
    assert not View().press("q", COLUMNS)
    assert pressed("/", "q").pattern == "q"


def test_another_view_is_sorted_its_own_way() -> None:
    view = pressed("<", "r", "t")
    assert (view.name, view.sorted_by, view.reverse) == ("topics", SORTED_BY["topics"], False)


def test_the_line_below_says_what_counts() -> None:
    assert "groups by lag · q quit" in View().line
    assert "filter: or▏" in pressed("/", "o", "r").line
    assert "only 'or'" in pressed("/", "o", "r", "\n").line
