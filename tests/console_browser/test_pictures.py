"""The pictures of the console in the docs: taken here of a real broker with something to see.

AEROBEE_WRITE_PICTURES=1 keeps those of a run in docs/operations/pictures. Otherwise it is checked
that each page can be taken, and that those of the docs have the same names and size.
"""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aerobee.admin import GroupConfig
from aerobee.blocking import ConsumeFrom, Message, PullConsumer, PushConsumer, Reject
from aerobee.store.format.system_names import DLQ_PREFIX
from tests.broker.console.conftest import ROOT
from tests.console_browser.conftest import opened
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from playwright.sync_api import Browser, Page

    from aerobee.blocking import AdminClient, Producer, ReceivedMessage
    from tests.kit.broker_process import BrokerProcess

pytestmark = pytest.mark.service

DOCS = Path(__file__).parents[2] / "docs" / "operations"
PICTURES = DOCS / "pictures"
WRITES = bool(os.environ.get("AEROBEE_WRITE_PICTURES"))
CURVE_S = 150.0
"""How long there is something to see on the chart, where pictures are kept."""
WAVE_MS = 250.0
MAX_BYTES = 120_000
WITHIN_S = 60.0
SIZE = (1060, 620)
TAKEN = {
    "console-overview": ("/", "light"),
    "console-overview-dark": ("/", "dark"),
    "console-group": ("/group?name=billing", "light"),
    "console-letters": ("/letters?group=refunds", "light"),
    "console-reset-dark": ("/reset?group=billing&topic=Orders&where=first", "dark"),
}


@pytest.fixture(scope="module")
def busy(
    browser: Browser, broker: BrokerProcess, admin: AdminClient, producer: Producer
) -> Iterator[None]:
    """A broker at work: one group reads all, one has left, and one gives up what it gets."""
    for topic, queues in (("Orders", 4), ("Payments", 2), ("Refunds", 1)):
        admin.create_topic(topic, queues=queues)
    for group in ("billing", "shipping", "refunds"):
        admin.create_group(GroupConfig(name=group))
    for number in range(40):
        keys = [f"order-{1000 + number}"]
        producer.send(Message("Orders", b'{"amount": 12}', tag="new", keys=keys))
        producer.send(Message("Payments", b"{}", tag="card", keys=keys))
    for number in range(6):
        producer.send(Message("Refunds", b"{}", tag="card", keys=[f"order-{1003 + number}"]))
    admin.reset_offsets("billing", "Orders", 6)

    def refuse(messages: Sequence[ReceivedMessage]) -> None:
        raise Reject("the account is closed")

    def dead() -> bool:
        letters = f"{DLQ_PREFIX}refunds"
        return letters in admin.topics() and admin.describe_topic(letters).messages == 6

    where = broker.namesrv_address
    first = ConsumeFrom.FIRST
    refunds = PushConsumer("refunds", where, credentials=ROOT, start_from=first)
    refunds.subscribe("Refunds", handler=refuse)
    with refunds, PullConsumer("shipping", where, credentials=ROOT, start_from=first) as shipping:
        shipping.subscribe("Orders")
        shipping.subscribe("Payments")
        eventually(dead, within_s=WITHIN_S, what="six dead letters")
        if WRITES:
            with opened(browser, broker) as page:
                draw_curve(page, producer, shipping)
        yield


def draw_curve(page: Page, producer: Producer, shipping: PullConsumer) -> None:
    """Send and read in waves while a page looks: rates are noted only then."""
    begins = time.monotonic()
    while (passed := time.monotonic() - begins) < CURVE_S:
        for _ in range(round(20 + 8 * math.sin(passed / 9) + 4 * math.sin(passed / 2))):
            producer.send(Message("Payments", b"{}", tag="card"))
        change = shipping.pause if passed % 45 > 33 else shipping.resume
        change(*shipping.assignment)
        shipping.done(*shipping.poll(max_messages=100, timeout=0))
        page.wait_for_timeout(WAVE_MS)


@pytest.mark.parametrize("name", TAKEN)
def test_a_picture_can_be_taken(
    browser: Browser, broker: BrokerProcess, busy: None, tmp_path: Path, name: str
) -> None:
    path, colours = TAKEN[name]
    with opened(browser, broker, colours=colours) as page:
        page.set_viewport_size({"width": SIZE[0], "height": SIZE[1]})
        until_calm(page, path)
        folder = PICTURES if WRITES else tmp_path
        folder.mkdir(exist_ok=True)
        page.screenshot(path=folder / f"{name}.png", animations="disabled")
    assert (folder / f"{name}.png").stat().st_size


def until_calm(page: Page, path: str) -> None:
    """Load a page, and wait for the lists that are made on a tick and for what is loaded later."""
    page.goto("/")
    page.get_by_text("group refunds has 6 dead letters").wait_for()
    page.goto(path)
    page.wait_for_load_state("load")
    if path == "/":
        page.locator(".chart canvas").wait_for()
        page.locator("#brokers ~ *, [aria-labelledby=brokers] table").first.wait_for()


def test_the_docs_show_these_pictures() -> None:
    kept = {path.name for path in PICTURES.iterdir()}
    assert kept == {f"{name}.png" for name in TAKEN}
    page = (DOCS / "console.md").read_text("utf-8")
    for name in kept:
        content = (PICTURES / name).read_bytes()
        assert len(content) <= MAX_BYTES, name
        assert content.startswith(b"\x89PNG\r\n")
        width, height = (int.from_bytes(content[at : at + 4], "big") for at in (16, 20))
        assert (width, height) == SIZE, name
        assert f"](pictures/{name})" in page, name
