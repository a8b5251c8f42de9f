"""A page whose session has ended goes to the login by itself, and back from there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from aerobee.blocking import AdminClient
from tests.broker.console.conftest import ROOT, SECRET
from tests.console_browser.conftest import opened

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.kit.broker_process import BrokerProcess

pytestmark = pytest.mark.service

WITHIN_MS = 60_000


def test_a_page_that_renews_itself_does_not_outlive_its_session(
    browser: Browser, broker: BrokerProcess
) -> None:
    with opened(browser, broker) as page:
        page.goto("/topics?sort=name")
        other = page.context.new_page()
        other.goto("/")
        other.get_by_role("button", name="Sign out").click()
        expect(other).to_have_url(re.compile("/login"))
        expect(page).to_have_url(re.compile("/login.next=/topics"))
        page.fill("input[name=name]", "root")
        page.fill("input[name=secret]", SECRET)
        page.click("main button")
        expect(page).to_have_url(re.compile(r"/topics\?sort=name$"))


def test_a_live_page_does_not_outlive_its_session(browser: Browser, broker: BrokerProcess) -> None:
    """Its stream is refused then, and a browser asks for it no more."""
    with AdminClient(broker.namesrv_address, credentials=ROOT) as admin:
        admin.create_topic("Followed", queues=1)
    with opened(browser, broker) as page:
        page.goto("/tail?topic=Followed")
        expect(page.locator("[data-state]")).to_have_text("live", timeout=WITHIN_MS)
        other = page.context.new_page()
        other.goto("/")
        other.get_by_role("button", name="Sign out").click()
        expect(page).to_have_url(re.compile("/login.next=/tail"), timeout=WITHIN_MS)
