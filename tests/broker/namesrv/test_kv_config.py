import json
from typing import Any

import pytest

from aerobee.broker.errors import LimitReached
from aerobee.broker.namesrv.kv_config import BYTES_MAX, NAME_MAX, KvConfigTable


def test_a_value_is_found_under_its_namespace_and_key() -> None:
    kv = KvConfigTable()
    kv.put("n", "k", "v")
    kv.put("n", "k", "w")
    assert kv.get("n", "k") == "w"
    assert kv.get("n", "x") is None
    assert kv.get("m", "k") is None


def test_an_emptied_namespace_is_empty_and_an_unknown_one_is_none() -> None:
    kv = KvConfigTable()
    kv.put("n", "k", "v")
    kv.delete("n", "k")
    assert kv.namespace("n") == {}
    assert kv.namespace("m") is None


def test_every_change_is_told_and_nothing_else() -> None:
    changes: list[int] = []
    kv = KvConfigTable(on_change=lambda: changes.append(1))
    kv.put("n", "k", "v")
    kv.delete("n", "k")
    kv.delete("n", "k")
    assert len(changes) == 2


def test_entries_are_limited() -> None:
    kv = KvConfigTable(max_entries=1)
    kv.put("n", "k", "v")
    with pytest.raises(LimitReached):
        kv.put("n", "l", "v")
    with pytest.raises(LimitReached):
        kv.put("m", "l", "v")
    kv.put("n", "k", "w")
    assert kv.namespace("m") is None


def test_the_file_of_a_java_name_server_loads_and_ours_is_alike() -> None:
    kv = KvConfigTable()
    content: dict[str, Any] = {"configTable": {"ORDER_TOPIC_CONFIG": {"T1": "py-a:4"}}}
    kv.load(content)
    assert kv.get("ORDER_TOPIC_CONFIG", "T1") == "py-a:4"
    assert json.loads(json.dumps(kv.document())) == content


@pytest.mark.parametrize("broken", [{"configTable": []}, {"configTable": {"n": {"k": 1}}}])
def test_a_broken_document_leaves_the_table_as_it_was(broken: dict[str, Any]) -> None:
    kv = KvConfigTable()
    kv.put("n", "k", "v")
    with pytest.raises(ValueError):
        kv.load(broken)
    assert kv.get("n", "k") == "v"


def test_namespaces_that_were_emptied_are_limited_too() -> None:
    kv = KvConfigTable(max_entries=2)
    for namespace in ("a", "b"):
        kv.put(namespace, "k", "v")
        kv.delete(namespace, "k")
    with pytest.raises(LimitReached):
        kv.put("c", "k", "v")
    kv.put("a", "k", "v")


def test_bytes_are_limited_and_come_back() -> None:
    kv = KvConfigTable()
    with pytest.raises(LimitReached, match="namespace or key"):
        kv.put("n", "k" * (NAME_MAX + 1), "v")
    half = "v" * (BYTES_MAX // 2)
    kv.put("n", "k", half)
    with pytest.raises(LimitReached, match="byte of KV config"):
        kv.put("n", "l", half)
    kv.put("n", "k", "v")
    kv.put("n", "l", half)
    kv.delete("n", "l")
    kv.load(kv.document())
    assert (kv.entries, kv.bytes) == (1, 3)


def test_a_character_counts_with_the_bytes_that_it_has_in_an_answer() -> None:
    kv = KvConfigTable()
    for value in ("\x01" * (BYTES_MAX // 6 + 1), "\U0001f600" * (BYTES_MAX // 4 + 1)):
        with pytest.raises(LimitReached, match="byte of KV config"):
            kv.put("n", "k", value)
    kv.put("n", "k", "\x01")
    assert kv.bytes == 1 + 1 + 6
