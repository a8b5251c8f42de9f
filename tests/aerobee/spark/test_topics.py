"""Topics of a read."""

from aerobee.spark.topics import is_system, topic_filter


def test_topics_are_chosen_by_name_or_by_kind() -> None:
    system = ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_wheel_timer", "TBW102"]
    assert all(map(is_system, system))
    assert not any(map(is_system, ["orders", "%RETRY%g", "%DLQ%g"]))
    assert topic_filter((), exclude_system=True)("orders")
    assert not topic_filter((), exclude_system=True)("TBW102")
    assert topic_filter((), exclude_system=False)("TBW102")
    assert topic_filter(("TBW102",), exclude_system=True)("TBW102"), "it was named"
    assert not topic_filter(("TBW102",), exclude_system=True)("orders")
