"""Every module of the product has a test module of its name, or a row that names its tests."""

from tests.kit.source_tree import packages
from tests.rooms import LIST, Proposals, faults, listed, own_test, without_own_test


def test_every_module_has_a_test_of_its_name_or_a_row_with_an_existing_test() -> None:
    rows = listed(LIST.read_text("utf-8"))
    wrong = faults(rows, without_own_test(packages().values()))
    assert not wrong, "\n".join(("run: python -m tests.rooms --write", *wrong))


def test_rows_are_read_and_their_faults_named() -> None:
    rows = listed("# Why.\n\nstore/a.py   tests/test_rooms.py\nstore/b.py tests/gone.py\n")
    module = packages()["store.errors"]
    assert faults(rows, {"store/a.py": module, "store/c.py": module}) == [
        "no row: store/c.py",
        "needs no row, or is gone: store/b.py",
        "no such test: tests/gone.py",
    ]


def test_a_module_is_proposed_the_test_that_stands_nearest() -> None:
    """That of a module that imports it, when no test does."""
    product = packages()
    layout = product["store.format.layout"]
    assert own_test(layout).name == "test_layout.py"
    proposed = Proposals(product, ()).of(layout)
    assert proposed.startswith("tests/store/format/test_")
