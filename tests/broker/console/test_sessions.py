"""Sessions end by themselves, and guesses are limited by address and by name."""

from __future__ import annotations

from itertools import count

from aerobee.broker.access.authority import Account
from aerobee.broker.console.sessions import (
    GUESSES,
    GUESSES_OF_NAME,
    IDLE_MS,
    LONGEST_MS,
    SESSIONS_MAX,
    SESSIONS_OF_NAME_MAX,
    WRONG_MAX,
    Logins,
    Sessions,
)

ANN = Account("ann", b"anns-secret")
ACCOUNTS = {"ann": ANN}


def make_sessions() -> Sessions:
    numbers = count()
    return Sessions(lambda: f"token-{next(numbers)}")


def test_a_session_ends_when_nobody_uses_it() -> None:
    sessions = make_sessions()
    token, session = sessions.begin(ANN, 0)
    assert token != session.csrf
    assert sessions.find(token, ACCOUNTS.get, IDLE_MS) is session
    assert sessions.find(token, ACCOUNTS.get, 2 * IDLE_MS) is session
    assert sessions.find(token, ACCOUNTS.get, 3 * IDLE_MS + 1) is None
    assert sessions.find(token, ACCOUNTS.get, 3 * IDLE_MS + 1) is None


def test_a_session_in_use_ends_after_its_longest_time() -> None:
    sessions = make_sessions()
    token, _ = sessions.begin(ANN, 0)
    for now_ms in range(0, LONGEST_MS, IDLE_MS):
        assert sessions.find(token, ACCOUNTS.get, now_ms) is not None
    assert sessions.find(token, ACCOUNTS.get, LONGEST_MS + 1) is None


def test_a_session_ends_with_its_account_and_with_its_secret() -> None:
    sessions = make_sessions()
    token, _ = sessions.begin(ANN, 0)
    assert sessions.find(token, lambda _: None, 1) is None
    token, _ = sessions.begin(ANN, 0)
    assert sessions.find(token, {"ann": Account("ann", b"another")}.get, 1) is None
    token, session = sessions.begin(ANN, 0)
    raised = Account("ann", b"anns-secret", is_super=True)
    assert sessions.find(token, {"ann": raised}.get, 1) is session
    assert session.account is raised


def test_a_page_that_is_open_asks_for_its_session_and_does_not_use_it() -> None:
    sessions = make_sessions()
    token, _ = sessions.begin(ANN, 0)
    bob = Account("bob", b"anns-secret")
    both = {"ann": ANN, "bob": bob}.get
    assert sessions.has(token, ANN, both, 1)
    assert not sessions.has(token, bob, both, 1)
    assert not sessions.has("other", ANN, both, 1)
    assert sessions.find(token, both, IDLE_MS + 1) is None
    assert not sessions.has(token, ANN, both, 1)
    token, _ = sessions.begin(ANN, 0)
    sessions.end(token)
    assert not sessions.has(token, ANN, both, 1)


def test_a_page_that_is_open_ends_with_its_session() -> None:
    sessions = make_sessions()
    token, session = sessions.begin(ANN, 0)
    assert sessions.has(token, ANN, ACCOUNTS.get, IDLE_MS)
    assert not sessions.has(token, ANN, ACCOUNTS.get, IDLE_MS + 1), "nobody has used it"
    session.used_ms = LONGEST_MS
    assert sessions.has(token, ANN, ACCOUNTS.get, LONGEST_MS)
    assert not sessions.has(token, ANN, ACCOUNTS.get, LONGEST_MS + 1), "it is too old"
    session.used_ms = 0
    assert not sessions.has(token, ANN, lambda _: None, 1), "the account is gone"
    for other in (Account("ann", b"another"), Account("ann", b"anns-secret", is_super=True)):
        assert not sessions.has(token, ANN, {"ann": other}.get, 1)


def test_sessions_are_bounded_for_a_name_and_for_all() -> None:
    sessions = make_sessions()
    tokens = [sessions.begin(ANN, 0)[0] for _ in range(SESSIONS_OF_NAME_MAX + 1)]
    assert len(sessions) == SESSIONS_OF_NAME_MAX
    assert sessions.find(tokens[0], ACCOUNTS.get, 1) is None
    for number in range(SESSIONS_MAX):
        sessions.begin(Account(f"user-{number}", b"x"), 1)
    assert len(sessions) == SESSIONS_MAX


def test_guesses_from_one_address_are_limited() -> None:
    logins = Logins(b"key")
    for number in range(GUESSES):
        assert not logins.too_many("ann", "10.0.0.1", 0)
        assert logins.check("ann", f"wrong-{number}", "10.0.0.1", ACCOUNTS.get, 0) is None
    assert logins.too_many("ann", "10.0.0.1", 0)
    assert not logins.too_many("ann", "10.0.0.2", 0)
    assert not logins.too_many("ann", "10.0.0.1", 60_000)


def test_a_script_with_an_old_secret_keeps_nobody_else_of_its_address_out() -> None:
    """As all behind one proxy, or NAT, have one."""
    logins = Logins(b"key")
    for _ in range(100):
        assert not logins.too_many("script", "10.0.0.1", 0)
        assert logins.check("script", "old", "10.0.0.1", ACCOUNTS.get, 0) is None
    assert not logins.too_many("ann", "10.0.0.1", 0)
    again = {"script": Account("script", b"old")}
    assert logins.check("script", "old", "10.0.0.1", again.get, 0) is again["script"]


def test_whoever_guesses_too_often_is_not_told_which_secrets_others_got_wrong() -> None:
    """They are old ones, or the right one but for a letter."""
    logins = Logins(b"key")
    assert logins.check("ann", "anns-secrte", "10.0.0.1", ACCOUNTS.get, 0) is None
    for number in range(GUESSES):
        assert logins.check("ann", f"{number}", "10.0.0.2", ACCOUNTS.get, 0) is None
    assert logins.too_many("ann", "10.0.0.2", 0)


def test_wrong_secrets_are_remembered_up_to_a_number() -> None:
    logins = Logins(b"key")
    for number in range(WRONG_MAX + GUESSES):
        peer = f"10.0.{number // 256}.{number % 256}"
        assert logins.check("ann", f"{number}", peer, ACCOUNTS.get, 0) is None
    later = 120_000
    for number in range(GUESSES, 2 * GUESSES):
        assert logins.check("ann", f"{number}", "10.1.1.1", ACCOUNTS.get, later) is None
    assert not logins.too_many("ann", "10.1.1.1", later)
    for number in range(GUESSES):
        assert logins.check("ann", f"{number}", "10.1.1.1", ACCOUNTS.get, later) is None
    assert logins.too_many("ann", "10.1.1.1", later)


def test_the_addresses_of_one_network_are_one() -> None:
    logins = Logins(b"key")
    for number in range(GUESSES):
        peer = f"2001:db8::{number:x}"
        assert logins.check("ann", f"{number}", peer, ACCOUNTS.get, 0) is None
    assert logins.too_many("ann", "2001:db8::ffff", 0)
    assert not logins.too_many("ann", "2001:db8:0:1::1", 0)


def test_guesses_of_one_name_from_many_addresses_are_limited() -> None:
    logins = Logins(b"key")
    for number in range(GUESSES_OF_NAME):
        assert logins.check("ann", f"{number}", f"10.0.0.{number}", ACCOUNTS.get, 0) is None
    assert logins.too_many("ann", "10.1.1.1", 0)
    assert not logins.too_many("bob", "10.1.1.1", 0)


def test_right_secrets_cost_nothing() -> None:
    logins = Logins(b"key")
    for _ in range(100):
        assert logins.check("ann", "anns-secret", "10.0.0.1", ACCOUNTS.get, 0) is ANN
    assert not logins.too_many("ann", "10.0.0.1", 0)
