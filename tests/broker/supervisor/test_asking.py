"""What a supervisor asks its brokers."""

import pytest
import trio

from aerobee.broker.supervisor.asking import merge_expositions
from aerobee.broker.supervisor.exposition import joined

SERIES = 20_000


@pytest.mark.trio
async def test_the_loop_turns_while_many_series_are_joined() -> None:
    """The name server is in it."""
    family = b"# HELP up Whether.\n# TYPE up gauge\n"
    texts = [
        (
            node,
            family
            + b"".join(b'up{node_id="%s",n="%d"} 1\n' % (node.encode(), n) for n in range(SERIES)),
        )
        for node in ("a", "b")
    ]
    text, turns = b"", 0

    async def join() -> None:
        nonlocal text
        text = await merge_expositions(texts)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(join)
        while not text:
            turns += 1
            await trio.sleep(0.001)
    assert text == b"".join(joined(texts))
    assert turns > 3
