"""Where the stores below a data directory lie."""

from pathlib import Path

import pytest

from aerobee.store.errors import StoreUnusable
from aerobee.store.files.disk import Disk
from aerobee.store.tools.locations import locations


def made(*paths: Path) -> None:
    for path in paths:
        path.mkdir(parents=True)


def found(root: Path, log: Path | None = None) -> list[tuple[Path, Path]]:
    return [(one.root, one.log) for one in locations(root, log, Disk())]


def test_one_broker_has_its_store_in_the_directory_itself(tmp_path: Path) -> None:
    made(tmp_path / "commitlog", tmp_path / "broker-0" / "commitlog")
    assert found(tmp_path) == [(tmp_path, tmp_path / "commitlog")]


def test_several_brokers_have_theirs_below_it_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    names = [f"broker-{number}" for number in (0, 2, 10)]
    made(*(tmp_path / name / "commitlog" for name in names), tmp_path / "broker-x" / "commitlog")
    assert found(tmp_path) == [(tmp_path / name, tmp_path / name / "commitlog") for name in names]


def test_a_log_elsewhere_is_divided_as_the_data_directory_is(tmp_path: Path) -> None:
    root, log = tmp_path / "data", tmp_path / "log"
    made(root / "broker-0" / "consumequeue", root / "broker-1" / "consumequeue")
    made(log / "broker-0", log / "broker-1")
    names = ("broker-0", "broker-1")
    assert found(root, log) == [(root / name, log / name) for name in names]
    assert found(root / "broker-1", log / "broker-1") == [(root / "broker-1", log / "broker-1")]


def test_what_is_not_there_is_told_from_what_may_be_elsewhere(tmp_path: Path) -> None:
    with pytest.raises(StoreUnusable, match="it is no store directory"):
        found(tmp_path)
    (tmp_path / "checkpoint").touch()
    with pytest.raises(StoreUnusable, match="name that with --log"):
        found(tmp_path)
    with pytest.raises(StoreUnusable, match="gone is no directory"):
        found(tmp_path, tmp_path / "gone")
