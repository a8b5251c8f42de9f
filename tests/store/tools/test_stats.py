from pathlib import Path

from aerobee.store.tools.stats import summarise
from tests.store.tools.stores import MESSAGES, stopped


def test_every_message_is_counted_in_its_queue(tmp_path: Path) -> None:
    summary = summarise(stopped(tmp_path / "store"))
    assert summary.messages == MESSAGES == sum(queue.messages for queue in summary.queues)
    assert sum(summary.sizes.values()) == MESSAGES
    assert [(queue.topic, queue.queue_id) for queue in summary.queues] == [
        (topic, queue_id) for topic in ("T0", "T1") for queue_id in (0, 1)
    ]
    assert {queue.min_queue_offset for queue in summary.queues} == {0}
    assert summary.unreadable_bytes == 0
