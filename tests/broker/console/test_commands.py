"""What the console answers is what the command line prints with --json, on a real broker."""

from __future__ import annotations

import html
import json
import os
import re
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from aerobee import ConsumeFrom
from aerobee.admin import GroupConfig
from aerobee.blocking import AdminClient, Message, Producer
from aerobee.broker.console.commands import parameters_of
from aerobee.broker.console.operations import GET, LISTS, OPERATIONS
from tests.broker.console.conftest import ROOT, SECRET, client_of
from tests.kit import prepared
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from tests.kit.broker_process import BrokerProcess
    from tests.kit.console_client import Answer, ConsoleClient

pytestmark = pytest.mark.service


@pytest.fixture(scope="module")
def stored(broker: BrokerProcess, admin: AdminClient) -> str:
    """Twelve messages of Orders, of which billing has consumed none; their first id."""
    admin.create_topic("Orders", queues=3)
    with Producer(broker.namesrv_address, group="p", credentials=ROOT) as producer:
        sent = [producer.send(Message("Orders", b"%d" % n, keys=("k",))) for n in range(12)]
    admin.create_group(GroupConfig(name="billing"))
    admin.reset_offsets("billing", "Orders", ConsumeFrom.FIRST)
    return sent[0].message_id


def printed(broker: BrokerProcess, *words: str) -> Any:
    """The JSON that a command prints."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("AEROBEE", "NAMESRV"))}
    env |= {
        "NAMESRV_ADDR": broker.namesrv_address,
        "AEROBEE_ACCESS_KEY": "root",
        "AEROBEE_SECRET_KEY": SECRET,
    }
    command = [sys.executable, "-m", "aerobee", *words, "--json"]
    done = prepared.run(command, env=env, within_s=60)
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/topics/Orders", ("topic", "describe", "Orders")),
        ("/groups/billing", ("group", "describe", "billing")),
        ("/groups/billing/lag", ("group", "lag", "billing")),
        ("/topics/Orders/messages?max=3", ("message", "find", "Orders", "--max", "3")),
        (
            "/topics/Orders/messages?key=k&max=5",
            ("message", "find", "Orders", "--key=k", "--max=5"),
        ),
        ("/topics/Orders/tail?count=2", ("message", "tail", "Orders", "-c", "2")),
        ("/why?topic=Orders&key=k&max=2", ("why", "--topic", "Orders", "--key", "k", "--max", "2")),
        ("/ha", ("ha", "status")),
        ("/users", ("users", "list")),
        ("/users/root", ("users", "show", "root")),
        ("/acl", ("acl", "list")),
        ("/brokers/settings?names=brokerName", ("broker", "config", "get", "brokerName")),
    ],
)
def test_the_api_answers_what_the_command_prints(
    broker: BrokerProcess, root: ConsoleClient, stored: str, path: str, words: tuple[str, ...]
) -> None:
    value = root.get(path).value
    shown = printed(broker, *words)
    if words[0] == "ha":
        # The log may have grown meanwhile.
        for row in (*value, *shown):
            del row["max_offset"]
    assert value == shown


def test_a_message_is_found_by_its_id(
    broker: BrokerProcess, root: ConsoleClient, stored: str
) -> None:
    path = f"/message?identity={quote(stored)}&topic=Orders"
    words = ("message", "get", stored, "--topic", "Orders")
    assert root.get(path).value == printed(broker, *words)


def test_lists_of_the_snapshot_have_what_the_commands_print(
    broker: BrokerProcess, root: ConsoleClient, stored: str
) -> None:
    topics = {row["topic"] for row in root.get("/topics?filter=&limit=1000").value}
    assert {row["topic"] for row in printed(broker, "topic", "list", "--system")} <= topics
    groups = {row["group"]: row for row in root.get("/groups?limit=1000").value}
    (row,) = (row for row in printed(broker, "group", "list") if row["group"] == "billing")
    assert {name: groups["billing"][name] for name in row} == row


def test_a_reset_says_what_it_does_to_messages(
    root: ConsoleClient, admin: AdminClient, stored: str
) -> None:
    admin.reset_offsets("billing", "Orders", ConsumeFrom.LAST)
    before = admin.committed_offsets("billing", "Orders")
    asked = root.send("POST", "/groups/billing/reset", topic="Orders", to="first")
    assert asked.status == 428
    assert asked.document["asks"].endswith("12 messages of 3 queues will be delivered again.")
    assert admin.committed_offsets("billing", "Orders") == before
    moved = root.send("POST", "/groups/billing/reset", topic="Orders", to="first", confirm=True)
    assert {row["after"] for row in moved.value} == {0}


def called(
    client: ConsoleClient, name: str, broker: str, *, topic: str = "Orders", **more: Any
) -> Answer:
    """Call an operation with arguments that root could give; of a change also `more`."""
    given: dict[str, Any] = {
        "name": topic, "topic": topic, "group": "billing", "source": "billing",
        "target": "billing", "to": "first", "identity": f"{topic}/{broker}/0@0", "client": "c",
        "address": "127.0.0.1:1", "what": "files", "broker": broker,
        "allowed": "off", "user": "root", "action": "Pub", "actions": ["Get"],
        "resource": f"Topic:{topic}", "values": ["deleteWhen=05"], "key": "k", "id": "x",
    }  # fmt: skip
    operation = OPERATIONS[name]
    if name.startswith("group."):
        given["name"] = "billing"
    arguments = {
        key: value
        for key, value in given.items()
        if key in parameters_of(operation) and not (name == "why" and key == "message_id")
    }
    path = operation.path.format_map({key: quote(str(value)) for key, value in given.items()})
    others = {key: value for key, value in arguments.items() if f"{{{key}}}" not in operation.path}
    if operation.method == GET:
        query = "&".join(f"{key}={quote(str(value))}" for key, value in others.items())
        return client.get(f"{path}?{query}")
    if name == "users.create":
        others["secret"] = "s"
    return client.send(operation.method, path, **others, **more)


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_a_user_without_rights_does_nothing(
    broker: BrokerProcess, admin: AdminClient, stored: str, name: str
) -> None:
    if not any(user.name == "nobody" for user in admin.users("nobody")):
        admin.create_user("nobody", "nobodys-secret")
    nobody = client_of(broker, ("nobody", "nobodys-secret"))
    answer = called(nobody, name, admin.cluster_info().brokers[0].name, confirm=True)
    if answer.status == 200:
        # It was told that it may not, place by place.
        assert not answer.document["complete"] or not answer.value
        return
    assert answer.status in (400, 403, 404, 409), answer


# ── Rights on one topic ──

OF_TOPICS = ("topic.describe", "message.find", "message.tail", "message.get", "topic.alter")


@pytest.fixture(scope="module")
def owner(broker: BrokerProcess, admin: AdminClient, stored: str) -> ConsoleClient:
    """A user who may everything with the topic Owned, and nothing else; there is also Hidden."""
    for topic in ("Owned", "Hidden"):
        admin.create_topic(topic, queues=1)
        with Producer(broker.namesrv_address, group="p", credentials=ROOT) as producer:
            producer.send(Message(topic, b"x", keys=("k",)))
    admin.create_user("owner", "owners-secret")
    admin.grant("owner", "Topic:Owned", ["All"])
    # Tools read messages as this group.
    admin.grant("owner", "Group:TOOLS_CONSUMER", ["Sub"])
    return client_of(broker, ("owner", "owners-secret"))


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_rights_on_one_topic_are_none_on_another(
    admin: AdminClient, root: ConsoleClient, owner: ConsoleClient, name: str
) -> None:
    broker = admin.cluster_info().brokers[0].name
    answer = called(owner, name, broker, topic="Hidden", confirm=True)
    if answer.status == 200:
        assert not answer.document["complete"] or not answer.value
        assert not answer.value or "Hidden" not in json.dumps(answer.value)
    else:
        assert answer.status in (400, 403, 404, 409), answer
    assert "Hidden" in admin.topics()
    done = root.get("/audit?filter=owner&limit=1000").value
    assert not [
        row
        for row in done
        if row["user"] == "owner" and row["result"] == "SUCCESS" and "Owned" not in json.dumps(row)
    ]


@pytest.mark.parametrize("name", OF_TOPICS)
def test_rights_on_one_topic_are_enough_for_it(
    admin: AdminClient, owner: ConsoleClient, name: str
) -> None:
    broker = admin.cluster_info().brokers[0].name
    more = {"queues": 2} if name == "topic.alter" else {}
    answer = called(owner, name, broker, topic="Owned", confirm=True, **more)
    assert answer.status == 200, answer
    assert "Owned" in json.dumps(answer.value)


@pytest.mark.parametrize("name", sorted(LISTS))
def test_lists_have_what_rights_on_one_topic_show(owner: ConsoleClient, name: str) -> None:
    answer = owner.get(f"/{name}?limit=1000")
    if answer.status == 403:
        assert name in ("audit", "settings")
        return
    about = ["Owned"] if name == "topics" else []

    def shown() -> bool:
        rows = owner.get(f"/{name}?limit=1000").value
        return [row.get("topic") for row in rows if row.get("topic") or row.get("group")] == about

    # A snapshot from before the topic was made may be shown while the next one is made.
    eventually(shown, within_s=60.0, what=f"{name} of the owner")
    assert "Hidden" not in answer.body.decode()


def test_rights_on_one_group_are_enough_for_its_lag(
    broker: BrokerProcess, root: ConsoleClient, admin: AdminClient, stored: str
) -> None:
    """A broker that does not tell an account how it is is neither dead nor silent."""
    admin.create_user("billing", "billings-secret")
    admin.grant("billing", "Group:billing", ["All"])
    admin.grant("billing", "Topic:Orders", ["Get", "Sub"])
    biller = client_of(broker, ("billing", "billings-secret"))
    lag = biller.get("/groups/billing/lag").value
    assert lag == root.get("/groups/billing/lag").value
    assert {row["topic"] for row in lag} == {"Orders"}
    refused = biller.get("/groups/billing/doctor")
    assert (refused.status, refused.document["error"]) == (403, "forbidden"), refused.body
    assert "needs Get or List on Cluster:" in refused.document["text"]
    (own,) = biller.get("/brokers").value
    assert (own["own"], own["state"], own["why"]) == (True, "up", "")
    kinds = {found["kind"] for found in biller.get("/findings").value}
    assert not [kind for kind in kinds if kind.startswith("broker_")]


# ── Previews ──

CHANGES = sorted(name for name, operation in OPERATIONS.items() if operation.changes)


@pytest.fixture(scope="module")
def seen(open_broker: BrokerProcess) -> str:
    """The name of a broker without users, which has a topic, a message, and a group at its end."""
    with AdminClient(open_broker.namesrv_address) as admin:
        admin.create_topic("Orders", queues=1)
        with Producer(open_broker.namesrv_address, group="p") as producer:
            producer.send(Message("Orders", b"x", keys=("k",)))
        admin.create_group(GroupConfig(name="billing"))
        admin.reset_offsets("billing", "Orders", ConsumeFrom.LAST)
        return admin.cluster_info().brokers[0].name


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_not_confirmed_is_answered_without_users_and_changes_nothing(
    anybody: ConsoleClient, seen: str, name: str
) -> None:
    before = anybody.get("/audit?limit=1000").value
    answer = called(anybody, name, seen)
    assert answer.status in (200, 400, 404, 409, 428), answer
    assert anybody.get("/audit?limit=1000").value == before
    assert called(anybody, name, seen, confirm=True).status == 403


def test_producers_are_let_in_again_only_if_that_is_confirmed(
    anybody: ConsoleClient, seen: str
) -> None:
    path = f"/brokers/{seen}/write-permission"
    before = anybody.get("/audit?limit=1000").value
    assert anybody.send("POST", path, allowed="on").status == 428
    assert anybody.get("/audit?limit=1000").value == before


def test_a_dry_run_of_a_reset_needs_no_users(anybody: ConsoleClient, seen: str) -> None:
    (row,) = anybody.send(
        "POST", "/groups/billing/reset", topic="Orders", to="first", dry_run=True
    ).value
    assert (row["before"], row["after"]) == (1, 0)
    page = anybody.request("GET", "/reset?group=billing&topic=Orders&where=first").body.decode()
    assert "1 message will be delivered again." in page
    assert "This is a preview" in page
    assert "Move the offsets</button>" not in page


@pytest.mark.parametrize("burst", [True, False])
def test_a_search_by_key_goes_on_to_the_oldest_message(
    anybody: ConsoleClient, open_broker: BrokerProcess, burst: bool
) -> None:
    topic = f"Burst-{burst}"
    with AdminClient(open_broker.namesrv_address) as admin:
        admin.create_topic(topic, queues=1)
    messages = [Message(topic, b"x", keys=("k",)) for _ in range(40)]
    with Producer(open_broker.namesrv_address, group="p") as producer:
        # Those of a batch are of one millisecond, the others of few seconds.
        for message in () if burst else messages:
            producer.send(message)
        if burst:
            producer.send_batch(messages)
    path, offsets = f"/messages?topic={topic}&key=k&max=16", set[str]()
    for _ in range(len(messages)):
        page = anybody.request("GET", path).body.decode()
        offsets.update(re.findall(rf"id={topic}%2F[^%]+%2F0%40(\d+)", page))
        further = re.search(r'href="(/messages\?[^"]*)">Look further', page)
        if further is None:
            break
        path = html.unescape(further[1])
    assert len(offsets) == len(messages)


def test_a_dry_run_is_for_whoever_may_read(
    broker: BrokerProcess, admin: AdminClient, stored: str
) -> None:
    admin.create_user("looker", "lookers-secret")
    admin.grant("looker", "Topic:Orders", ["Get", "List"])
    admin.grant("looker", "Group:billing", ["Get", "List"])
    # Which groups there are is of the cluster.
    admin.grant("looker", "Cluster:*", ["List"])
    admin.reset_offsets("billing", "Orders", ConsumeFrom.LAST)
    looker = client_of(broker, ("looker", "lookers-secret"))
    given = {"topic": "Orders", "to": "first"}
    assert looker.send("POST", "/groups/billing/reset", **given, dry_run=True).status == 200
    assert looker.send("POST", "/groups/billing/reset", **given, confirm=True).status == 403
