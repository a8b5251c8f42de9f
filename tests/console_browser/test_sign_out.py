"""A page whose session has ended goes to the login by itself, and back from there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.broker.console.conftest import SECRET
from tests.console_browser.conftest import opened

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.kit.broker_process import BrokerProcess

pytestmark = pytest.mark.service


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
