from collections.abc import Callable
from pathlib import Path

import pytest

from aerobee.store.files.disk import Disk
from aerobee.store.format.index import IndexShape
from aerobee.store.index.index_file import IndexBuilder, IndexFile, Key
from aerobee.store.index.indexes import Indexes, Resume
from tests.kit.index_candidates import candidates

SHAPE = IndexShape(10, 5)
STORED = 1_700_000_000_000
END = 10_000


def row(root: Path) -> Indexes:
    return Indexes(Disk(), root / "index", SHAPE)


def loaded(
    root: Path,
    *,
    clean: bool = True,
    vouched_ms: int = 0,
    log_end: int = END,
    whole: str | None = None,
    promise: Callable[[int], None] = lambda _: None,
) -> tuple[Indexes, Resume]:
    indexes = row(root)
    resume = indexes.load(
        clean=clean,
        vouched_ms=vouched_ms,
        log_end=log_end,
        whole=whole,
        promise=promise,
    )
    return indexes, resume


def fill(root: Path, messages: int, keys: int = 1, apart_ms: int = 10) -> Indexes:
    """Messages 100 bytes and some ms apart; four keys fill a file."""
    indexes = row(root)
    builder: IndexBuilder | None = None
    todo = [
        Key(number % 3, 100 * number, STORED + apart_ms * number)
        for number in range(messages)
        for _ in range(keys)
    ]
    while todo:
        if builder is None or builder.full:
            file = indexes.next_file(STORED)
            builder = IndexBuilder.create(file)
            indexes.files.append(file)
        del todo[: builder.add(todo)]
        builder.write()
    return indexes


def names(indexes: Indexes) -> list[str]:
    on_disk = sorted(path.name for path in indexes.directory.iterdir())
    assert [file.path.name for file in indexes.files] == on_disk
    return on_disk


def test_names_grow_even_where_the_clock_stands_still(tmp_path: Path) -> None:
    indexes = fill(tmp_path, 10)
    first, second, third = names(indexes)
    assert int(second) == int(first) + 1 == int(third) - 1
    assert len(first) == 17


def test_a_new_file_begins_where_the_last_one_ends(tmp_path: Path) -> None:
    indexes = fill(tmp_path, 4)
    head = indexes.next_file(STORED).head
    assert head.begin_physical_offset == head.end_physical_offset == 300
    assert head.begin_timestamp == head.end_timestamp == STORED + 30
    assert (head.hash_slot_count, head.index_count) == (0, 1)


def test_after_a_clean_stop_all_files_stay_and_nothing_is_read_again(tmp_path: Path) -> None:
    before = names(fill(tmp_path, 10))
    indexes, resume = loaded(tmp_path, whole=before[-1])
    assert names(indexes) == before
    assert resume == Resume(END)
    assert loaded(tmp_path / "none", whole="")[1] == Resume(END), "no message has a key"


def test_after_a_clean_stop_of_one_that_indexed_less_the_rest_follows(tmp_path: Path) -> None:
    fill(tmp_path, 10)
    _, resume = loaded(tmp_path)
    assert resume == Resume(900, known_keys=1)
    _, resume = loaded(tmp_path / "none")
    assert resume == Resume(0)


def test_after_a_clean_stop_what_was_in_files_that_are_gone_is_read_again(tmp_path: Path) -> None:
    before = names(fill(tmp_path, 10))
    (tmp_path / "index" / before[-1]).unlink()
    _, resume = loaded(tmp_path, whole=before[-1])
    assert resume == Resume(700, known_keys=1)
    for name in before[:-1]:
        (tmp_path / "index" / name).unlink()
    _, resume = loaded(tmp_path, whole=before[-1])
    assert resume == Resume(0)


def test_after_a_crash_only_full_files_that_are_vouched_for_stay(tmp_path: Path) -> None:
    first, second, _ = names(fill(tmp_path, 10))
    indexes, resume = loaded(tmp_path, clean=False, vouched_ms=STORED + 10_000)
    assert names(indexes) == [first, second], "the third was not full"
    assert resume == Resume(700, known_keys=1)
    assert indexes.durable_timestamp == STORED + 70
    indexes, resume = loaded(tmp_path, clean=False, vouched_ms=STORED + 69)
    assert names(indexes) == [first]
    assert resume == Resume(300, known_keys=1)
    indexes, resume = loaded(tmp_path, clean=False, vouched_ms=0)
    assert names(indexes) == []
    assert resume == Resume(0)


def test_a_promise_is_taken_back_before_the_files_go_that_it_was_about(tmp_path: Path) -> None:
    before = names(fill(tmp_path, 10))
    said: list[tuple[int, list[str]]] = []

    def promise(timestamp: int) -> None:
        said.append((timestamp, sorted(path.name for path in (tmp_path / "index").iterdir())))

    loaded(tmp_path, vouched_ms=STORED + 79, promise=promise)
    assert said == [], "the last file begins behind that time"
    loaded(tmp_path, vouched_ms=STORED + 90, promise=promise)
    assert said == [(STORED + 79, before)], "it is not full"
    del said[:]
    loaded(tmp_path, clean=False, vouched_ms=STORED + 90, promise=promise)
    assert said == [(STORED + 70, before)]
    loaded(tmp_path, clean=False, vouched_ms=STORED + 69, promise=promise)
    assert said[1:] == [(STORED + 30, before[:2])]
    loaded(tmp_path, clean=False, promise=promise)
    assert said[2:] == [(0, before[:1])]


def test_keys_of_a_message_that_lie_in_a_kept_file_are_not_added_again(tmp_path: Path) -> None:
    fill(tmp_path, 5, keys=3)
    _, resume = loaded(tmp_path, clean=False, vouched_ms=STORED + 10)
    assert resume == Resume(100, known_keys=1)


def test_what_a_java_broker_left_out_before_a_dropped_file_is_indexed(tmp_path: Path) -> None:
    first, second, third = names(fill(tmp_path, 10))
    (tmp_path / "index" / second).unlink()
    indexes, resume = loaded(tmp_path, clean=False, vouched_ms=STORED + 10_000)
    assert names(indexes) == [first], f"{third} was not full"
    assert resume == Resume(300, known_keys=1)


def test_files_that_reach_behind_the_log_go(tmp_path: Path) -> None:
    first, *_ = names(fill(tmp_path, 10))
    indexes, resume = loaded(tmp_path, log_end=700)
    assert names(indexes) == [first]
    assert resume == Resume(300, known_keys=1)
    indexes, resume = loaded(tmp_path, log_end=0)
    assert names(indexes) == []
    assert resume == Resume(0)


def test_a_damaged_head_takes_the_files_behind_it_along(tmp_path: Path) -> None:
    first, second, _ = names(fill(tmp_path, 10))
    path = tmp_path / "index" / second
    path.write_bytes(path.read_bytes()[:36] + b"\x7f" * 4 + path.read_bytes()[40:])
    indexes, resume = loaded(tmp_path)
    assert names(indexes) == [first]
    assert resume == Resume(300, known_keys=1)


def test_files_behind_one_that_is_missing_are_made_again(tmp_path: Path) -> None:
    before = names(fill(tmp_path, 10, apart_ms=1_000))
    indexes, resume = loaded(tmp_path, whole=before[-1])
    assert (names(indexes), resume) == (before, Resume(END)), "nothing is missing"
    (tmp_path / "index" / before[1]).unlink()
    indexes, resume = loaded(tmp_path, whole=before[-1])
    assert names(indexes) == before[:1]
    assert resume == Resume(300, known_keys=1)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("begin", [0, 200])
def test_a_file_that_begins_in_front_of_the_end_of_the_one_before_is_made_again(
    tmp_path: Path, clean: bool, begin: int
) -> None:
    """As a Java broker makes it that was killed while it created a file, and starts again."""
    indexes = fill(tmp_path, 4)
    first = names(indexes)
    file = IndexFile(Disk(), indexes.directory / "20240101000000000", SHAPE)
    overlapping = IndexBuilder.create(file)
    overlapping.add([Key(0, at, STORED + at // 10) for at in range(begin, begin + 400, 100)])
    overlapping.write()
    assert file.full
    indexes, resume = loaded(tmp_path, clean=clean, vouched_ms=STORED + 90, whole=file.path.name)
    assert names(indexes) == first
    assert resume == Resume(300, known_keys=1)


def test_strangers_in_the_directory_are_left_alone(tmp_path: Path) -> None:
    indexes = fill(tmp_path, 3)
    (indexes.directory / "README").write_text("?")
    (indexes.directory / "20240101000000000").mkdir()
    indexes, _ = loaded(tmp_path)
    assert len(indexes.files) == 1
    assert (indexes.directory / "README").exists()


def test_files_before_the_log_go_but_never_the_last(tmp_path: Path) -> None:
    indexes = fill(tmp_path, 10)
    first, second, third = names(indexes)
    assert indexes.take_expired(300) == []
    expired = indexes.take_expired(301)
    assert [file.path.name for file in expired] == [first]
    indexes.remove(expired)
    assert names(indexes) == [second, third]
    indexes.remove(indexes.take_expired(5_000))
    assert names(indexes) == [third]


def test_a_search_goes_from_the_newest_file_back_to_the_time_asked_for(tmp_path: Path) -> None:
    indexes = fill(tmp_path, 10)
    assert candidates(indexes.walk(0, 0, 1 << 62)) == [900, 600, 300, 0]
    assert candidates(indexes.walk(0, STORED + 50, 1 << 62)) == [900, 600]
    assert candidates(indexes.walk(0, 0, STORED + 20)) == [300, 0], "known to the second"


@pytest.mark.parametrize(("gone", "left"), [(0, [900, 600]), (1, [900])])
def test_a_search_ends_at_a_file_that_has_just_gone(
    tmp_path: Path, gone: int, left: list[int]
) -> None:
    indexes = fill(tmp_path, 10)
    file: IndexFile = indexes.files[gone]
    file.path.unlink()
    assert candidates(indexes.walk(0, 0, 1 << 62)) == left
