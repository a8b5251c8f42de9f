from pathlib import Path

from aerobee.store.tools.dump import DumpFilter, dump
from aerobee.store.tools.findings import Findings
from tests.store.tools.stores import MESSAGES, stopped


def test_all_messages_come_out_in_the_order_of_the_log(tmp_path: Path) -> None:
    found = list(dump(stopped(tmp_path / "store"), DumpFilter(), Findings()))
    assert [one["keys"] for one in found] == [[f"k{number}"] for number in range(MESSAGES)]
    assert all(one["body_sound"] for one in found)


def test_only_what_is_wanted_comes_out(tmp_path: Path) -> None:
    root = stopped(tmp_path / "store")
    found = list(dump(root, DumpFilter("T1", 1, 3, 2), Findings()))
    assert [(one["topic"], one["queue_id"], one["queue_offset"]) for one in found] == [
        ("T1", 1, 3),
        ("T1", 1, 4),
    ]
