"""Addresses: whatever is put into one stays one value."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, urlsplit

from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.config.settings.console import ConsoleConfig
from aerobee.broker.console.console import Console
from aerobee.broker.console.pages.links import link
from aerobee.broker.console.pages.rendering import HERE
from aerobee.broker.console.pages.routes import routes
from aerobee.broker.console.web import Doors
from tests.broker.peers import HandClock

LED_TO = re.compile(r"""(?:link\(|href=|action=|path=|back=)["']{1,2}(/[a-z/]*)""")


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_a_value_comes_out_as_it_went_in(name: str) -> None:
    parts = urlsplit(link("/group", name=name))
    assert parts.path == "/group"
    assert parse_qs(parts.query, keep_blank_values=True) == {"name": [name]}


def test_what_is_not_given_is_left_out() -> None:
    assert link("/groups", filter="", sort=None) == "/groups"
    assert link("/groups", offset=0) == "/groups?offset=0"


def test_every_link_of_a_page_leads_to_a_page() -> None:
    clock, config = HandClock(), ConsoleConfig()
    console = Console(None, clock=clock, config=config, authority=lambda: None, connect=None)
    paths = {route.path for route in [*routes(console), *Doors(console, secure=False).routes]}
    files = [*HERE.glob("*.py"), *HERE.glob("templates/*.html")]
    led_to = {path for file in files for path in LED_TO.findall(file.read_text())}
    assert {"/users", "/group", "/letters/resend", "/logout"} <= led_to
    assert not led_to - paths
