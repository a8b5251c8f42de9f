"""Whatever others have named, sent or answered is shown as text, field by field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from aerobee.blocking import Message
from aerobee.broker.console.pages.rendering import Rendering
from tests.console_browser.conftest import opened
from tests.kit.chromium import hindrances

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import APIRequestContext, Browser, Page

    from aerobee.blocking import AdminClient, Producer
    from tests.kit.broker_process import BrokerProcess

HOSTILE = (
    """<img src=x onerror="document.title='taken'">"""
    """<script>document.title='taken'</script>'"&{{7*7}}"""
)
TURNED = "abc\u202edcba"


@pytest.fixture(scope="module")
def signed_in(browser: Browser, broker: BrokerProcess) -> Iterator[APIRequestContext]:
    """Requests of root."""
    with opened(browser, broker) as page:
        yield page.request


@pytest.mark.service
@pytest.mark.parametrize("field", ["key", "tag", "body", "header"])
def test_a_field_of_a_message_is_shown_as_text(
    page: Page, admin: AdminClient, producer: Producer, field: str
) -> None:
    topic = f"Hostile-{field}"
    admin.create_topic(topic, queues=1)
    word = HOSTILE.replace(" ", "/")
    message = {
        "key": Message(topic, b"x", keys=[word]),
        "tag": Message(topic, b"x", tag=word),
        "body": Message(topic, HOSTILE.encode()),
        "header": Message(topic, b"x", properties={"name": HOSTILE}),
    }[field]
    producer.send(message)
    for path in (f"/messages?topic={topic}", f"/tail?topic={topic}"):
        page.goto(path)
        seen = page.locator("tbody").inner_text()
        assert field == "header" or "onerror" in seen
        assert page.locator("main img").count() == 0
    page.goto(f"/messages?topic={topic}")
    page.locator("tbody a").click()
    page.wait_for_selector("dl.pairs")
    assert "onerror" in page.locator("main").inner_text()
    assert page.locator("main img, main script").count() == 0
    assert page.title() != "taken"
    assert not hindrances(page)


@pytest.mark.service
@pytest.mark.parametrize(
    "path",
    [
        "/group?name={}",
        "/topic?name={}",
        "/message?id={}",
        "/letters?group={}",
        "/client?id={}",
        "/groups?filter={}",
        "/reset?group={}&topic={}&where=time&at={}",
        "/messages?topic={}&key={}&since={}",
        "/topics?sort={}",
        "/setting?key={}",
        "/promote?address={}",
        "/switch?address={}",
        "/user/delete?name={}",
    ],
)
def test_what_stands_in_an_address_is_shown_as_text(
    signed_in: APIRequestContext, path: str
) -> None:
    address = path.replace("{}", quote(HOSTILE, safe=""))
    # Not opened: an error status would be a line of the browser's console.
    html = signed_in.get(address).text()
    assert "<img src=x" not in html
    assert "<script>document" not in html


ROW: dict[str, dict[str, Any]] = {
    "brokers.html": {
        "brokers": [
            {
                "broker": HOSTILE,
                "id": HOSTILE,
                "address": HOSTILE,
                "severity": "error",
                "word": HOSTILE,
                "why": HOSTILE,
                "in_per_s": None,
                "out_per_s": 0.5,
                "disk": None,
                "aerobee": HOSTILE,
                "version": HOSTILE,
            }
        ],
    },
    "message_row.html": {
        "row": {
            "path": "/message?id=1",
            "stored_at": HOSTILE,
            "broker": HOSTILE,
            "queue_id": 0,
            "queue_offset": 1,
            "tag": HOSTILE,
            "keys": [HOSTILE, TURNED],
            "content": HOSTILE,
        }
    },
}


@pytest.mark.parametrize("name", ROW)
def test_what_a_broker_of_others_says_is_shown_as_text(name: str) -> None:
    html = Rendering().page(name, "en", ROW[name])
    assert "<img src=x" not in html
    assert "<script>document" not in html
    assert "&lt;img src=x" in html


def test_signs_that_turn_a_text_around_are_shown_as_their_escapes() -> None:
    html = Rendering().page("message_row.html", "en", ROW["message_row.html"])
    assert "\u202e" not in html
    assert r"abc\u202edcba" in html
