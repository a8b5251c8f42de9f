"""Hosts, origins, cookies and credentials of requests, hostile ones among them."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from aerobee.broker.console.requests import (
    NEXT_MAX,
    basic_of,
    cookie,
    host_name,
    is_loopback,
    is_ours,
    is_same_site,
    next_page,
    page_behind,
    token_of,
)


@pytest.mark.parametrize(
    ("host", "ours"),
    [
        ("localhost", True),
        ("LOCALHOST:8088", True),
        ("127.0.0.1:8088", True),
        ("[::1]:8088", True),
        ("10.1.2.3", True),
        ("console.example:1", True),
        ("console.example.", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("", False),
        ("[::1", False),
        ("127.0.0.1@evil.example", False),
    ],
)
def test_only_hosts_that_cannot_be_anybodys_are_ours(host: str, ours: bool) -> None:
    assert is_ours(host, {"console.example"}) is ours


def test_the_port_is_no_part_of_the_name() -> None:
    assert host_name("Console.Example:8088") == "console.example"


@pytest.mark.parametrize(
    ("address", "here"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("", False),
        ("localhost", False),
    ],
)
def test_loopback_is_this_host(address: str, here: bool) -> None:
    assert is_loopback(address) is here


@pytest.mark.parametrize(
    ("origin", "fetch_site", "same"),
    [
        ("", "", True),
        ("http://localhost:8088", "", True),
        ("http://localhost:8088", "same-origin", True),
        ("", "none", True),
        ("null", "", False),
        ("http://localhost:9999", "", False),
        ("http://evil.example", "", False),
        ("", "cross-site", False),
        ("", "same-site", False),
        ("http://[", "", False),
    ],
)
def test_a_change_comes_from_our_pages_or_from_no_page(
    origin: str, fetch_site: str, same: bool
) -> None:
    assert is_same_site("localhost:8088", origin, fetch_site) is same


def test_a_cookie_is_read_as_it_was_set() -> None:
    ours = "aerobee_session_8088"
    text = cookie(asked(), "abc", secure=True)
    assert text == f"{ours}=abc; Path=/; HttpOnly; SameSite=Strict; Secure"
    assert token_of(asked(f"other=1; {ours}=abc")) == "abc"
    assert token_of(asked("other=1", f"{ours}=abc")) == "abc"
    assert token_of(asked()) == ""
    assert token_of(asked("a=\x01; =;;;")) == ""
    assert token_of(asked(f"{ours}=abc", port=8089)) == "", "another console of this host"
    # Those of another program at another port of this host: the strict reader gives up there.
    assert token_of(asked(f'x={{"a": 1}}; y[1]=2; {ours}=abc; z')) == "abc"
    assert "Max-Age=0" in cookie(asked(), "", secure=False)


def asked(*cookies: str, port: int = 8088) -> dict[str, Any]:
    headers = [(b"cookie", text.encode("latin-1")) for text in cookies]
    return {"headers": headers, "server": ("127.0.0.1", port)}


def coded(text: bytes) -> str:
    return f"Basic {b64encode(text).decode()}"


@pytest.mark.parametrize(
    ("authorization", "account"),
    [
        (coded(b"ann:se:cret"), ("ann", "se:cret")),
        (coded(b"ann:"), ("ann", "")),
        (coded(b":x"), None),
        (coded(b"ann"), None),
        (coded(b"\xff:x"), None),
        (coded(b"a" * 200 + b":x"), None),
        (coded(b"a:" + b"x" * 300), None),
        (f"Basic {'A' * 2_000}", None),
        ("Basic ***", None),
        ("Bearer abc", None),
        ("", None),
    ],
)
def test_credentials_are_read_or_are_none(
    authorization: str, account: tuple[str, str] | None
) -> None:
    assert basic_of(authorization) == account


@pytest.mark.parametrize(
    ("text", "page"),
    [
        ("/topics?x=1", "/topics?x=1"),
        ("//evil", "/"),
        ("/\\evil", "/"),
        ("http://evil", "/"),
        ("/a\r\nb", "/"),
        ("/\u202e", "/"),
        ("", "/"),
        ("/" + "a" * NEXT_MAX, "/"),
    ],
)
def test_the_next_page_is_one_of_ours(text: str, page: str) -> None:
    assert next_page(text) == page


@pytest.mark.parametrize(
    ("path", "query", "page"),
    [
        ("/group", b"name=a%26b", "/group?name=a%26b"),
        ("/groups", b"", "/groups"),
        ("/tö", b"", "/t%C3%B6"),
        ("//evil", b"x=1", "/"),
        ("/group", b"name=" + b"x" * NEXT_MAX, "/group"),
        ("/group", b"\xff", "/"),
    ],
)
def test_the_page_behind_a_login_keeps_its_query(path: str, query: bytes, page: str) -> None:
    assert page_behind(path, query) == page
