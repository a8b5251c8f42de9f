"""The Python end of `tests/interop/java/Driver.java`: one JVM, many clients, a line a command.

`JavaClient.call` is the wire; the methods around it only name its arguments. What the client threw
comes back as `JavaError` with the response code of the broker in it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

from tests.kit.java import Toolkit
from tests.kit.process import Child

Row = Mapping[str, str]

HEAP_MIB = 96
START_WITHIN_S = 30.0
ANSWER_WITHIN_S = 60.0
"""Longer than any wait inside the driver."""


class JavaError(Exception):
    """What the Java client threw; `code` is the broker's response code, -1 without one."""

    def __init__(self, row: Row) -> None:
        super().__init__(f"{row['type']} code={row['code']}: {row['message']}")
        self.type = row["type"]
        self.code = int(row["code"])
        self.message = row["message"]


@dataclass(frozen=True, slots=True)
class Sent:
    """A SendResult as the client gives it to its user."""

    status: str
    msg_id: str
    offset_msg_id: str
    broker: str
    queue_id: int
    queue_offset: int
    region: str
    handle: str = ""


@dataclass(frozen=True, slots=True)
class Received:
    """A MessageExt as a listener gets it."""

    topic: str
    queue_id: int
    queue_offset: int
    msg_id: str
    tags: str
    keys: str
    body: str
    reconsume_times: int
    born_host: str
    cluster: str


class JavaClient:
    """One driver process; `headers` is the header type its clients send: JSON or ROCKETMQ."""

    def __init__(
        self,
        toolkit: Toolkit,
        home: Path,
        *,
        headers: str = "JSON",
        heap_mib: int = HEAP_MIB,
        options: Sequence[str] = (),
    ) -> None:
        """`options`: further ones of the JVM."""
        self.version = toolkit.version
        self.headers = headers
        option = f"-Drocketmq.serialize.type={headers}"
        command = toolkit.command("Driver", option, *options, heap_mib=heap_mib, home=home)
        home.mkdir(parents=True, exist_ok=True)
        self.logs = home / "logs"
        """Where its clients tell what they do not throw."""
        self.child = Child(command, log=home / "driver.log", at=home)
        self._number = 0
        self.child.read_until("0 ok", within_s=START_WITHIN_S)

    def call(self, verb: str, **values: object) -> list[Row]:
        """The rows of one command. Raises: JavaError; DidNotStart when the JVM is gone."""
        self._number += 1
        given = {name: str(value) for name, value in values.items() if value is not None}
        self.child.write_line(f"{self._number} {verb} {urlencode(given)}")
        rows: list[Row] = []
        while (word := self._read(rows)) == "row":
            pass
        if word == "error":
            raise JavaError(rows[-1])
        return rows

    def _read(self, rows: list[Row]) -> str:
        number, word, values = self.child.read_line(within_s=ANSWER_WITHIN_S).split(" ", 2)
        assert number == str(self._number), f"asked {self._number}, answered {number}"
        if word != "ok":
            rows.append(dict(parse_qsl(values, keep_blank_values=True)))
        return word

    def producer(self, name: str, namesrv: str, **more: object) -> None:
        """Start a producer; `transaction=1` and `vip=1` make it a special one, `access` and
        `secret` sign its requests.
        """
        self.call("producer", name=name, group=f"{name}-group", namesrv=namesrv, **more)

    def send(
        self, producer: str, topic: str, bodies: Sequence[str], *, how: str = "sync", **more: object
    ) -> list[Sent]:
        """One message per body; `how` is sync, async, oneway, batch, ordered or transaction."""
        given = {"producer": producer, "topic": topic, "bodies": "\n".join(bodies), "how": how}
        return [_sent(row) for row in self.call("send", **given, **more)]

    def consumer(
        self, name: str, namesrv: str, topic: str, *, group: str | None = None, **more: object
    ) -> None:
        """Start a push consumer that keeps what it gets; its group is its name unless told."""
        group = group or f"{name}-group"
        self.call("consumer", name=name, group=group, namesrv=namesrv, topics=topic, **more)

    def received(self, name: str, count: int, *, within_s: float = 20.0) -> list[Received]:
        """All that a consumer has got, once there are `count` or the time is over."""
        rows = self.call("received", name=name, count=count, withinMs=int(within_s * 1_000))
        return [_received(row) for row in rows]

    def assigned(self, name: str, topic: str) -> list[int]:
        """The queue ids of a topic that a consumer holds at this moment."""
        rows = self.call("assigned", name=name)
        return sorted(int(row["queue"]) for row in rows if row["topic"] == topic)

    def commit(self, name: str) -> None:
        """Let a consumer tell the broker its offsets now."""
        self.call("commit", name=name)

    def pull(
        self, namesrv: str, topic: str, group: str, count: int, *, within_s: float = 20.0
    ) -> list[Received]:
        """A topic from its beginning, by a consumer that assigns itself the queues."""
        given = {"namesrv": namesrv, "topic": topic, "group": group, "count": count}
        rows = self.call("pull", **given, withinMs=int(within_s * 1_000))
        return [_received(row) for row in rows]

    def select(self, namesrv: str, topic: str, group: str, sql: str) -> list[Received]:
        """A topic from its beginning to its end, by pulls that each bring their filter along."""
        rows = self.call("select", namesrv=namesrv, topic=topic, group=group, sql=sql)
        return [_received(row) for row in rows]

    def answerer(self, name: str, namesrv: str, topic: str, *, suffix: str, **more: object) -> None:
        """Start a consumer that answers each message with its body and the suffix."""
        given = {"name": name, "group": f"{name}-group", "namesrv": namesrv, "topic": topic}
        self.call("answerer", **given, suffix=suffix, **more)

    def request(
        self,
        namesrv: str,
        topic: str,
        bodies: Sequence[str],
        *,
        within_s: float = 15.0,
        **more: object,
    ) -> list[str]:
        """Ask through a topic, one after the other; the bodies of the answers."""
        given = {"name": "asker", "namesrv": namesrv, "topic": topic, "bodies": "\n".join(bodies)}
        rows = self.call("request", **given, withinMs=int(within_s * 1_000), **more)
        return [row["body"] for row in rows]

    def reset(self, namesrv: str, topic: str, group: str, timestamp_ms: int) -> dict[int, int]:
        """Move a group to a time, as the admin tool does; where that is in each queue."""
        rows = self.call("reset", namesrv=namesrv, topic=topic, group=group, time=timestamp_ms)
        return {int(row["queue"]): int(row["offset"]) for row in rows}

    def recall(self, producer: str, topic: str, handle: str) -> str:
        """Take a timer back; its unique key. Raises: JavaError."""
        [row] = self.call("recall", producer=producer, topic=topic, handle=handle)
        return row["id"]

    def topic(self, namesrv: str, broker: str, topic: str, *, queues: int) -> None:
        """Create a topic at the broker with this address, as an admin does."""
        self.call("topic", namesrv=namesrv, broker=broker, topic=topic, queues=queues)

    def mqadmin(self, namesrv: str, *words: str) -> str:
        """What a command of mqadmin prints."""
        [row] = self.call("mqadmin", words="\n".join([*words, "-n", namesrv]))
        return row["printed"]

    def ask(self, namesrv: str, method: str, *given: object) -> str:
        """The JSON of what a method of MQAdminExt answers; null when it answers nothing."""
        texts = "\n".join(map(str, given)) if given else None
        [row] = self.call("ask", namesrv=namesrv, method=method, given=texts)
        return row["json"]

    def stop(self, *, producer: str | None = None, consumer: str | None = None) -> None:
        """Shut a client down; it leaves its group and saves its offsets."""
        if producer:
            self.call("stop-producer", name=producer)
        if consumer:
            self.call("stop-consumer", name=consumer)


def _sent(row: Row) -> Sent:
    return Sent(
        status=row["status"],
        msg_id=row["id"],
        offset_msg_id=row["offsetId"],
        broker=row["broker"],
        queue_id=int(row["queue"]),
        queue_offset=int(row["offset"]),
        region=row["region"],
        handle=row.get("handle", ""),
    )


def _received(row: Row) -> Received:
    return Received(
        topic=row["topic"],
        queue_id=int(row["queue"]),
        queue_offset=int(row["offset"]),
        msg_id=row["id"],
        tags=row["tags"],
        keys=row["keys"],
        body=row["body"],
        reconsume_times=int(row["reconsumed"]),
        born_host=row["bornHost"],
        cluster=row["cluster"],
    )
