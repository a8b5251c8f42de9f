"""The file that remembers where a stream began: first answer, last answer, bad answers."""

import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from aerobee.errors import ConfigurationError
from aerobee.spark.source.state_location import StateLocation

FIRST = {"orders": {"broker-a": {"0": 5, "10": 7}}}
SECOND = {"orders": {"broker-a": {"0": 9, "10": 9}}}


def test_the_first_offsets_that_are_kept_stay(tmp_path: Path) -> None:
    assert StateLocation(str(tmp_path), "orders").read() is None
    assert StateLocation(str(tmp_path), "orders").settle("latest", FIRST) == FIRST
    assert StateLocation(str(tmp_path), "orders").settle("latest", SECOND) == FIRST
    assert StateLocation(f"file://{tmp_path}", "orders").read() == FIRST


def test_all_who_start_at_once_agree(tmp_path: Path) -> None:
    def settled(number: int) -> object:
        state = StateLocation(str(tmp_path), "orders")
        return state.settle("latest", {"orders": {"broker-a": {"0": number}}})

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(settled, range(32)))
    assert answers == answers[:1] * 32


def test_the_folder_is_made_and_nothing_but_the_file_is_left(tmp_path: Path) -> None:
    state = StateLocation(str(tmp_path / "a" / "b"), "orders")
    state.settle("latest", FIRST)
    state.settle("latest", SECOND)
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == [state.name]


def test_each_source_has_its_own_file(tmp_path: Path) -> None:
    StateLocation(str(tmp_path), "orders").settle("latest", FIRST)
    assert StateLocation(str(tmp_path), "payments").read() is None


def test_another_start_than_the_kept_one_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    StateLocation(str(tmp_path), "orders").settle("latest", FIRST)
    with caplog.at_level(logging.WARNING):
        StateLocation(str(tmp_path), "orders").settle("earliest", SECOND)
    assert "was resolved from latest, not from earliest" in caplog.text


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 2}', '{"version": 1, "offsets": 3}'])
def test_a_file_of_somebody_else_is_named_and_not_used(tmp_path: Path, text: str) -> None:
    state = StateLocation(str(tmp_path), "orders")
    (tmp_path / state.name).write_text(text)
    with pytest.raises(ConfigurationError, match=rf"{state.name} is not what this source writes"):
        state.read()


@pytest.mark.parametrize("location", ["relative/path", "nosuch://bucket/x"])
def test_a_location_that_cannot_be_opened_is_refused(location: str) -> None:
    with pytest.raises(ConfigurationError, match="stateLocation: "):
        StateLocation(location, "orders")


def test_neither_keys_nor_settings_of_a_uri_are_shown() -> None:
    state = StateLocation("s3://key:secret@lake/q?endpoint_override=127.0.0.1:1&scheme=http", "o")
    assert state.place == f"s3://lake/q/{state.name}"
    with pytest.raises(ConfigurationError) as caught:
        StateLocation("nosuch://key:secret@lake/q", "o")
    assert "'nosuch://lake/q' is neither" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_location_that_cannot_be_written_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot be used"):
        StateLocation(str(tmp_path / "file"), "orders").settle("latest", FIRST)
