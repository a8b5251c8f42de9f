"""The checks of a request of the console, before anything is done for it. Pure."""

from __future__ import annotations

import binascii
from base64 import b64decode
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, quote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

COOKIE: Final = "aerobee_session_{port}"
"""The name of a session's cookie: browsers send a host's cookies to each of its ports, and with one
name for all a login at one console would end that at another.
"""
BODY_MAX: Final = 64 * 1024
"""Bytes of a request's body."""
LOGIN_MAX: Final = 4 * 1024
"""Bytes of a login, which anybody may send."""
BODIES_MAX: Final = 16
"""Bodies of viewers that come in at once; the request of one more is refused."""
BODY_S: Final = 20.0
"""How long a body may take to come."""
FORM_FIELDS_MAX: Final = 256
"""Of a form, and of a query; the longest form has a field for each dead letter of a page."""
NAME_MAX: Final = 128
SECRET_MAX: Final = 256
CREDENTIALS_MAX: Final = 1_024
"""Characters of an Authorization header."""
NEXT_MAX: Final = 1_024
"""Characters of the page behind a login; of a longer one the query is left out."""
SAFE: Final = frozenset({"GET", "HEAD"})
SAME_SITE: Final = frozenset({"same-origin", "none"})
HEADERS: Final = {
    "content-security-policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none';"
        " object-src 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
"""In every answer."""
NOT_KEPT: Final = {"cache-control": "no-store"}
"""In answers that no cache may have: all but files."""


def fields_of(body: bytes) -> list[tuple[str, str]]:
    """The fields of a form in order. Raises: ValueError that says what is wrong with it."""
    try:
        text = body.decode()
        if text.count("&") >= FORM_FIELDS_MAX:
            raise ValueError(f"a form has at most {FORM_FIELDS_MAX} fields: choose fewer")
        return parse_qsl(text, keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:
        raise ValueError("the form is no text in UTF-8") from None


def host_name(host: str) -> str:
    """The name in a Host header, without its port; empty where it is none."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".").lower()
    except ValueError:
        return ""


def is_ours(host: str, names: Collection[str]) -> bool:
    """Whether a Host header names us. A name that is not known may be anybody's, who has it point
    here: then a page from there would read our answers. An address cannot be anybody's.
    """
    name = host_name(host)
    if not name:
        return False
    try:
        ip_address(name)
    except ValueError:
        return name == "localhost" or name in names
    return True


def is_loopback(address: str) -> bool:
    """Whether a peer is on this host."""
    try:
        peer = ip_address(address)
    except ValueError:
        return False
    mapped = getattr(peer, "ipv4_mapped", None)
    return (mapped or peer).is_loopback


def is_same_site(host: str, origin: str, fetch_site: str) -> bool:
    """Whether a change comes from a page of ours, or from no page, by what browsers send."""
    if fetch_site and fetch_site not in SAME_SITE:
        return False
    if not origin:
        return True
    try:
        return urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False


def token_of(scope: Mapping[str, Any]) -> str:
    """The session token in the Cookie headers of a request; empty without one."""
    wanted = _cookie_name(scope)
    cookies = ";".join(
        text.decode("latin-1") for name, text in scope["headers"] if name == b"cookie"
    )
    # Not by the strict reader of the standard library: it gives all up at a cookie that it does not
    # like, and browsers send those of every program at any port of this host.
    pairs = (part.strip().partition("=") for part in cookies.split(";"))
    return next((value for name, _, value in pairs if name == wanted), "")


def basic_of(authorization: str) -> tuple[str, str] | None:
    """Name and secret of an Authorization header; None: it has none that can be read."""
    scheme, _, coded = authorization.partition(" ")
    if scheme.lower() != "basic" or len(authorization) > CREDENTIALS_MAX:
        return None
    try:
        name, colon, secret = b64decode(coded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    if not colon or not name or len(name) > NAME_MAX or len(secret) > SECRET_MAX:
        return None
    return name, secret


def _cookie_name(scope: Mapping[str, Any]) -> str:
    return COOKIE.format(port=scope["server"][1])


def cookie(scope: Mapping[str, Any], token: str, *, secure: bool) -> str:
    """The Set-Cookie header of a session; an empty token ends it."""
    text = f"{_cookie_name(scope)}={token}; Path=/; HttpOnly; SameSite=Strict"
    text += "; Secure" if secure else ""
    return text if token else f"{text}; Max-Age=0"


def next_page(text: str) -> str:
    """Where to go after the login: a path of ours, and nowhere else."""
    plain = text.startswith("/") and not text.startswith(("//", "/\\")) and len(text) <= NEXT_MAX
    return text if plain and text.isascii() and text.isprintable() else "/"


def page_behind(path: str, query: bytes) -> str:
    """The page that the login leads to, with its query: without it, one of a group is none."""
    coded = quote(path)
    page = f"{coded}?{query.decode('latin-1')}" if query else coded
    return next_page(page if len(page) <= NEXT_MAX else coded)
