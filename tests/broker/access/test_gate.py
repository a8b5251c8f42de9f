"""The gate: how long a refusal takes, and what becomes of an address whose signatures are wrong."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Generator
from functools import partial
from statistics import fmean, quantiles, variance
from time import perf_counter_ns, thread_time
from typing import TYPE_CHECKING, Final

import pytest
from structlog.testing import capture_logs

from aerobee.broker.access.gate import GUESSES, Gate
from aerobee.broker.access.permissions import PERMISSIONS
from aerobee.broker.access.plain_authority import PlainAuthority
from aerobee.broker.access.white_addresses import WhiteAddresses
from aerobee.broker.config.settings.auth import AuthConfig
from aerobee.broker.counters.server_stats import AccessStats
from aerobee.broker.namesrv.name_server_link import signed_by
from aerobee.broker.users.acls import Acls
from aerobee.broker.users.directory import user_authority
from aerobee.broker.users.plain_acl import Perm, PlainAccount, plain_table
from aerobee.broker.users.users import Users
from aerobee.remoting.rate_limit import BUCKETS_MAX
from aerobee.remoting.server.states import Event
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.bodies.auth import UserInfo
from aerobee.remoting.wire.codes import RequestCode
from aerobee.remoting.wire.command import Command
from aerobee.remoting.wire.request_signature import with_signature
from tests.kit.raw_client import request_frame
from tests.remoting.server.stage import LIMITS, MAX_OFFSET, Interest, Stage, TrickleSocket, bodies

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aerobee.broker.access.authority import Authority
    from aerobee.remoting.server.connection import Connection

SECRET: Final = b"the-secret-of-the-one-account..."
KNOWN: Final = ("enabled", "another")
T_MAX: Final = 4.5
ROUNDS: Final = 1_000
ATTEMPTS: Final = 3


def users() -> Authority:
    """Two enabled users and one that is disabled."""
    table = Users(lambda: 10)
    for name in KNOWN:
        table.create(UserInfo(username=name, password=SECRET.decode()))
    table.create(UserInfo(username="stopped", password=SECRET.decode(), user_status="disable"))
    return user_authority(table, Acls(lambda: 10), AuthConfig(authentication_enabled=True))


def accounts(white: str = "") -> PlainAuthority:
    authority = PlainAuthority()
    known = [PlainAccount(access_key=name, secret=SECRET, default_topic=Perm.SUB) for name in KNOWN]
    authority.replace(plain_table(known, WhiteAddresses([white])))
    return authority


def asked(name: str | None, secret: bytes, body: bytes = b"") -> Command:
    fields: Mapping[str, str] = {"topic": "orders", "queueId": "0"}
    if name is not None:
        fields = with_signature(name, secret, fields, body)
    command = Command(code=MAX_OFFSET, body=body, language="JAVA", version=479)
    command.ext = dict(fields)
    return command


def test_s6_a_long_body_is_hashed_in_turns_and_without_a_signature_not_at_all() -> None:
    body = bytes(16 << 20)
    signed = asked("enabled", SECRET, body)
    wrong = asked("enabled", b"another", body)
    unsigned = asked(None, b"", body)
    gate, (connection, _) = Gate(users(), "C", AccessStats()), Stage().connect()
    for command, code in ((signed, None), (wrong, 16)):
        steps = gate.check(command, connection)
        assert isinstance(steps, Generator)
        ended: list[Answer | None] = []
        times = [cpu_ms(partial(take, steps, ended)) for _ in range(17)]
        assert [one and one.code for one in ended] == [code]
        assert statistics.median(times) < 5
    assert min(cpu_ms(lambda: gate.check(unsigned, connection)) for _ in range(9)) < 1


def cpu_ms(call: Callable[[], object]) -> float:
    began = thread_time()
    call()
    return (thread_time() - began) * 1_000


def take(steps: Generator[None, None, Answer | None], ended: list[Answer | None]) -> None:
    """One step; the end of them into the list."""
    try:
        next(steps)
    except StopIteration as end:
        ended.append(end.value)


def welch_t(one: Sequence[int], other: Sequence[int]) -> float:
    error = math.sqrt(variance(one) / len(one) + variance(other) / len(other))
    return abs(fmean(one) - fmean(other)) / error


def worst_t(authority: Authority, kinds: Sequence[Command]) -> float:
    """The largest t between the times of any two kinds, which are asked by turns; the slowest
    fifth of all, which others on the machine have slowed down, is left out.
    """
    gate, (connection, _) = Gate(authority, "C", AccessStats()), Stage().connect()
    order = random.Random(1)
    times: list[list[int]] = [[] for _ in kinds]
    numbers = list(range(len(kinds)))
    with capture_logs() as lines:
        for _ in range(ROUNDS):
            order.shuffle(numbers)
            for number in numbers:
                began = perf_counter_ns()
                refused = gate.check(kinds[number], connection)
                times[number].append(perf_counter_ns() - began)
                released(connection)
                assert refused is not None
            lines.clear()
    limit = quantiles([time for one in times for time in one], n=5)[-1]
    kept = [[time for time in one if time < limit] for one in times]
    return max(welch_t(a, b) for n, a in enumerate(kept) for b in kept[:n])


@pytest.mark.parametrize("authority", [users(), accounts()], ids=["users", "plain_acl"])
def test_s5_how_long_a_refusal_takes_tells_nothing_of_the_account(authority: Authority) -> None:
    """S5: an unknown user, a wrong secret, a disabled user. Welch's t, and a control that it sees
    what a longer body costs.
    """
    kinds = [asked(name, b"wrong-one") for name in ("unknown", "stopped", *KNOWN)]
    assert any(worst_t(authority, kinds) < T_MAX for _ in range(ATTEMPTS))
    assert worst_t(authority, [kinds[0], asked("unknown", b"wrong-one", bytes(16_384))]) > T_MAX


def released(connection: Connection) -> bool:
    """End the request that the gate has just postponed, as the sweep would; whether it has."""
    if not connection.postponed:
        return False
    connection.on(Event.RESUMED)
    connection.on(Event.ENDED)
    return True


class Door:
    """Peers in front of a gate; time stands still unless a test moves it."""

    def __init__(self, authority: Authority, limits_bytes: int = 10_000) -> None:
        self.gate = Gate(authority, "C", AccessStats())
        limits = LIMITS._replace(
            inbound_bytes=10 * limits_bytes,
            unauthenticated_bytes=limits_bytes,
            high_water_bytes=1 << 20,
        )
        self.desk = Stage(gate=self.gate.check, limits=limits)

    def sends(self, sock: TrickleSocket, data: bytes) -> int:
        """Bytes of a peer, in all rounds that they cause; how many answers it has then."""
        sock.incoming += data
        while self.desk.round(sock):
            pass
        return len(bodies(sock))

    def sweep(self, *socks: TrickleSocket) -> None:
        list(self.desk.reactor.resume_of_sweep())
        for sock in socks:
            self.sends(sock, b"")


def frame(name: str | None, secret: bytes = SECRET, body: bytes = b"", *, flag: int = 0) -> bytes:
    return request_frame(MAX_OFFSET, 1, asked(name, secret, body).ext_fields(), body, flag=flag)


GOOD: Final = frame("enabled")
WRONG: Final = frame("enabled", b"wrong-one")


def test_s6_beyond_a_few_wrong_signatures_there_is_one_guess_a_second() -> None:
    door = Door(accounts())
    _, before = door.desk.connect()
    assert door.sends(before, GOOD) == 1
    _, sock = door.desk.connect()
    assert door.sends(sock, WRONG * 20) == GUESSES
    assert door.desk.interest(sock) == Interest(read=False, write=False)
    assert door.sends(before, GOOD) == 2, "who was known before is served at once"
    _, new = door.desk.connect()
    assert door.sends(new, GOOD + WRONG + GOOD) == 0, "a right guess shows as late as a wrong one"
    assert door.sends(before, WRONG + GOOD) == 2, "a wrong one over a good connection as well"
    door.sweep(sock, new, before)
    assert [len(bodies(one)) for one in (sock, new, before)] == [GUESSES + 1, 1, 4]
    door.sweep(sock, new)
    assert [len(bodies(one)) for one in (sock, new)] == [GUESSES + 2, 3]
    assert door.sends(new, GOOD * 100) == 103, "and later at once"


def test_s6_what_nobody_signed_and_what_comes_later_is_no_guess() -> None:
    door = Door(users())
    _, sock = door.desk.connect()
    assert door.sends(sock, frame(None) * 20) == 20
    assert door.sends(sock, WRONG * (GUESSES + 1)) == 20 + GUESSES
    connection, other = door.desk.connect()
    assert door.sends(other, GOOD) == 0
    connection.close("does not wait")
    door.sweep(sock)
    assert len(bodies(sock)) == 21 + GUESSES


def test_s6_addresses_with_wrong_signatures_are_few_and_forgotten_in_time() -> None:
    gate = Gate(users(), "C", AccessStats())
    connection, _ = Stage().connect()
    wrong = asked("enabled", b"wrong-one")

    def held(now_s: float, host: int = 0, times: int = 1) -> int:
        """How many of so many guesses are held back."""
        connection.host = host.to_bytes(4) + bytes(4)
        connection.context.now = now_s
        count = 0
        for _ in range(times):
            gate.check(wrong, connection)
            count += released(connection)
        return count

    with capture_logs():
        assert held(0.0, times=GUESSES + 2) == 2
        assert held(13.0, times=2) == 1, "one more in twelve seconds"
        for host in range(1, BUCKETS_MAX + 1):
            held(13.0, host)
        assert held(13.0) == 0, "the address that guessed longest ago begins anew"


def test_s6_who_has_not_signed_shares_a_budget_that_is_none_of_the_others() -> None:
    door = Door(accounts())
    shared = door.desk.reactor.shared
    assert shared.unauthenticated is not None
    known, known_sock = door.desk.connect()
    half = frame("enabled", body=bytes(8_000))
    assert door.sends(known_sock, GOOD + half[:7_000]) == 1
    strangers = [door.desk.connect() for _ in range(2)]
    for _, sock in strangers:
        door.sends(sock, half[:6_000])
    assert (shared.inbound.total, shared.unauthenticated.total) == (7_000, 12_000)
    assert [one.starved for one, _ in (*strangers, (known, None))] == [False, True, False]
    assert shared.scarce
    (_, first), (second, late) = strangers
    assert door.sends(first, half[6_000:] + half[:6_000]) == 1, "it has signed"
    assert (shared.inbound.total, shared.unauthenticated.total) == (13_000, 6_000)
    assert not second.starved
    assert door.sends(late, half[6_000:]) == 1
    assert door.sends(known_sock, half[7_000:]) == 2
    assert door.sends(first, half[6_000:]) == 2
    assert (shared.inbound.total, shared.unauthenticated.total) == (0, 0)


def test_s6_a_white_address_and_one_of_an_account_share_the_budget_of_all() -> None:
    door = Door(accounts("127.0.0.*"))
    connection, sock = door.desk.connect()
    door.sends(sock, frame(None))
    assert connection.budget is door.desk.reactor.shared.inbound


def test_an_open_code_needs_no_signature_and_is_no_proof() -> None:
    table = Users(lambda: 10)
    config = AuthConfig(
        authentication_enabled=True, authentication_whitelist=str(int(RequestCode.GET_MAX_OFFSET))
    )
    door = Door(user_authority(table, Acls(lambda: 10), config))
    connection, sock = door.desk.connect()
    assert door.sends(sock, frame(None)) == 1
    assert connection.budget is door.desk.reactor.shared.unauthenticated


def test_what_a_broker_signs_for_a_name_server_gives_no_right_here() -> None:
    """S5: the account is a super user here, and the registration has all texts of a deletion."""
    table = Users(lambda: 10)
    table.create(UserInfo(username="inner", password=SECRET.decode(), user_type="Super"))
    gate = Gate(
        user_authority(table, Acls(lambda: 10), AuthConfig(authentication_enabled=True)),
        "C",
        AccessStats(),
    )
    connection, _ = Stage().connect()
    dress = signed_by(("inner", SECRET.decode()))
    assert dress is not None
    sent = {"brokerName": "orders", "clusterName": "C"}
    registered = dress(int(RequestCode.REGISTER_BROKER), sent, b"{}")
    again = Command(code=RequestCode.REGISTER_BROKER, body=b"{}", language="JAVA", version=479)
    again.ext = registered
    with capture_logs():
        assert gate.check(again, connection) is None
        for code in PERMISSIONS.keys() - {int(RequestCode.REGISTER_BROKER)}:
            cut = {name: registered[name] for name in ("!", "AccessKey", "Signature")}
            command = Command(code=code, body=b"C{}", language="JAVA", version=479)
            command.ext = {**cut, "topic": "orders"}
            refused = gate.check(command, connection)
            released(connection)
            assert isinstance(refused, Answer), code
            assert not gate.lets_pass(command, connection)
