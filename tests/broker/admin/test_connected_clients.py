"""Connected producers and consumers, as administrators ask for them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from aerobee.remoting.wire.codes import ResponseCode as Code
from aerobee.remoting.wire.headers.admin import (
    GetConsumerConnectionList,
    GetProducerConnectionList,
)
from aerobee.remoting.wire.headers.client import Heartbeat
from tests.broker.desk import document_of, open_desk

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.trio


async def test_connections_are_those_of_the_heartbeats(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        subscribed = [{"topic": "t", "subString": "*", "subVersion": 1}]
        beat = {
            "clientID": "1.2.3.4@7",
            "consumerDataSet": [{"groupName": "g", "subscriptionDataSet": subscribed}],
            "producerDataSet": [{"groupName": "p"}],
        }
        assert (await desk.ask(Heartbeat(), json.dumps(beat).encode())).code == Code.SUCCESS
        member = {
            "clientAddr": desk.peer.address,
            "clientId": "1.2.3.4@7",
            "language": "JAVA",
            "version": 479,
        }
        consumers = document_of(await desk.ask(GetConsumerConnectionList(consumer_group="g")))
        assert consumers["connectionSet"] == [member]
        assert consumers["messageModel"] == "CLUSTERING"
        assert consumers["subscriptionTable"]["t"]["subString"] == "*"
        producers = document_of(await desk.ask(GetProducerConnectionList(producer_group="p")))
        assert producers == {"connectionSet": [member]}
        gone = await desk.ask(GetConsumerConnectionList(consumer_group="x"))
        assert (gone.code, gone.remark) == (206, "the consumer group[x] not online")
        gone = await desk.ask(GetProducerConnectionList(producer_group="x"))
        assert (gone.code, gone.remark) == (1, "the producer group[x] not exist")
