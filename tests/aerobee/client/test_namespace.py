"""Names in a namespace, as NamespaceUtil of the Java client writes them."""

import pytest

from aerobee.client.namespace import unwrapped, wrapped


@pytest.mark.parametrize(
    ("plain", "inside"),
    [
        ("orders", "shop%orders"),
        ("%RETRY%group", "%RETRY%shop%group"),
        ("%DLQ%group", "%DLQ%shop%group"),
    ],
)
def test_names_go_in_and_come_out(plain: str, inside: str) -> None:
    assert wrapped("shop", plain) == inside
    assert wrapped("shop", inside) == inside
    assert unwrapped("shop", inside) == plain
    assert unwrapped("shop", plain) == plain


@pytest.mark.parametrize(
    "name", ["TBW102", "CID_RMQ_SYS_TRANS", "rmq_sys_x", "RMQ_SYS_TRACE_TOPIC", ""]
)
def test_what_belongs_to_the_brokers_has_no_namespace(name: str) -> None:
    assert wrapped("shop", name) == name


def test_without_a_namespace_names_stay() -> None:
    assert wrapped("", "orders") == unwrapped("", "orders") == "orders"
    assert unwrapped("other", "shop%orders") == "shop%orders"
