"""What the rules of the house are told about imports."""

from pathlib import Path

from tests.kit.source_tree import folder_graphs, groups, packages

SOURCES = {
    "broker/one/a.py": "from aerobee.broker.two import b\n",
    "broker/two/b.py": "def f():\n    from aerobee.broker.one import a\n",
    "broker/three/c.py": "from aerobee.broker.two import b\n",
    "broker/root.py": "from aerobee.broker.one import a\n",
}


def test_folders_that_import_each_other_in_whatever_way_are_a_group(tmp_path: Path) -> None:
    for place, text in SOURCES.items():
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(text)
    graph = folder_graphs(packages(tmp_path))["broker"]
    assert groups(graph) == [["one", "two"]]
    assert "root" not in graph


def test_groups_are_those_that_reach_each_other() -> None:
    graph = {"a": ["b"], "b": ["c"], "c": ["a", "d"], "d": ["e"], "e": ["d"], "f": ["a"]}
    assert groups(graph) == [["a", "b", "c"], ["d", "e"]]
