from pathlib import PurePosixPath

import pytest

from aerobee.store.format import names


def test_a_segment_is_named_by_its_first_byte() -> None:
    assert names.segment_name(1073741824) == "00000000001073741824"
    assert names.segment_start("00000000001073741824") == 1073741824


@pytest.mark.parametrize("name", ["", "README", "0000000000107374182", "0000000000107374182x"])
def test_other_names_are_no_segments(name: str) -> None:
    assert names.segment_start(name) is None


def test_digits_of_other_scripts_are_no_segment_names() -> None:
    assert names.segment_start("٠" * 20) is None


def test_a_mark_is_named_by_its_segment() -> None:
    assert names.mark_name(4096) == "00000000000000004096.done"
    assert names.marked_segment(names.mark_name(4096)) == 4096
    for name in ("", ".done", "4096.done", "00000000000000004096", "00000000000000004096.done.tmp"):
        assert names.marked_segment(name) is None


def test_a_byte_lies_in_the_file_that_starts_before_it() -> None:
    assert names.file_start(2047, 2048) == 0
    assert names.file_start(2048, 2048) == 2048


def test_a_file_is_made_beside_its_directory() -> None:
    path = PurePosixPath("/d/commitlog/00000000000000000000")
    spare = names.spare_path(path)
    assert spare == PurePosixPath("/d/commitlog.00000000000000000000.new")
    assert names.is_spare(spare.name)
    assert not names.is_spare("x.new")
    assert not names.is_spare("00000000000000000000")


def test_an_index_file_is_named_by_a_time() -> None:
    assert names.index_name(20231114221320001) == "20231114221320001"
    assert names.is_index_name("20231114221320001")
    assert not names.is_index_name("20231114221320001.tmp")
    spare = names.spare_path(PurePosixPath("/d/index/20231114221320001"))
    assert names.is_spare(spare.name)
    assert not names.is_spare("notes.20231114221320001.new")


def test_a_file_being_replaced_has_two_companions() -> None:
    assert names.temporary_name("a.json") == "a.json.tmp"
    assert names.backup_name("a.json") == "a.json.bak"


def test_what_cannot_be_made_beside_is_made_inside_under_a_name_that_brokers_pass_over() -> None:
    segment = PurePosixPath("/d/commitlog/00000000000000004096")
    assert names.inner_path(segment) == segment
    index = PurePosixPath("/d/index/20231114221320001")
    assert names.inner_path(index) == PurePosixPath("/d/index/20231114221320001.new")
    assert names.is_spare(names.inner_path(index).name)


def test_a_spare_belongs_to_the_directory_that_it_names() -> None:
    spare = names.spare_path(PurePosixPath("/d/log/00000000000000000000")).name
    assert names.is_spare_of("log", spare)
    assert not names.is_spare_of("commitlog", spare)
    assert not names.is_spare_of("log", spare.removesuffix(".new"))
    assert not names.is_spare_of("log", "log.notes.new")
    inner = names.spare_path(PurePosixPath("/d/log/20231114221320001")).name
    assert not names.is_spare_of("log", inner), "it is no segment's"
