"""What an operator does, done by clicking in a real browser at a real broker."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from aerobee.admin import GroupConfig
from aerobee.blocking import ConsumeFrom, Message, Producer, PushConsumer, Reject
from aerobee.errors import SendFailedError
from aerobee.store.format.system_names import DLQ_PREFIX
from tests.broker.console.conftest import ROOT, WITH_USERS
from tests.console_browser.conftest import opened
from tests.kit.broker_process import BrokerProcess
from tests.kit.mounts import small_file_system
from tests.kit.ports import free_port
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from playwright.sync_api import Browser, Locator, Page

    from aerobee.blocking import AdminClient, ReceivedMessage

pytestmark = pytest.mark.service

WITHIN_S = 60.0
MiB = 1 << 20
TICK_MS = 30_000.0
"""A list is some seconds old at most; a busy machine makes it more."""


def button_of(page: Page, name: str) -> Locator:
    return page.get_by_role("button", name=name, exact=True)


def button(page: Page, name: str) -> None:
    button_of(page, name).click()


def link(page: Page, name: str) -> None:
    page.get_by_role("link", name=name, exact=True).first.click()


def change(page: Page, name: str) -> None:
    """Make a change with a button, and wait until the page says that it is done."""
    button(page, name)
    expect(page.get_by_role("link", name="Go on", exact=True).first).to_be_visible(timeout=TICK_MS)


def until_shown(page: Page, path: str, text: str) -> None:
    """Load a page until it shows a text: lists are made on a tick."""

    def shown() -> bool:
        page.goto(path)
        return page.get_by_text(text).count() > 0

    eventually(shown, within_s=WITHIN_S, what=f"{path} shows {text}")


def test_a_lost_message_is_found_by_its_key(
    page: Page, admin: AdminClient, producer: Producer
) -> None:
    admin.create_topic("Found", queues=2)
    for number in range(5):
        producer.send(Message("Found", f"body-{number}".encode(), keys=[f"order-{number}"]))
    link(page, "Find messages")
    page.get_by_label("Topic", exact=True).fill("Found")
    page.get_by_label("Key", exact=True).fill("order-3")
    button(page, "Find")
    expect(page.get_by_role("heading", name="1 message")).to_be_visible()
    page.locator("tbody a").click()
    expect(page.locator("pre.content")).to_have_text("body-3")
    expect(page.get_by_role("heading", name="Its life")).to_be_visible()


def test_the_overview_leads_to_why_a_group_stands(
    page: Page, admin: AdminClient, producer: Producer
) -> None:
    admin.create_topic("Unread", queues=1)
    admin.create_group(GroupConfig(name="standing"))
    admin.reset_offsets("standing", "Unread", 0)
    for _ in range(4):
        producer.send(Message("Unread", b"x"))
    until_shown(page, "/", "group standing has no member online")
    row = page.locator(".findings li").filter(has_text="group standing")
    row.get_by_role("link", name="See why").click()
    expect(page.get_by_role("heading", name="standing", exact=True)).to_be_visible()
    expect(page.locator(".findings .text").first).to_contain_text("member")
    expect(page.locator("tbody tr").first).to_contain_text("nobody")


def test_of_a_hundred_dead_letters_three_fail_and_each_has_its_result(
    page: Page, admin: AdminClient, broker: BrokerProcess, producer: Producer
) -> None:
    admin.create_topic("Back", queues=1)
    admin.create_topic("Gone", queues=1)
    admin.create_group(GroupConfig(name="givers"))
    letters = f"{DLQ_PREFIX}givers"

    def all_dead() -> bool:
        return letters in admin.topics() and admin.describe_topic(letters).messages == 100

    def refuse(messages: Sequence[ReceivedMessage]) -> None:
        raise Reject("no")

    givers = PushConsumer(
        "givers", broker.namesrv_address, credentials=ROOT, start_from=ConsumeFrom.FIRST
    )
    givers.subscribe("Back", handler=refuse)
    givers.subscribe("Gone", handler=refuse)
    with givers:
        for topic, count in (("Back", 97), ("Gone", 3)):
            for number in range(count):
                producer.send(Message(topic, b"{}", keys=[f"{topic}-{number}"], tag="refund"))
        eventually(all_dead, within_s=WITHIN_S, what="a hundred dead letters")
    admin.delete_topic("Gone")
    until_shown(page, "/dead", "givers")
    link(page, "givers")
    page.get_by_label("All letters of this page").check()
    button(page, "Send again …")
    expect(page.get_by_role("alert").or_(page.get_by_role("status")).first).to_contain_text(
        "100 dead letters are sent again"
    )
    button(page, "Send again")
    expect(page.locator(".notice").first).to_contain_text("97 done, 3 failed", timeout=120_000)
    failed = page.locator("tbody tr").filter(has_text="failed")
    expect(failed).to_have_count(3)
    expect(failed.first).to_contain_text("Gone")
    assert admin.describe_topic("Back").messages == 97 + 97


def test_a_reset_says_what_it_will_do_and_does_that(
    page: Page, admin: AdminClient, producer: Producer
) -> None:
    admin.create_topic("Again", queues=1)
    admin.create_group(GroupConfig(name="repeaters"))
    for _ in range(7):
        producer.send(Message("Again", b"x"))
    admin.reset_offsets("repeaters", "Again", 7)
    link(page, "Move offsets")
    page.get_by_label("Group", exact=True).fill("repeaters")
    page.get_by_label("Topic", exact=True).fill("Again")
    page.get_by_label("To", exact=True).select_option("first")
    button(page, "Show what would move")
    expect(page.locator(".notice")).to_contain_text("7 messages will be delivered again.")
    (queue,) = admin.consumer_lag("repeaters").queues
    assert queue.consumer_offset == 7
    button(page, "Move the offsets")
    expect(page.locator(".notice")).to_contain_text("7 messages are delivered again.")
    (queue,) = admin.consumer_lag("repeaters").queues
    assert queue.consumer_offset == 0


def test_a_setting_is_changed_and_the_audit_says_by_whom(page: Page, admin: AdminClient) -> None:
    link(page, "Settings")
    page.get_by_label("Part of a key or its meaning").fill("deleteWhen")
    button(page, "Show")
    page.locator("tbody tr").filter(has_text="deleteWhen").get_by_role("link").click()
    page.get_by_label("Value").fill("05")
    button(page, "Change …")
    expect(page.locator(".notice")).to_contain_text("deleteWhen is 04 and becomes 05")
    button(page, "Change it")
    expect(page.locator(".notice")).to_contain_text("deleteWhen is 05 now")
    assert admin.broker_config()["deleteWhen"] == "05"
    link(page, "Who changed what")
    row = page.locator("tbody tr").filter(has_text="UPDATE_BROKER_CONFIG").first
    expect(row).to_contain_text("root")
    expect(row).to_contain_text("deleteWhen")


def test_a_user_gets_rights_on_one_topic(page: Page, admin: AdminClient) -> None:
    link(page, "Users and rights")
    page.get_by_label("Name", exact=True).fill("orders-service")
    page.get_by_label("Secret").fill("a-long-secret")
    button(page, "Create")
    link(page, "Go on")
    page.locator("#right-user").select_option("orders-service")
    page.get_by_label("Name, or its begin with *").fill("Orders")
    page.get_by_label("Pub").check()
    button(page, "Grant")
    link(page, "Go on")
    expect(page.locator("tbody tr").filter(has_text="Topic:Orders")).to_contain_text("Pub")
    (entry,) = admin.acl("orders-service")
    assert (entry.resource, list(entry.actions)) == ("Topic:Orders", ["Pub"])


def test_a_topic_is_followed_live(page: Page, admin: AdminClient, producer: Producer) -> None:
    admin.create_topic("Live", queues=1)
    page.goto("/topic?name=Live")
    link(page, "Follow it live")
    expect(page.locator("[data-state]")).to_have_text("live")
    expect(page.get_by_text("No message yet")).to_be_visible()
    producer.send(Message("Live", b"fresh from the press"))
    expect(page.locator("tbody tr").first).to_contain_text("fresh from the press", timeout=TICK_MS)
    expect(page.get_by_text("No message yet")).to_be_hidden()


def test_the_noisy_client_is_found_and_its_connections_are_closed(
    page: Page, admin: AdminClient, producer: Producer
) -> None:
    admin.create_topic("Noise", queues=1)
    link(page, "Clients")

    def noisy_is_first() -> bool:
        for _ in range(200):
            producer.send(Message("Noise", b"x"))
        page.reload()
        row = page.locator("tbody tr").first
        return row.filter(has_text="web").count() > 0 and row.get_by_text("not known").count() == 0

    eventually(noisy_is_first, within_s=WITHIN_S, what="the client of web is the first")
    page.locator("tbody a").first.click()
    expect(page.get_by_role("columnheader", name="Requests a second")).to_be_visible()
    link(page, "Close its connections …")
    expect(page.locator(".notice")).to_contain_text("Most clients connect again by themselves")
    button(page, "Close them")
    expect(page.locator(".notice").first).to_contain_text("are closed")
    producer.send(Message("Noise", b"y"))


def send_until_refused(producer: Producer) -> None:
    for _ in range(500):  # of what cannot be compressed
        producer.send(Message("Fills", os.urandom(200_000)))


def test_a_full_disk_is_said_to_be_full_and_what_to_do(browser: Browser, tmp_path: Path) -> None:
    settings = WITH_USERS | {
        "consolePort": free_port(),
        "mappedFileSizeCommitLog": 2 * MiB,
        "cleanFileForciblyEnable": "false",
    }
    with (
        small_file_system(tmp_path / "small", size_bytes=48 * MiB) as disk,
        BrokerProcess(data=disk / "data", settings=settings, log_path=tmp_path / "log") as full,
        Producer(full.namesrv_address, group="fillers", credentials=ROOT) as fillers,
        opened(browser, full) as page,
    ):
        with pytest.raises(SendFailedError):
            send_until_refused(fillers)
        until_shown(page, "/", "sends are refused")
        finding = page.locator(".findings li").filter(has_text="sends are refused")
        expect(finding.locator(".text")).to_contain_text("disk")
        expect(finding.locator(".advice")).to_have_text("aerobee broker clean files")
        used = page.locator(".figures > div").filter(has_text="Disk used").locator("dd").first
        expect(used).to_have_text(re.compile(r"^(8[5-9]|9\d|100) ?%$"))
        finding.get_by_role("link", name="See the store").click()
        expect(page.get_by_text("refuses sends")).to_be_visible()
        expect(page.locator(".notice.error")).to_contain_text("disk")
        expect(page.locator("dl.pairs")).to_contain_text(re.compile(r"[\d.]+\s[KM]iB free"))


def test_a_topic_is_made_altered_and_deleted(page: Page, admin: AdminClient) -> None:
    link(page, "Topics")
    link(page, "New topic")
    # The filter of the list is a part of a name, and may be there for a moment longer.
    page.get_by_label("Name", exact=True).fill("Short-lived")
    page.get_by_label("Queues per broker").fill("3")
    button(page, "Make it on every master")
    link(page, "Go on")
    link(page, "Change")
    page.get_by_label("Queues per broker").fill("2")
    button(page, "Change …")
    button(page, "Change it")
    link(page, "Go on")
    assert len(admin.describe_topic("Short-lived").queues) >= 2
    link(page, "Delete this topic …")
    expect(page.locator(".notice")).to_contain_text("Nothing brings them back")
    change(page, "Delete it")
    assert "Short-lived" not in admin.topics()


def test_a_group_is_paused_and_let_go_on(page: Page, admin: AdminClient) -> None:
    admin.create_topic("Paused", queues=1)
    admin.create_group(GroupConfig(name="sleepers"))
    admin.reset_offsets("sleepers", "Paused", 0)
    page.goto("/group/pause?name=sleepers")
    change(page, "Pause")
    assert not any(config.enabled for config in admin.describe_group("sleepers").configs.values())
    until_shown(page, "/group?name=sleepers", "paused")
    link(page, "Let it go on …")
    change(page, "Let it go on")
    assert all(config.enabled for config in admin.describe_group("sleepers").configs.values())


@pytest.mark.parametrize("scripts", [True, False])
def test_a_time_is_typed_in_the_zone_in_which_it_is_shown(
    browser: Browser,
    broker: BrokerProcess,
    admin: AdminClient,
    producer: Producer,
    scripts: bool,
) -> None:
    topic = f"Zones-{scripts}"
    admin.create_topic(topic, queues=1)
    producer.send(Message(topic, b"body"))
    with opened(browser, broker, scripts=scripts, zone="Asia/Tokyo") as page:
        page.goto(f"/messages?topic={topic}")
        shown = page.locator("tbody time").first.inner_text().removesuffix(" UTC")
        page.get_by_label("Stored since").fill(shown)
        button(page, "Find")
        expect(page).to_have_url(re.compile("since=20"))
        expect(page.get_by_role("heading", name="1 message")).to_be_visible()
        page.goto(f"/messages?topic={topic}")
        page.get_by_label("Stored before").fill(shown[:10])
        button(page, "Find")
        expect(page.get_by_role("heading", name="0 messages")).to_be_visible()
        expect(page).to_have_url(re.compile("until=20"))
        zoned = re.compile(r"T00:00\+09:00$" if scripts else r"^[0-9-]{10}$")
        expect(page.get_by_label("Stored before")).to_have_value(zoned)
