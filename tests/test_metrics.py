from pathlib import Path

from tests.kit.private_names import private_uses
from tests.kit.source_tree import Module
from tests.metrics import Figure, figures


def test_circles_are_found_also_of_imports_for_type_checkers_and_inside_functions(
    tmp_path: Path,
) -> None:
    sources = {
        "a": "import b\ndef f(): pass\n",
        "b": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import c\n",
        "c": "def f():\n    import a\nclass C:\n    def __init__(s, a, b, c, d, e, f, g, h): 1\n",
        "d": "import a\ndef f():\n    import d\n",
    }
    for name, text in sources.items():
        (tmp_path / f"{name}.py").write_text(text)
    modules = {name: Placed(name, tmp_path / f"{name}.py") for name in sources}
    found = {figure.name: figure for figure in figures(modules)}
    circle = found["import circles, also of types and in functions"]
    assert (circle.value, circle.worst) == (1, ("3: a b c …",))
    assert found["constructors with more than 7 parameters"].worst == ("c.py:4: 8",)


def test_what_is_held_and_beyond_its_limit_is_not_reached() -> None:
    assert Figure("x", 3, 3, held=True).reached
    assert not Figure("x", 4, 3, held=True).reached


def test_private_names_of_the_product_are_found_in_tests_and_their_own_are_not(
    tmp_path: Path,
) -> None:
    product = "class A:\n    def _kept(self): self._state = 1\n"
    test = (
        "from a import _kept\n"
        "class T:\n    def _own(self): self._mine = 2\n"
        "a._state\nmonkeypatch.setattr(a, '_state', 3)\na._mine\na._foreign\na._replace()\n"
    )
    (tmp_path / "a.py").write_text(product)
    (tmp_path / "test_a.py").write_text(test)
    found = private_uses(
        [Placed("a", tmp_path / "a.py")], [Placed("test_a", tmp_path / "test_a.py")]
    )
    assert sorted(found) == ["test_a.py:1 _kept", "test_a.py:4 _state", "test_a.py:5 _state"]


class Placed(Module):
    """A module that lies outside the tree."""

    @property
    def place(self) -> str:
        return self.path.name
