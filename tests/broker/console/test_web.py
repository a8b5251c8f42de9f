"""The API of the console on a real broker: who may what, and what hostile requests are told."""

from __future__ import annotations

import re
import socket
from contextlib import ExitStack
from html import unescape
from http.client import HTTPException
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import httpx
import pytest
import trio
import trio.testing
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse

from aerobee import ConsumeFrom
from aerobee.admin import GroupConfig
from aerobee.blocking import AdminClient, Message, Producer
from aerobee.broker.config.settings.console import ConsoleConfig
from aerobee.broker.console.console import Console
from aerobee.broker.console.requests import BODIES_MAX, BODY_MAX, LOGIN_MAX
from aerobee.broker.console.web import Guard, answered
from tests.broker.console.conftest import ROOT, SECRET, WITH_USERS, client_of
from tests.broker.peers import HandClock
from tests.kit.broker_process import BrokerProcess
from tests.kit.ports import free_port
from tests.kit.raw_client import RawConnection, send_fields
from tests.kit.tls import certificate, client_context
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.console_client import ConsoleClient

pytestmark = pytest.mark.service

SEND, PACKED = 310, 1
HOSTILE = (
    "<script>alert(1)</script>",
    "' OR 1=1 --",
    "--json",
    "-y",
    "../../etc/passwd",
    "\u202eright-to-left",
    "line\nbreak",
    "x" * 4_096,
    "{name}",
    "%s%n",
)


# ── Without users ──


def test_without_users_this_host_reads(anybody: ConsoleClient) -> None:
    assert anybody.get("/overview").value["role"] == "master"
    assert anybody.get("/me").value["may_write"] is False
    assert anybody.get("/settings?filter=consolePort").document["total"] == 1


def test_the_page_of_a_message_says_where_its_body_is_as_it_is_stored(
    anybody: ConsoleClient, open_broker: BrokerProcess
) -> None:
    with RawConnection(open_broker.address) as connection:
        for flag in (0, PACKED):
            for topic in ("Unpacked", "%DLQ%unpacked"):
                fields = send_fields(topic, 0, f=flag)
                assert connection.call(SEND, fields, b"body").code == 0
    pages = []
    for message in anybody.get("/topics/Unpacked/messages").value:
        place = f"Unpacked/{message['broker']}/0@{message['queue_offset']}"
        page = anybody.request("GET", f"/message?id={quote(place)}")
        assert page.status == 200, page.body
        pages.append("as it is stored: the body does not unpack" in page.body.decode())
        letter = {"group": "unpacked", "id": f"%DLQ%{place}".replace("Unpacked", "unpacked")}
        page = anybody.request("GET", f"/letters/edit?{urlencode(letter)}")
        pages.append("as it is stored: the body does not unpack" in page.body.decode())
    assert pages == [False, False, True, True]


def test_without_users_nothing_is_changed(anybody: ConsoleClient) -> None:
    refused = anybody.send("POST", "/topics", name="Orders", confirm=True)
    assert refused.status == 403
    assert "authenticationEnabled" in refused.document["text"]


def test_an_unknown_host_name_is_refused(anybody: ConsoleClient) -> None:
    port = anybody.port
    for host in ("evil.example", f"evil.example:{port}", "", "127.0.0.1.evil.example", "[x", "a@b"):
        refused = anybody.request("GET", "/api/v1/me", headers={"host": host})
        assert refused.status in (400, 421), host
    for host in (f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"):
        assert anybody.request("GET", "/api/v1/me", headers={"host": host}).status == 200


def test_every_answer_has_the_headers_that_protect_pages(anybody: ConsoleClient) -> None:
    for path in ("/api/v1/me", "/nothing", "/api/v1/nothing", "/login"):
        headers = anybody.request("GET", path).headers
        assert "default-src 'self'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("method", "path", "status", "error", "said"),
    [
        ("GET", "/nothing", 404, "not_found", "openapi.json"),
        ("GET", "/topics/a/b/c", 404, "not_found", "openapi.json"),
        ("PUT", "/topics/T", 405, "usage", "DELETE, GET, HEAD, PATCH"),
        ("GET", "/clients/", 404, "not_found", "openapi.json"),
        ("DELETE", "/clients/", 404, "not_found", "openapi.json"),
        ("DELETE", "/topics/", 404, "not_found", "openapi.json"),
        ("DELETE", "/groups", 405, "usage", "GET, HEAD, POST"),
        ("POST", "/overview", 405, "usage", "GET, HEAD"),
        ("GET", "/groups?name=billing", 400, "usage", "filter, sort, offset, limit"),
    ],
)
def test_what_there_is_not_is_refused_in_json(
    anybody: ConsoleClient, method: str, path: str, status: int, error: str, said: str
) -> None:
    if method == "GET":
        answer = anybody.get(path)
    else:
        answer = anybody.send(method, path)
    assert (answer.status, answer.document["error"]) == (status, error), answer.body
    assert said in answer.document["text"]
    assert status != 405 or answer.headers["allow"] == said


def test_one_answer_has_so_many_messages(anybody: ConsoleClient) -> None:
    refused = anybody.get("/topics/Any/messages?max=65")
    assert (refused.status, refused.document["text"]) == (400, "max is a number from 1 to 64")


def test_long_requests_are_refused(anybody: ConsoleClient) -> None:
    assert anybody.get(f"/me?x={'y' * 9_000}").status == 414
    assert anybody.send("POST", "/topics", name="x" * 70_000).status == 413
    assert anybody.request("GET", "/api/v1/me", headers={"x": "y" * 20_000}).status == 431


@pytest.mark.parametrize(
    ("method", "header", "status"),
    [
        ("POST", f"content-length: {4 << 20}", 413),
        ("POST", f"content-length: {BODY_MAX + 1}", 413),
        ("POST", "transfer-encoding: chunked", 411),
        ("GET", f"content-length: {4 << 20}", 413),
    ],
)
def test_of_a_body_that_is_too_long_nothing_is_read(
    anybody: ConsoleClient, method: str, header: str, status: int
) -> None:
    with begun(anybody, method, header) as asking:
        assert status_in(asking) == status, "the headers alone have come"


def test_so_many_bodies_are_on_their_way_at_once(anybody: ConsoleClient) -> None:
    with ExitStack() as stack:
        waiting = [
            stack.enter_context(begun(anybody, "POST", f"content-length: {BODY_MAX}"))
            for _ in range(BODIES_MAX)
        ]

        def one_more() -> int:
            with begun(anybody, "POST", "content-length: 2") as asking:
                asking.sendall(b"{}")
                return status_in(asking)

        # The headers of all have to be read first.
        eventually(lambda: one_more() == 503, within_s=60, what="one more is refused")
        assert anybody.get("/me").status == 200
        # It has no body, so it is read as one without arguments.
        assert anybody.request("POST", "/api/v1/topics", headers=JSON_KIND).status == 400
        waiting[0].sendall(b" " * BODY_MAX)
        assert status_in(waiting[0]) == 400
        eventually(lambda: one_more() == 400, within_s=60, what="there is a place again")


@pytest.mark.trio
async def test_an_error_of_ours_is_none_of_the_request() -> None:
    async def not_json(request: Request) -> JSONResponse:
        return JSONResponse({"in_per_s": float("nan")})

    with pytest.raises(ValueError, match="not JSON compliant"):
        await answered(not_json)(Request({"type": "http"}))


def test_a_query_with_many_fields_is_told_what_is_wrong(anybody: ConsoleClient) -> None:
    query = "&".join(f"name-{number}=x" for number in range(300))
    answer = anybody.get(f"/cluster?{query}")
    assert (answer.status, answer.document["error"]) == (400, "usage"), answer.body
    assert "fields" in answer.document["text"]


@pytest.mark.trio
async def test_a_body_that_does_not_come_in_time_keeps_no_place(
    autojump_clock: trio.testing.MockClock,
) -> None:
    config = ConsoleConfig()
    console = Console(None, clock=HandClock(), config=config, authority=lambda: None, connect=None)
    guard = Guard(Starlette(), console, config)
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/api/v1/topics",
        "query_string": b"",
        "client": ("127.0.0.1", 1),
        "headers": [
            (b"host", b"localhost"),
            (b"content-type", b"application/json"),
            (b"content-length", b"64"),
        ],
    }
    said: list[Any] = []

    async def trickling() -> Any:
        await trio.sleep(5)
        return {"type": "http.request", "body": b" ", "more_body": True}

    async def hear(message: Any) -> None:
        await trio.lowlevel.checkpoint()
        said.append(message)

    for _ in range(BODIES_MAX + 1):
        await guard(scope, trickling, hear)
        assert said[-2]["status"] == 408


JSON_KIND = {"content-type": "application/json"}


def begun(
    client: ConsoleClient, method: str, header: str, path: str = "/api/v1/topics"
) -> socket.socket:
    """A connection on which the headers of a request have been sent, and no body."""
    connection = socket.create_connection(("127.0.0.1", client.port), timeout=60)
    head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json"
    connection.sendall(f"{head}\r\n{header}\r\n\r\n".encode())
    return connection


def status_in(connection: socket.socket) -> int:
    """The status of the answer that comes there."""
    answer = connection.recv(12)
    assert answer.startswith(b"HTTP/1.1 "), answer
    return int(answer[9:])


def test_with_a_certificate_it_speaks_https_alone(tmp_path: Path) -> None:
    shown = certificate(tmp_path)
    settings = WITH_USERS | {
        "consolePort": free_port(),
        "consoleTlsEnable": "true",
        "tlsServerCertPath": shown.cert,
        "tlsServerKeyPath": shown.key,
    }
    with BrokerProcess(data=tmp_path / "data", settings=settings) as broker:
        base = f"https://127.0.0.1:{broker.settings['consolePort']}"
        with httpx.Client(base_url=base, verify=client_context(shown), timeout=60) as client:
            login = client.post("/login", data={"name": "root", "secret": SECRET})
            assert login.status_code == 303
            assert "; Secure" in login.headers["set-cookie"]
            assert client.get("/api/v1/me").json()["value"]["name"] == "root"
        with pytest.raises((OSError, HTTPException)):
            client_of(broker).get("/me")


# ── With users ──


def test_bodies_of_strangers_keep_nobody_out(broker: BrokerProcess, root: ConsoleClient) -> None:
    stranger = client_of(broker)
    with begun(stranger, "POST", "content-length: 9") as asking:
        assert status_in(asking) == 401, "nobody waits for the body of somebody unknown"
    with begun(stranger, "POST", f"content-length: {LOGIN_MAX + 1}", "/login") as asking:
        assert status_in(asking) == 413
    with ExitStack() as stack:
        for _ in range(BODIES_MAX + 1):
            stack.enter_context(begun(stranger, "POST", "content-length: 9", "/login"))
        assert root.send("POST", "/topics", name="Placed", confirm=True).status == 200
        assert stranger.form("/login", f"name=root&secret={SECRET}").headers["location"] == "/"


def test_nobody_without_a_name_gets_in(broker: BrokerProcess) -> None:
    stranger = client_of(broker)
    refused = stranger.get("/topics")
    assert refused.status == 401
    assert refused.headers["www-authenticate"].startswith("Basic")
    page = stranger.request("GET", "/groups")
    assert (page.status, page.headers["location"]) == (303, "/login?next=/groups")
    part = stranger.request("GET", "/groups", headers={"HX-Request": "true"})
    assert (part.body, part.headers["hx-redirect"]) == (b"", "/login?next=/groups")


def test_a_change_asks_first_and_is_done_when_confirmed(
    root: ConsoleClient, admin: AdminClient
) -> None:
    asked = root.send("POST", "/topics", name="Asked", queues=2)
    assert asked.status == 428
    assert (
        asked.document["asks"] == "Topic Asked is created on every master, or gets these settings."
    )
    assert "Asked" not in admin.topics()
    assert root.send("POST", "/topics", name="Asked", queues=2, confirm=True).value["queues"] == 2
    assert "Asked" in admin.topics()
    asked = root.send("DELETE", "/topics/Asked")
    assert asked.document["asks"] == "delete topic Asked with 0 messages, consumed by no group?"
    assert "Asked" in admin.topics()
    assert root.send("DELETE", "/topics/Asked", confirm=True).value["deleted"] is True
    assert "Asked" not in admin.topics()


def test_a_client_whose_id_has_a_slash_is_one_to_close(root: ConsoleClient) -> None:
    asked = root.send("DELETE", "/clients/10.1.1.1%2F7@pod")
    assert asked.status == 428
    assert "10.1.1.1/7@pod" in asked.document["asks"]


def test_the_audit_log_names_the_user_and_where_from(root: ConsoleClient) -> None:
    assert root.send("POST", "/topics", name="Audited", confirm=True).status == 200
    lines = root.get("/audit?filter=Audited").document["value"]
    assert lines[0]["request"] == "UPDATE_AND_CREATE_TOPIC"
    assert lines[0]["user"] == "root"
    assert lines[0]["address"].startswith("127.0.0.1:")
    assert lines[0]["result"] == "SUCCESS"


def test_a_user_sees_and_changes_what_its_policies_say(
    broker: BrokerProcess, root: ConsoleClient, admin: AdminClient
) -> None:
    for topic in ("Mine", "Theirs"):
        admin.create_topic(topic, queues=1)
    admin.create_user("ann", "anns-secret")
    admin.grant("ann", "Topic:Mine", ["Get", "List", "Update", "Create"])
    ann = client_of(broker, ("ann", "anns-secret"))
    assert [row["topic"] for row in ann.get("/topics").value] == ["Mine"]
    assert ann.get("/topics/Mine").status == 200
    assert ann.get("/topics/Theirs").status == 403
    for path in ("/settings", "/audit", "/store", "/users", "/cluster"):
        assert ann.get(path).status == 403, path
    assert ann.send("POST", "/topics", name="Theirs", queues=9, confirm=True).status == 403
    assert ann.send("DELETE", "/topics/Theirs", confirm=True).status == 403
    assert ann.send("PATCH", "/brokers/settings", values=["a=b"], confirm=True).status == 403
    refused = ann.send("POST", "/ha/switch", to=broker.address, confirm=True)
    assert refused.status == 403, "not that no master answers"
    assert root.get("/topics/Theirs").value["brokers"][0]["read_queues"] == 1


def test_bodies_are_a_right_of_their_own(
    broker: BrokerProcess, root: ConsoleClient, admin: AdminClient
) -> None:
    admin.create_topic("Bodies", queues=1)
    with Producer(broker.namesrv_address, group="p", credentials=ROOT) as producer:
        producer.send(Message("Bodies", b"<b>secret</b>", keys=("k1",)))
    for name in ("reader", "curious"):
        admin.create_user(name, f"{name}-secret")
        admin.grant(name, "Topic:Bodies", ["Get", "List", "Sub"])
        admin.grant(name, "Group:*", ["Sub", "Get"])
    bodies = {}
    for name in ("reader", "curious"):
        client = client_of(broker, (name, f"{name}-secret"))
        (message,) = client.get("/topics/Bodies/messages?key=k1").value
        bodies[name] = message["body"]
    assert bodies == {"reader": "<b>secret</b>", "curious": None}


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize(
    ("method", "path", "name", "others"),
    [
        ("POST", "/topics", "name", {}),
        ("POST", "/topics", "type", {"name": "Hostile"}),
        ("POST", "/groups", "name", {}),
        ("POST", "/users", "name", {"secret": "s"}),
        ("POST", "/users", "broker", {"name": "eve", "secret": "s"}),
        ("PATCH", "/brokers/settings", "values", {}),
        ("POST", "/ha/promote", "address", {}),
        ("POST", "/ha/switch", "to", {}),
        ("POST", "/ha/switch", "group", {"to": "127.0.0.1:1"}),
        ("POST", "/acl/root/grant", "resource", {"actions": ["Get"]}),
        ("POST", "/acl/root/grant", "from", {"actions": ["Get"], "resource": "Topic:x"}),
        ("POST", "/groups/CID/reset", "to", {"topic": "x"}),
        ("POST", "/brokers/clean", "what", {}),
    ],
)
def test_hostile_values_are_values(
    root: ConsoleClient, method: str, path: str, name: str, others: dict[str, object], text: str
) -> None:
    """Nothing is read as an option, and nothing breaks; a name that is legal is taken as it is."""
    answer = root.send(method, path, **others, **{name: text}, confirm=True)
    if answer.status == 200:
        assert text in answer.value.values()
    else:
        # 503: no name server knows a broker of that name.
        assert answer.status in (400, 403, 404, 409, 503), answer
        assert "Traceback" not in answer.document["text"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"[]", 400),
        (b"{", 400),
        (b"[" * 60_000, 400),
        (b'{"name": {"a": 1}}', 400),
        (b'{"name": ["a", "b"]}', 400),
        (b'{"name": "a", "confirm": "yes"}', 400),
        (b'{"name": "a", "yes": true}', 400),
        (b'{"name": "a", "namesrv": "10.0.0.1:9876"}', 400),
        (b'{"name": "\\ud800"}', 400),
        (b'{"name": "a\\u0000b"}', 400),
        (b'{"name": true}', 400),
    ],
)
def test_hostile_bodies_are_refused(root: ConsoleClient, body: bytes, status: int) -> None:
    kind = {"content-type": "application/json"}
    assert root.request("POST", "/api/v1/topics", body, kind).status == status


def test_no_file_of_the_machine_is_read(root: ConsoleClient) -> None:
    given = {"name": "eve", "secret": "s", "secret_file": "/etc/hostname"}
    assert root.send("POST", "/users", **given, confirm=True).status == 400
    letter = {"identity": "x", "file": "/etc/hostname"}
    assert root.send("POST", "/dlq/any/edit", **letter, confirm=True).status == 400


def test_the_broker_connects_to_no_address_that_a_viewer_names(root: ConsoleClient) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        refused = root.get(f"/brokers/settings?broker={host}:{port}")
        assert refused.status == 400
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


# ── Sessions ──


def test_a_browser_logs_in_and_out(broker: BrokerProcess) -> None:
    browser = client_of(broker)
    login = browser.form("/login", f"name=root&secret={SECRET}&next=/topics")
    assert (login.status, login.headers["location"]) == (303, "/topics")
    cookie = login.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    browser.headers["cookie"] = cookie.partition(";")[0]
    me = browser.get("/me").value
    assert me["name"] == "root"
    # Without the token of the session no change passes, with it one does.
    refused = browser.send("POST", "/topics", name="Forged", confirm=True)
    assert (refused.status, refused.document["error"]) == (403, "csrf")
    browser.headers["x-csrf-token"] = me["csrf"]
    assert browser.send("POST", "/topics", name="Clicked", confirm=True).status == 200
    browser.headers["sec-fetch-site"] = "cross-site"
    assert browser.send("POST", "/topics", name="Crossed", confirm=True).status == 403
    browser.headers["sec-fetch-site"] = "same-origin"
    browser.headers["origin"] = "http://evil.example"
    assert browser.send("POST", "/topics", name="Crossed", confirm=True).status == 403
    del browser.headers["origin"]
    with socket.create_connection(("127.0.0.1", browser.port), timeout=60) as live:
        request = (
            f"GET /live/rates HTTP/1.1\r\nhost: localhost\r\ncookie: {browser.headers['cookie']}"
        )
        live.sendall(f"{request}\r\n\r\n".encode())
        assert live.recv(12) == b"HTTP/1.1 200"
        out = browser.form("/logout", f"csrf={me['csrf']}")
        assert out.status == 303
        # It ends with the session, and a stream ends with an empty piece.
        told = b""
        while not told.endswith(b"\r\n0\r\n\r\n"):
            piece = live.recv(65_536)
            assert piece, told
            told += piece
    assert browser.get("/me").status == 401


def signed_in(broker: BrokerProcess) -> ConsoleClient:
    """The browser of root; forms need `csrf_of` it."""
    browser = client_of(broker)
    login = browser.form("/login", f"name=root&secret={SECRET}")
    browser.headers["cookie"] = login.headers["set-cookie"].partition(";")[0]
    return browser


def sent(browser: ConsoleClient, path: str, **fields: str) -> str:
    """The page behind a form that is confirmed."""
    csrf = browser.get("/me").value["csrf"]
    answer = browser.form(path, urlencode({**fields, "csrf": csrf, "confirmed": "yes"}))
    assert answer.status == 200, answer.body
    return answer.body.decode()


@pytest.mark.parametrize(
    ("body", "field", "expected"),
    [
        ("a\r\nb\n", "a\r\nb\r\n", "a\r\nb\n"),
        ("\na\n", "\r\na\r\n", "\na\n"),
        ("a\nb", "a\r\nc", "a\nc"),
        ("a\r\nb", "a\r\nc", "a\r\nc"),
    ],
)
def test_the_body_of_an_edited_letter_changes_where_its_field_was_changed(
    broker: BrokerProcess, admin: AdminClient, body: str, field: str, expected: str
) -> None:
    """Browsers send the end of a line as two signs, and leave out a first empty line."""
    admin.create_group(GroupConfig(name="careful"))
    admin.create_topic("Mended", queues=1)
    admin.create_topic("%DLQ%careful", queues=1)
    with Producer(broker.namesrv_address, group="p", credentials=ROOT) as producer:
        letter = producer.send(Message("%DLQ%careful", body.encode()))
    browser = signed_in(broker)
    place = f"{letter.queue}@{letter.queue_offset}"
    page = browser.request("GET", f"/letters/edit?{urlencode({'group': 'careful', 'id': place})}")
    assert f">\n{body}</textarea>" in page.body.decode()
    fields = {"group": "careful", "id": place, "tag": "new", "to_topic": "Mended", "body": field}
    sent(browser, "/letters/edit", **fields)
    newest = browser.get("/topics/Mended/tail?count=1").value[0]
    assert (newest["body"], newest["tag"]) == (expected, "new")


def test_a_change_of_a_topic_leaves_what_was_not_changed(
    broker: BrokerProcess, admin: AdminClient
) -> None:
    admin.create_topic("Uneven", queues=4)
    admin.change_topic("Uneven", write_queues=2)
    browser = signed_in(broker)
    sent(browser, "/topic/alter", name="Uneven", queues="2", perm="r")
    (there,) = admin.describe_topic("Uneven").configs
    assert (there.read_queues, there.write_queues, there.perm & 6) == (4, 2, 4)
    sent(browser, "/topic/alter", name="Uneven", queues="3", perm="")
    (there,) = admin.describe_topic("Uneven").configs
    assert (there.read_queues, there.write_queues, there.perm & 6) == (3, 3, 4)


def test_a_new_topic_is_none_that_is_there(broker: BrokerProcess, admin: AdminClient) -> None:
    """It would lose queues, and nobody would have been asked."""
    browser = signed_in(broker)
    sent(browser, "/topic/new", name="New", queues="4", perm="rw")
    csrf = browser.get("/me").value["csrf"]
    again = urlencode({"name": "New", "queues": "1", "perm": "r", "csrf": csrf})
    refused = browser.form("/topic/new", again)
    assert (refused.status, b"New is there already" in refused.body) == (409, True), refused.body
    (there,) = admin.describe_topic("New").configs
    assert (there.write_queues, there.perm & 6) == (4, 6)


def test_a_right_in_place_of_another_asks_first(broker: BrokerProcess, admin: AdminClient) -> None:
    admin.create_user("held", "a-long-secret")
    browser = signed_in(broker)
    csrf = browser.get("/me").value["csrf"]
    wanted = {"user": "held", "kind": "Topic", "resource": "Held", "csrf": csrf}
    assert (
        b"held may Pub on Topic:Held"
        in browser.form("/rights", urlencode(wanted | {"action": "Pub"})).body
    )
    admin.grant("held", "Topic:Held", ["Pub"], sources=["10.0.0.0/8"])
    asked = browser.form("/rights", urlencode(wanted | {"action": "Sub"})).body.decode()
    assert "may Pub from 10.0.0.0/8" in asked
    (entry,) = admin.acl("held")
    assert entry.actions == ("Pub",)
    fields = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', asked))
    assert b"held may Sub on Topic:Held" in browser.form("/rights", urlencode(fields)).body
    (entry,) = admin.acl("held")
    assert entry.actions == ("Sub",)


def test_a_secret_goes_to_the_broker_as_it_was_typed(broker: BrokerProcess) -> None:
    """Brokers refuse this one; without its blanks it would be another than its user knows."""
    browser = signed_in(broker)
    fields = {"name": "spaced", "secret": " with spaces ", "csrf": browser.get("/me").value["csrf"]}
    refused = browser.form("/users", urlencode(fields))
    assert (refused.status, b"blanks at an end" in refused.body) == (409, True), refused.body


def test_a_live_page_goes_on_behind_what_it_shows(
    broker: BrokerProcess, admin: AdminClient
) -> None:
    """Messages that come between the page and its stream, or between two streams, are not lost."""
    admin.create_topic("Followed", queues=1)
    browser = signed_in(broker)
    with Producer(broker.namesrv_address, group="p", credentials=ROOT) as producer:
        producer.send(Message("Followed", b"x", keys=("seen",)))
        page = browser.request("GET", "/tail?topic=Followed").body.decode()
        events = re.search(r'data-events="([^"]+)"', page)
        assert events is not None
        (shown,) = browser.get("/topics/Followed/tail?count=1").value

        def later() -> bool:
            producer.send(Message("Followed", b"x", keys=("between",)))
            (newest,) = browser.get("/topics/Followed/tail?count=1").value
            return bool(newest["stored_at"] > shown["stored_at"])

        eventually(later, within_s=60, what="a message of another millisecond")
    with socket.create_connection(("127.0.0.1", browser.port), timeout=60) as live:
        path, cookie = unescape(events[1]), browser.headers["cookie"]
        live.sendall(f"GET {path} HTTP/1.1\r\nhost: localhost\r\ncookie: {cookie}\r\n\r\n".encode())
        told = b""
        while b"event: tick" not in told:
            told += live.recv(65_536)
    assert b"between" in told
    assert b"seen" not in told
    assert re.search(rb"\nid: \S+\n", told)


@pytest.mark.parametrize(("letters", "status"), [(200, 400), (300, 400), (2, 404)])
def test_a_form_with_many_fields_is_told_what_is_wrong(
    broker: BrokerProcess, letters: int, status: int
) -> None:
    """200 are more than a page sends, 300 more than any form has; the token is the last field."""
    browser = signed_in(broker)
    csrf = browser.get("/me").value["csrf"]
    chosen = "&".join(f"id=T/b/0@{number}" for number in range(letters))
    answer = browser.form("/letters/resend", f"group=g&what=redrive&{chosen}&csrf={csrf}")
    assert answer.status == status
    said = {200: "choose 1 to 100 letters", 300: "at most 256 fields", 2: "no broker knows"}
    assert said[letters] in answer.body.decode()


def test_a_question_tells_nothing_of_a_group_that_the_viewer_may_not_see(
    broker: BrokerProcess, admin: AdminClient
) -> None:
    admin.create_topic("Secrets", queues=1)
    with Producer(broker.namesrv_address, group="p", credentials=ROOT) as producer:
        for _ in range(3):
            producer.send(Message("Secrets", b"x"))
    admin.create_group(GroupConfig(name="hidden"))
    admin.reset_offsets("hidden", "Secrets", ConsumeFrom.FIRST)
    admin.create_user("dora", "doras-secret")

    def lags() -> list[int]:
        rows = client_of(broker, ("root", SECRET)).get("/groups?filter=hidden").value
        return [row["lag"] for row in rows]

    eventually(lambda: lags() == [3], within_s=30, what="a snapshot has the group")
    seen = {}
    for name, secret in (("root", SECRET), ("dora", "doras-secret")):
        browser = client_of(broker)
        login = browser.form("/login", f"name={name}&secret={secret}")
        browser.headers["cookie"] = login.headers["set-cookie"].partition(";")[0]
        seen[name] = b"3 messages wait" in browser.request("GET", "/group/pause?name=hidden").body
    assert seen == {"root": True, "dora": False}


def test_the_login_goes_nowhere_else(broker: BrokerProcess) -> None:
    browser = client_of(broker)
    for page in ("//evil.example", "https://evil.example", "/\\evil.example", "/%0d%0ax:y"):
        login = browser.form("/login", f"name=root&secret={SECRET}&next={page}")
        assert login.headers["location"] == "/"


def test_basic_credentials_of_a_browser_change_nothing_from_another_site(
    root: ConsoleClient,
) -> None:
    root.headers["sec-fetch-site"] = "cross-site"
    assert root.send("POST", "/topics", name="Crossed", confirm=True).status == 403
    kind = {"content-type": "text/plain", "sec-fetch-site": "none"}
    assert root.request("POST", "/api/v1/topics", b'{"name": "x"}', kind).status == 415


def test_the_login_leads_to_the_page_with_its_query(broker: BrokerProcess) -> None:
    browser = client_of(broker)
    asked = browser.request("GET", "/group?name=a%26b")
    login = urlsplit(asked.headers["location"])
    (page,) = parse_qs(login.query)["next"]
    assert (asked.status, login.path, page) == (303, "/login", "/group?name=a%26b")
    right = browser.form("/login", f"name=root&secret={SECRET}&next={quote(page, safe='')}")
    assert right.headers["location"] == page


def test_another_login_of_a_browser_ends_the_session_before(broker: BrokerProcess) -> None:
    browser, before = client_of(broker), client_of(broker)
    login = browser.form("/login", f"name=root&secret={SECRET}")
    before.headers["cookie"] = login.headers["set-cookie"].partition(";")[0]
    fields = f"name=root&secret={SECRET}&csrf={before.get('/me').value['csrf']}"
    again = before.form("/login", fields)
    browser.headers["cookie"] = again.headers["set-cookie"].partition(";")[0]
    assert browser.get("/me").status == 200
    assert before.get("/me").status == 401


def test_a_changed_secret_ends_the_session(broker: BrokerProcess, admin: AdminClient) -> None:
    admin.create_user("bob", "first-secret")
    browser = client_of(broker)
    login = browser.form("/login", "name=bob&secret=first-secret")
    browser.headers["cookie"] = login.headers["set-cookie"].partition(";")[0]
    assert browser.get("/me").status == 200
    admin.change_user("bob", secret="second-secret")
    assert browser.get("/me").status == 401


def test_a_slow_client_holds_nobody_up(broker: BrokerProcess, root: ConsoleClient) -> None:
    with socket.create_connection(("127.0.0.1", root.port)) as slow:
        slow.sendall(
            b"POST /api/v1/topics HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{"
        )
        assert root.get("/me").status == 200


def test_users_that_nobody_told_of_are_not_said_to_be_none(tmp_path: Path) -> None:
    """As while the group of the broker has no master: it has them, and may have others there."""
    settings = {"consolePort": free_port(), "embeddedNamesrv": False}
    with BrokerProcess(data=tmp_path / "data", settings=settings) as broker:
        page = client_of(broker).request("GET", "/users").body.decode()
    assert "there is no name server" in page
    assert "There are no users" not in page
    assert "No user has rights" not in page


def test_wrong_secrets_are_limited(broker: BrokerProcess, admin: AdminClient) -> None:
    """The last of this file: its address is held back for a while."""
    admin.create_user("carl", "carls-secret")
    guesses = [client_of(broker, ("carl", f"guess-{n}")).get("/me").status for n in range(8)]
    assert guesses[0] == 401
    assert guesses[-1] == 429
    assert client_of(broker, ("carl", "carls-secret")).get("/me").status == 429
