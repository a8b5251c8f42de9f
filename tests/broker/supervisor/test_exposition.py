"""Metrics of several processes in one text."""

from aerobee.broker.supervisor.exposition import joined

A = b"""# HELP up Whether.
# TYPE up gauge
up{node_id="a"} 1.0
# HELP process_open_fds Files.
# TYPE process_open_fds gauge
process_open_fds 7.0
# HELP target_info Where.
# TYPE target_info gauge
target_info{service_name="aerobee"} 1.0
"""
B = b"""# HELP more Only here.
# TYPE more counter
more_total{node_id="b"} 3.0
""" + A.replace(b'"a"', b'"b"').replace(b"7.0", b"8.0")


def test_each_family_is_told_once_with_the_series_of_all() -> None:
    text = b"".join(joined([("a", A), ("b", B)])).decode()
    assert (
        text
        == """# HELP up Whether.
# TYPE up gauge
up{node_id="a"} 1.0
up{node_id="b"} 1.0
# HELP process_open_fds Files.
# TYPE process_open_fds gauge
process_open_fds{node_id="a"} 7.0
process_open_fds{node_id="b"} 8.0
# HELP target_info Where.
# TYPE target_info gauge
target_info{service_name="aerobee"} 1.0
# HELP more Only here.
# TYPE more counter
more_total{node_id="b"} 3.0
"""
    )


def test_a_process_that_does_not_answer_has_no_series() -> None:
    assert b"".join(joined([("a", b""), ("b", B)])) == b"".join(joined([("b", B)]))
