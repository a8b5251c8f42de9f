"""Carries out steps without a network: scripted peers, and a clock that only waits and peers move.

    stage = Stage()
    stage.answers(GetRouteInfo, route("T", queues=4))
    stage.answers(SendMessageV2, ConnectError("no"), stored(queue_offset=7))
    stage.perform(sender.send(...))
    stage.asked(SendMessageV2)

The last line of a script is repeated for ever.
"""

import json
from collections.abc import Callable
from random import Random
from typing import TypeVar

from aerobee.client.settings.client import ClientConfig
from aerobee.client.steps.effects import Ask, Clock, Effect, Signal, Steps, Wait
from aerobee.client.steps.instance import Instance
from aerobee.errors import AerobeeError
from aerobee.remoting.wire.codes import VERSION
from aerobee.remoting.wire.command import Command
from aerobee.remoting.wire.header import Header

T = TypeVar("T")
Line = Command | AerobeeError | Callable[[Ask], Command]

WALL_MS = 1_700_000_000_000


class Stage:
    """One client's world."""

    def __init__(self, *name_servers: str) -> None:
        self.now_s = 1000.0
        self.takes_s: dict[type[Header], float] = {}
        """How long peers think about requests of a kind."""
        self.lines: dict[type[Header], list[Line]] = {}
        self.heard: list[Ask] = []
        self.waits: list[Wait] = []
        clock = Clock(lambda: self.now_s, lambda: WALL_MS + int(self.now_s * 1000))
        servers = name_servers or ("ns:1",)
        config = ClientConfig(name_servers=servers, client_id="me@1", process_id=1)
        self.instance = Instance(config, clock, random=Random(7))

    def answers(self, kind: type[Header], *lines: Line) -> None:
        """What peers say to requests of this kind, in turn."""
        self.lines[kind] = list(lines)

    def perform(self, steps: Steps[T]) -> T:
        """To the result. Waits last as long as they may unless their signal is set."""
        reply: Command | None = None
        error: AerobeeError | None = None
        while True:
            try:
                effect = steps.send(reply) if error is None else steps.throw(error)
            except StopIteration as stop:
                result: T = stop.value
                return result
            reply, error = None, None
            try:
                reply = self.carry_out(effect)
            except AerobeeError as raised:
                error = raised

    def carry_out(self, effect: Effect) -> Command | None:
        if isinstance(effect, Wait):
            self.waits.append(effect)
            if not effect.signal.is_set:
                self.now_s += effect.seconds
            return None
        self.heard.append(effect)
        self.now_s += min(self.takes_s.get(type(effect.header), 0.0), effect.timeout_s)
        lines = self.lines[type(effect.header)]
        line = lines.pop(0) if len(lines) > 1 else lines[0]
        if callable(line):
            line = line(effect)
        if isinstance(line, AerobeeError):
            raise line
        return None if effect.oneway else line

    def asked(self, kind: type[Header]) -> list[Ask]:
        """The requests of this kind so far."""
        return [ask for ask in self.heard if type(ask.header) is kind]


def fired() -> Signal:
    """A signal that is set."""
    signal = Signal()
    signal.set()
    return signal


def answer(
    code: int = 0,
    body: bytes = b"",
    remark: str | None = None,
    version: int = VERSION,
    **ext: object,
) -> Command:
    """An answer as it comes from the wire."""
    ext = {k: str(v) for k, v in ext.items()}
    return Command(code, version=version, ext=ext, body=body, remark=remark)


def route(*brokers: str, queues: int = 4, perm: int = 6, broker_ids: str = "0") -> Command:
    """A name server's answer: these brokers, so many queues each."""
    datas = [
        {
            "brokerName": name,
            "cluster": "DefaultCluster",
            "brokerAddrs": {n: f"{name}:{10911 + int(n)}" for n in broker_ids.split(",")},
            "enableActingMaster": False,
        }
        for name in brokers
    ]
    queue_datas = [
        {
            "brokerName": name,
            "perm": perm,
            "readQueueNums": queues,
            "writeQueueNums": queues,
            "topicSysFlag": 0,
        }
        for name in brokers
    ]
    value = {"brokerDatas": datas, "filterServerTable": {}, "queueDatas": queue_datas}
    return answer(body=json.dumps(value).encode())


def moved(broker: str = "broker-a") -> Command:
    """The answer of `route`, in which the broker has another machine."""
    before = route(broker)
    body = bytes(before.body).replace(b'"%s:' % broker.encode(), b'"new-host:')
    return answer(body=body)


def no_topic() -> Command:
    return answer(17, remark="No topic route info in name server for the topic: T")
