"""Every page in a real browser: narrow and wide, light and dark, in both languages, by keyboard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest
from playwright.sync_api import expect

from aerobee.admin import GroupConfig
from aerobee.blocking import Message
from tests.console_browser.conftest import HEIGHT, NARROW, WIDE, opened
from tests.kit.chromium import hindrances

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from aerobee.blocking import AdminClient, Producer
    from tests.kit.broker_process import BrokerProcess

pytestmark = pytest.mark.service

PAGES = (
    "/",
    "/groups",
    "/group?name=lookers",
    "/topics?system=yes",
    "/topic?name=Looked",
    "/messages?topic=Looked",
    "/message?topic=Looked&id={message}",
    "/dead",
    "/letters?group=lookers",
    "/clients",
    "/reset?group=lookers&topic=Looked&where=first",
    "/replication",
    "/settings",
    "/setting?key=deleteWhen",
    "/audit",
    "/users",
    "/topic/new",
    "/topic/delete?name=Looked",
    "/group/pause?name=lookers",
)
LOOKS: dict[str, tuple[tuple[int, Literal["light", "dark"]], ...]] = {
    "en": ((WIDE, "light"), (NARROW, "dark")),
    "zh": ((WIDE, "dark"), (NARROW, "light")),
}
"""By language: a page that is loaded is made narrow and dark without being loaded again."""
CUT = """[...document.querySelectorAll('.scroll')]
    .filter(table => table.scrollWidth > table.clientWidth)
    .map(table => `${table.ariaLabel}: ${table.scrollWidth} of ${table.clientWidth}`)"""
"""The tables of a page whose last columns are seen only by readers who move the table."""
OVERLAID = """(() => {
    const seen = [...document.querySelectorAll('main :is(a, button, .pill, .advice)')];
    const meet = (one, other) =>
        Math.min(one.right, other.right) - Math.max(one.left, other.left) > 1 &&
        Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top) > 1;
    const over = (one, other) => !one.contains(other) && !other.contains(one) &&
        [...one.getClientRects()].some(a => [...other.getClientRects()].some(b => meet(a, b)));
    return seen.flatMap((one, place) => seen.slice(place + 1)
        .filter(other => over(one, other))
        .map(other => `${one.textContent.trim()} and ${other.textContent.trim()}`));
})()"""
"""What lies on top of each other, so that nobody can read it."""
FIRST_LOAD_MAX_BYTES = 150_000


@pytest.fixture(scope="module")
def message(admin: AdminClient, producer: Producer) -> str:
    """The id of a message; a topic and a group to look at."""
    admin.create_topic("Looked", queues=2)
    admin.create_group(GroupConfig(name="lookers"))
    sent = producer.send(Message("Looked", b'{"a": 1}', keys=["k"], tag="t"))
    admin.reset_offsets("lookers", "Looked", 0)
    return sent.message_id


@pytest.mark.parametrize("language", LOOKS)
def test_every_page_fits_and_hinders_nobody(
    browser: Browser, broker: BrokerProcess, message: str, language: str
) -> None:
    bad: list[tuple[object, str]] = []
    with opened(browser, broker, language=language) as page:
        for path in PAGES:
            page.goto(path.format(message=message))
            assert page.locator("h1").count() == 1, path
            lang = page.locator("html").get_attribute("lang")
            assert lang == ("zh-CN" if language == "zh" else "en")
            for width, colours in LOOKS[language]:
                page.set_viewport_size({"width": width, "height": HEIGHT})
                page.emulate_media(color_scheme=colours)
                look = (path, width, colours)
                assert page.evaluate("document.documentElement.scrollWidth") <= width, look
                assert not hindrances(page), look
                bad += [(look, pair) for pair in page.evaluate(CUT) + page.evaluate(OVERLAID)]
    assert not bad


def test_what_hinders_a_reader_is_found(browser: Browser) -> None:
    with browser.new_context() as context:
        page = context.new_page()
        page.set_content(
            "<html lang=en><title>t</title><main><h1>h</h1><img src=data:,>"
            "<p style='color: #eee; background: #fff'>pale</p></main></html>"
        )
        found = hindrances(page)
    assert sorted(line.partition(":")[0] for line in found) == ["color-contrast", "image-alt"]


def test_language_and_colours_are_chosen_and_kept(page: Page) -> None:
    page.get_by_role("link", name="中文").click()
    expect(page.locator("h1")).to_have_text("概览")
    page.get_by_role("link", name="深色").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.goto("/groups")
    expect(page.locator("h1")).to_have_text("消费者组")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_a_narrow_window_has_its_navigation_behind_a_button(
    browser: Browser, broker: BrokerProcess
) -> None:
    with opened(browser, broker, width=NARROW) as page:
        topics = page.get_by_role("link", name="Topics")
        expect(topics).to_be_hidden()
        page.get_by_role("button", name="Menu").focus()
        page.keyboard.press("Enter")
        expect(topics).to_be_visible()
        page.keyboard.press("Escape")
        expect(topics).to_be_hidden()


def test_the_keyboard_reaches_the_page_the_navigation_and_what_is_on_it(page: Page) -> None:
    page.goto("/groups")
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to the page")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_label("Part of a name")).to_be_focused()
    page.goto("/groups")
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent.trim()") == "Topics":
            break
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Topics")


def test_every_page_works_without_scripts(
    browser: Browser, broker: BrokerProcess, message: str
) -> None:
    with opened(browser, broker, scripts=False) as page:
        page.click("text=Find messages")
        page.get_by_label("Topic", exact=True).fill("Looked")
        page.get_by_label("Key", exact=True).fill("k")
        page.get_by_role("button", name="Find", exact=True).click()
        page.locator("tbody a").click()
        expect(page.locator("pre.content")).to_contain_text('"a": 1')
        page.click("text=Sign out")
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_the_first_load_is_small(page: Page) -> None:
    page.goto("/")
    sizes = page.evaluate(
        "performance.getEntries().map(entry => entry.decodedBodySize || 0)"
        ".reduce((sum, size) => sum + size, 0)"
    )
    assert 0 < sizes <= FIRST_LOAD_MAX_BYTES
