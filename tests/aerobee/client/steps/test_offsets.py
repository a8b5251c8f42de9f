"""Broadcasting groups and positions against a real broker, on every front."""

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path

import anyio
import pytest

from aerobee import ConsumeFrom, MessageModel, MessageQueue
from aerobee.client.offset_file import OffsetFile
from aerobee.client.steps.offsets import LocalOffsets
from aerobee.errors import ConfigurationError
from tests.aerobee.client.aio.test_push_consumer import Seen, send, until, well
from tests.aerobee.client.fronts import Front
from tests.aerobee.client.steps.stage import Stage

pytestmark = [pytest.mark.service, pytest.mark.anyio]

Fresh = Callable[[str], str]


async def test_every_member_gets_every_message_and_goes_on_where_it_was(
    front: Front, fresh: Fresh, tmp_path: Path
) -> None:
    topic, group = fresh("topic"), fresh("group")
    await send(front, topic, b"1", b"2", b"3")
    for expected in ([b"1", b"2", b"3"], [b"4"]):
        seen = {"left": Seen(failing=well), "right": Seen(failing=well)}
        members = {}
        for name, handler in seen.items():
            members[name] = front.push(
                group,
                model=MessageModel.BROADCASTING,
                start_from=ConsumeFrom.FIRST,
                instance_name=name,
                offset_dir=str(tmp_path),
            )
            members[name].subscribe(topic, handler=front.handler(handler))
        async with members["left"], members["right"]:
            await until(lambda: all(len(one.calls) >= len(expected) for one in seen.values()))  # noqa: B023  (ends within the round)
        assert [one.bodies for one in seen.values()] == [expected, expected]
        await send(front, topic, b"4")
    assert len(files(tmp_path, f"*@left/{group}/offsets.json")) == 1


async def test_pull_consumers_broadcast_too(front: Front, fresh: Fresh, tmp_path: Path) -> None:
    topic, group = fresh("topic"), fresh("group")
    await send(front, topic, b"1", b"2", b"3")
    options = {
        "model": MessageModel.BROADCASTING,
        "start_from": ConsumeFrom.FIRST,
        "offset_dir": str(tmp_path),
    }
    for expected in ([b"1", b"2", b"3"], [b"4"]):
        left = front.consumer(group, instance_name="left", **options)
        right = front.consumer(group, instance_name="right", **options)
        async with left, right:
            for member in (left, right):
                await member.subscribe(topic)
                bodies: list[bytes] = []
                with anyio.fail_after(30):
                    while len(bodies) < len(expected):
                        messages = await member.poll(timeout=0.5)
                        member.done(*messages)
                        bodies += [message.body for message in messages]
                assert bodies == expected
            await left.commit()
            (stored,) = files(tmp_path, f"*@left/{group}/offsets.json")
            assert json.dumps(topic) in stored.read_text()
        await send(front, topic, b"4")
    with pytest.raises(ConfigurationError, match="nothing is sent back"):
        front.consumer(group, retry=True, **options)


def test_offsets_that_could_not_be_written_are_written_later(tmp_path: Path) -> None:
    """No message may come after the disk was full, and the next start would repeat the last."""
    taken = tmp_path / "taken"
    taken.write_text("")
    stage, queue = Stage(), MessageQueue("T", "broker-a", 0)
    file = OffsetFile(taken / "offsets.json")
    offsets = LocalOffsets(stage.instance, "g", file)
    stage.perform(offsets.commit(queue, 5))
    offsets.save()
    taken.unlink()
    offsets.save()
    assert file.load() == {queue: 5}


@pytest.mark.parametrize("wrong", ["0", 0.0, date(2026, 1, 1), None])
async def test_a_position_of_another_kind_is_refused(
    front: Front, fresh: Fresh, wrong: object
) -> None:
    """The end would skip all messages that an offset written as a text stands in front of."""
    topic, group = fresh("topic"), fresh("group")
    await send(front, topic, b"1")
    async with front.consumer(group) as consumer, front.admin() as admin:
        queues = await consumer.queues(topic)
        await consumer.assign(queues)
        await consumer.commit(dict.fromkeys(queues, 0))
        with pytest.raises(TypeError, match="a position is an int"):
            await consumer.seek(queues[0], wrong)
        with pytest.raises(TypeError, match="a position is an int"):
            await admin.reset_offsets(group, topic, wrong)


def files(folder: Path, pattern: str) -> list[Path]:
    return list(folder.glob(pattern))
