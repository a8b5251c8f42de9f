"""Broadcasting groups against a real broker, on every front."""

from collections.abc import Callable
from pathlib import Path

import pytest

from aerobee import ConsumeFrom, MessageModel
from tests.aerobee.client.aio.test_push_consumer import Seen, send, until, well
from tests.aerobee.client.fronts import Front

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


def files(folder: Path, pattern: str) -> list[Path]:
    return list(folder.glob(pattern))
