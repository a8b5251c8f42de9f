"""Topics made and listed, on every front."""

from collections.abc import Callable

import pytest

from aerobee import Message
from aerobee.errors import ConfigurationError, RouteNotFoundError
from tests.aerobee.client.fronts import Front

pytestmark = [pytest.mark.service, pytest.mark.anyio]


async def test_a_made_topic_can_be_used_at_once(front: Front, fresh: Callable[[str], str]) -> None:
    topic = fresh("topic")
    async with front.admin() as admin, front.producer() as producer:
        await admin.create_topic(topic, queues=3)
        assert topic in await admin.topics()
        assert len(await producer.queues(topic)) == 3
        assert (await producer.send(Message(topic, b"x"))).ok


async def test_a_topic_changes_when_made_again(front: Front, fresh: Callable[[str], str]) -> None:
    topic = fresh("topic")
    async with front.admin() as admin:
        await admin.create_topic(topic, queues=2)
        await admin.create_topic(topic, queues=5, perm=4)
        async with front.producer() as producer:
            with pytest.raises(RouteNotFoundError, match="can be written"):
                await producer.send(Message(topic, b"x"))
        async with front.consumer(fresh("group")) as consumer:
            assert len(await consumer.queues(topic)) == 5


@pytest.mark.parametrize(
    "wrong", [{"name": "a b"}, {"name": "T", "queues": 0}, {"name": "T", "perm": 5}]
)
async def test_what_can_never_be_a_topic_is_refused(front: Front, wrong: dict[str, object]) -> None:
    async with front.admin() as admin:
        with pytest.raises(ConfigurationError):
            await admin.create_topic(**wrong)
