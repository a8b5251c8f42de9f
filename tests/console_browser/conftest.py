"""A browser in front of the console of a broker with users, and somebody who is signed in."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from aerobee.blocking import AdminClient, Producer
from tests.broker.console.conftest import ROOT, SECRET, WITH_USERS
from tests.kit.broker_process import BrokerProcess
from tests.kit.chromium import browser as running_browser
from tests.kit.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

WITHIN_MS = 30_000.0
LOG_LINES = 20
WIDE, NARROW, HEIGHT = 1280, 400, 900


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with users that makes no topics by itself."""
    data = tmp_path_factory.mktemp("pages") / "data"
    settings = WITH_USERS | {"consolePort": free_port(), "autoCreateTopicEnable": "false"}
    with BrokerProcess(data=data, settings=settings) as broker:
        yield broker


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser."""
    from playwright.sync_api import expect

    expect.set_options(timeout=WITHIN_MS)
    with running_browser() as running:
        yield running


@pytest.fixture(scope="module")
def admin(broker: BrokerProcess) -> Iterator[AdminClient]:
    """Root, over remoting."""
    with AdminClient(broker.namesrv_address, credentials=ROOT) as admin:
        yield admin


@pytest.fixture(scope="module")
def producer(broker: BrokerProcess) -> Iterator[Producer]:
    """A producer of root."""
    with Producer(broker.namesrv_address, group="web", credentials=ROOT) as producer:
        yield producer


@contextmanager
def opened(
    browser: Browser,
    broker: BrokerProcess,
    *,
    width: int = WIDE,
    colours: str = "light",
    language: str = "en",
    scripts: bool = True,
    name: str = "root",
    secret: str = SECRET,
    zone: str = "UTC",
) -> Iterator[Page]:
    """A page of somebody who is signed in; what its console says fails the test."""
    from playwright.sync_api import Error

    context = browser.new_context(
        base_url=f"http://127.0.0.1:{broker.settings['consolePort']}",
        viewport={"width": width, "height": HEIGHT},
        color_scheme="dark" if colours == "dark" else "light",
        locale="zh-CN" if language == "zh" else "en-US",
        java_script_enabled=scripts,
        timezone_id=zone,
    )
    context.set_default_timeout(WITHIN_MS)
    said: list[str] = []
    page = context.new_page()
    page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: said.append(f"error: {error}"))
    try:
        try:
            page.goto("/")
        except Error as error:
            error.add_note("\n".join(broker.log.read_text().splitlines()[-LOG_LINES:]))
            raise
        page.fill("input[name=name]", name)
        page.fill("input[name=secret]", secret)
        page.click("main button")
        page.wait_for_selector("#nav", state="attached")
        yield page
    finally:
        context.close()
    assert not said, said


@pytest.fixture
def page(browser: Browser, broker: BrokerProcess) -> Iterator[Page]:
    """Root at a wide window."""
    with opened(browser, broker) as page:
        yield page
