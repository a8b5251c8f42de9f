"""The four calls against the real etcd: one node, with and without TLS and accounts."""

import http.server
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
import trio

from aerobee.broker.config.settings.failover import endpoint
from aerobee.broker.failover.decider import ChangeRefused, DeciderMisused, DeciderSilent, Sight
from aerobee.broker.failover.deciders.etcd import Etcd
from aerobee.broker.failover.deciders.etcd_calls import Keys
from aerobee.broker.failover.record import (
    Record,
    RecordIllegal,
    elected,
    first_record,
    given_back,
    with_set,
)
from tests.kit.etcd import EtcdNode, nodes
from tests.kit.ports import HOST, free_port
from tests.kit.tls import certificate

LEASE_S = 10
SHORT_S = 3
"""etcd takes no lease that is much shorter: its least is one and a half of its elections."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdNode]:
    with EtcdNode(data=tmp_path_factory.mktemp("etcd") / "data") as started:
        yield started


@pytest.fixture
def keys(request: pytest.FixtureRequest) -> Keys:
    return Keys("/aerobee", "a/cluster", request.node.name)


def etcd(
    node: EtcdNode, keys: Keys, lease_s: int = LEASE_S, user: str = "", password: str = ""
) -> Etcd:
    return Etcd([endpoint(node.url)], keys, lease_s, user=user, password=password)


async def led(decider: Etcd, member: int = 1) -> Sight:
    """What there is once a member is the first master."""
    sight = await decider.look(None, 0)
    return await decider.take(sight, lambda lease: first_record(member, lease))


def lease_of(sight: Sight) -> str:
    assert sight.record is not None
    return sight.record.lease


@pytest.mark.trio
async def test_a_group_without_a_record_has_none(node: EtcdNode, keys: Keys) -> None:
    assert (await etcd(node, keys).look(None, 0))[:3] == (None, 0, False)


@pytest.mark.trio
async def test_one_of_two_that_take_at_once_is_the_master(node: EtcdNode, keys: Keys) -> None:
    one, other = etcd(node, keys), etcd(node, keys)
    sight = await one.look(None, 0)
    taken = await one.take(sight, lambda lease: first_record(1, lease))
    assert taken == await other.look(None, 0)
    assert taken.held
    with pytest.raises(ChangeRefused):
        await other.take(sight, lambda lease: first_record(2, lease))
    record = taken.record
    assert record is not None
    with pytest.raises(ChangeRefused):
        await other.take(taken, lambda lease: elected(record, 1, lease, 1))


@pytest.mark.trio
async def test_the_set_is_changed_by_compare_and_swap(node: EtcdNode, keys: Keys) -> None:
    decider = etcd(node, keys)
    first = await led(decider)
    assert first.record is not None
    wider = with_set(first.record, [1, 2])
    second = await decider.change(first, wider, lease_of(first))
    assert second == await decider.look(None, 0)
    with pytest.raises(ChangeRefused):
        await decider.change(first, with_set(first.record, [1, 3]), lease_of(first))
    with pytest.raises(ChangeRefused):
        await decider.change(second, with_set(wider, [1, 3]), "12345")


@pytest.mark.trio
async def test_a_change_that_is_sent_again_has_happened(node: EtcdNode, keys: Keys) -> None:
    decider = etcd(node, keys)
    first = await led(decider)
    assert first.record is not None
    wider = with_set(first.record, [1, 2])
    once = await decider.change(first, wider, lease_of(first))
    again = await decider.change(first, wider, lease_of(first))
    assert again[:3] == once[:3]


@pytest.mark.trio
async def test_a_lease_that_is_given_back_can_be_taken_at_once(node: EtcdNode, keys: Keys) -> None:
    decider = etcd(node, keys)
    first = await led(decider)
    assert first.record is not None
    free = await decider.change(first, given_back(first.record), lease_of(first))
    assert not free.held
    assert not (await decider.look(None, 0)).held
    record = free.record
    assert record is not None
    second = await decider.take(free, lambda lease: elected(record, 1, lease, 1))
    assert second.record is not None
    assert second.record.epoch == 2


@pytest.mark.trio
async def test_a_lease_lasts_while_it_is_renewed_and_is_free_after(
    node: EtcdNode, keys: Keys
) -> None:
    decider = etcd(node, keys, SHORT_S)
    # A machine that others keep busy may take longer for an answer than such a lease allows.
    decider.answer_s = LEASE_S
    sight = await led(decider)
    began = renewed = trio.current_time()
    while renewed < began + 1.5 * SHORT_S:
        renewed = trio.current_time()
        assert await decider.renew(lease_of(sight))
        await trio.sleep(SHORT_S / 4)
    assert (await decider.look(None, 0)).held
    with trio.fail_after(60):
        while (seen := await decider.look(sight, 5)).held:
            sight = seen
    assert trio.current_time() - renewed >= SHORT_S * 0.9
    assert not await decider.renew(lease_of(sight))
    assert seen.record == sight.record


@pytest.mark.trio
async def test_a_lease_whose_holder_was_removed_by_hand_is_not_the_master_s(
    node: EtcdNode, keys: Keys
) -> None:
    decider = etcd(node, keys, 3_600)
    lease = lease_of(await led(decider))
    assert await decider.renew(lease)
    node.ask("/v3/kv/deleterange", {"key": keys.holder})
    assert not await decider.renew(lease)
    other = etcd(node, keys, 3_600)
    free = await other.look(None, 0)
    assert free.record is not None
    await other.take(free, partial(elected, free.record, 1, least=1))
    assert not await decider.renew(lease)


@pytest.mark.trio
async def test_without_a_record_or_word_of_it_a_lease_is_renewed(
    node: EtcdNode, keys: Keys
) -> None:
    decider = etcd(node, keys, 3_600)
    lease = lease_of(await led(decider))
    node.ask("/v3/kv/deleterange", {"key": keys.record})
    assert await decider.renew(lease), "the holder keeps others from it"
    node.ask("/v3/kv/put", {"key": keys.record, "value": "e30="})
    assert await decider.renew(lease)


@pytest.mark.trio
async def test_a_watch_that_is_cancelled_each_time_is_no_reason_to_look_at_once(
    tmp_path: Path, keys: Keys
) -> None:
    with EtcdNode(data=tmp_path / "data") as node:
        decider = etcd(node, keys, SHORT_S)
        sight = await led(decider)
        node.ask("/v3/kv/compaction", {"revision": str(sight.moment)})
        began = trio.current_time()
        assert (await decider.look(Sight(None, 0, held=False, moment=0), 60)).record == sight.record
        assert trio.current_time() - began >= decider.answer_s


@pytest.mark.trio
async def test_a_member_that_waits_learns_of_a_change_at_once(node: EtcdNode, keys: Keys) -> None:
    decider, other = etcd(node, keys, 3_600), etcd(node, keys)
    known = await decider.look(None, 0)
    seen: list[Sight] = []

    async def wait() -> None:
        seen.append(await decider.look(known, 600))

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            taken = await led(other)
    assert seen == [taken]


@pytest.mark.trio
async def test_without_a_change_the_wait_ends(node: EtcdNode, keys: Keys) -> None:
    decider = etcd(node, keys)
    known = await decider.look(None, 0)
    assert (await decider.look(known, 0.2))[:3] == known[:3]


@pytest.mark.trio
async def test_what_no_member_wrote_is_refused(node: EtcdNode, keys: Keys) -> None:
    node.ask("/v3/kv/put", {"key": keys.record, "value": "e30="})
    with pytest.raises(RecordIllegal, match="epoch"):
        await etcd(node, keys).look(None, 0)


class Hang:
    """An endpoint that takes connections and says nothing."""

    def __enter__(self) -> str:
        self._socket = socket.create_server((HOST, 0))
        return f"http://{HOST}:{self._socket.getsockname()[1]}"

    def __exit__(self, *error: object) -> None:
        self._socket.close()


@pytest.mark.trio
async def test_endpoints_that_hang_or_are_down_are_passed_over(node: EtcdNode, keys: Keys) -> None:
    with Hang() as hangs:
        bad = [hangs, f"http://{HOST}:{free_port()}", "http://a..b:1"]
        decider = Etcd([endpoint(text) for text in [*bad, node.url]], keys, LEASE_S)
        await decider.look(None, 0)
        # The next calls begin with the one that has answered.
        assert decider.endpoints[0].url == node.url
        with pytest.raises(DeciderSilent, match=f"{hangs}: no answer in time"):
            await Etcd([endpoint(text) for text in bad], keys, 1).renew("7")


@pytest.mark.trio
async def test_a_renewal_passes_hanging_endpoints_while_the_lease_lasts(
    node: EtcdNode, keys: Keys
) -> None:
    """It begins at half of the lease, which is good for four fifths: three tenths are left."""
    lease = lease_of(await led(etcd(node, keys, 30)))
    with Hang() as first, Hang() as second, Hang() as third:
        urls = first, second, third, node.url
        decider = Etcd([endpoint(url) for url in urls], keys, 30)
        with trio.fail_after(30 * 0.3):
            assert await decider.renew(lease)


def quiet(*_: object) -> None:
    """Write no line for a request."""


class Gateway:
    """Answers every request with the same; a proxy in front of etcd, or no etcd at all."""

    def __init__(self, status: int, body: bytes) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            log_message = quiet  # type: ignore[assignment]  # as it is called

        self._server = http.server.HTTPServer((HOST, 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> str:
        self._thread.start()
        return f"http://{HOST}:{self._server.server_port}"

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.mark.trio
@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b"no JSON"),
        (200, b"x" * 70_000),
        (200, b"[" * 60_000),
        (200, b"[]"),
        (200, b"{}"),
        (200, b'{"error": {"message": "the proxy is busy"}}'),
        (200, b'{"header": {"revision": "x"}, "ID": "y", "result": {"TTL": "z"}}'),
        (503, b"{}"),
    ],
)
async def test_an_answer_that_is_none_is_no_answer(
    node: EtcdNode, keys: Keys, status: int, body: bytes
) -> None:
    sight = Sight(first_record(1, "7"), 1, held=True)
    record = given_back(first_record(1, "7"))
    with Gateway(status, body) as url:
        decider = Etcd([endpoint(url)], keys, 100)
        for call in (
            lambda: decider.look(None, 0),
            lambda: decider.take(sight, lambda lease: first_record(1, lease)),
            lambda: decider.renew("7"),
            lambda: decider.change(sight, record, "7"),
        ):
            with pytest.raises(DeciderSilent, match=url):
                await call()
        both = Etcd([endpoint(url), endpoint(node.url)], keys, 100)
        assert (await both.look(None, 0))[:3] == (None, 0, False)
        assert both.endpoints[0].url == node.url


@pytest.mark.trio
async def test_a_gateway_that_knows_none_of_the_calls_ends_no_lease(
    node: EtcdNode, keys: Keys
) -> None:
    """It answers with the code of gRPC that etcd has for a lease that is over."""
    sight = Sight(first_record(1, "7"), 1, held=True)
    with Gateway(404, b'{"code": 5, "message": "Not Found", "details": []}') as url:
        decider = Etcd([endpoint(url)], keys, 100)
        for call in (
            lambda: decider.look(None, 0),
            lambda: decider.take(sight, lambda lease: first_record(1, lease)),
            lambda: decider.renew("7"),
            lambda: decider.change(sight, given_back(first_record(1, "7")), "7"),
        ):
            with pytest.raises(DeciderMisused, match=f"{url}.*Not Found"):
                await call()
        both = Etcd([endpoint(url), endpoint(node.url)], keys, 100)
        taken = await led(both)
        assert await both.renew(lease_of(taken))


@pytest.mark.trio
async def test_nobody_leads_by_a_lease_that_etcd_does_not_know(node: EtcdNode, keys: Keys) -> None:
    decider = etcd(node, keys)
    sight = await decider.look(None, 0)
    with pytest.raises(ChangeRefused, match="the lease is over"):
        await decider.take(sight, lambda _: first_record(1, "77"))


@pytest.mark.trio
@pytest.mark.parametrize("token", ["a\\r\\nb: c", "\\u00e9", ""])
async def test_a_token_that_no_header_can_have_is_no_answer(keys: Keys, token: str) -> None:
    with (
        Gateway(200, b'{"token": "%b"}' % token.encode()) as url,
        pytest.raises(DeciderSilent, match="no token"),
    ):
        await Etcd([endpoint(url)], keys, 100, user="root").look(None, 0)


@pytest.mark.trio
async def test_a_client_certificate_which_must_have_no_common_name_where_there_are_users(
    tmp_path: Path, keys: Keys
) -> None:
    shown = certificate(tmp_path)
    tls = [
        *(f"--cert-file={shown.cert}", f"--key-file={shown.key}"),
        *("--client-cert-auth", f"--trusted-ca-file={shown.cert}"),
    ]
    context = ssl.create_default_context(cafile=str(shown.cert))
    anonymous = ssl.create_default_context(cafile=str(shown.cert))
    context.load_cert_chain(shown.cert, shown.key)
    with EtcdNode(data=tmp_path / "data", tls=tls, context=context) as node:
        target = [endpoint(node.url)]
        await led(Etcd(target, keys, LEASE_S, tls=context))
        with pytest.raises(DeciderSilent):
            await Etcd(target, keys, LEASE_S, tls=anonymous).look(None, 0)
        node.ask("/v3/auth/user/add", {"name": "root", "password": "secret"})
        node.ask("/v3/auth/user/grant", {"user": "root", "role": "root"})
        node.ask("/v3/auth/enable", {})
        account = Etcd(target, keys, LEASE_S, tls=context, user="root", password="secret")
        with pytest.raises(DeciderSilent, match="CommonName"):
            await account.look(None, 0)


@pytest.mark.trio
async def test_a_user_with_a_password(tmp_path: Path, keys: Keys) -> None:
    with EtcdNode(data=tmp_path / "data") as node:
        node.ask("/v3/auth/user/add", {"name": "root", "password": "secret"})
        node.ask("/v3/auth/user/grant", {"user": "root", "role": "root"})
        node.ask("/v3/auth/enable", {})
        decider = etcd(node, keys, user="root", password="secret")
        sight = await led(decider)
        # A token is over after a while, and when the password is set anew.
        account = {"name": "root", "password": "secret"}
        token = node.ask("/v3/auth/authenticate", account)["token"]
        node.ask("/v3/auth/user/changepw", account, token)
        assert (await decider.look(None, 0)).record == sight.record
        with pytest.raises(DeciderMisused, match="user root"):
            await etcd(node, keys, user="root", password="wrong").look(None, 0)
        with pytest.raises(DeciderMisused, match="user name is empty"):
            await etcd(node, keys).look(None, 0)


@pytest.mark.trio
async def test_a_jwt_is_over_with_each_change_of_the_users(tmp_path: Path, keys: Keys) -> None:
    signs = certificate(tmp_path)
    jwt = f"--auth-token=jwt,pub-key={signs.cert},priv-key={signs.key},sign-method=RS256,ttl=1h"
    with EtcdNode(data=tmp_path / "data", options=[jwt, "--bcrypt-cost=4"]) as node:
        node.ask("/v3/auth/user/add", {"name": "root", "password": "secret"})
        node.ask("/v3/auth/user/grant", {"user": "root", "role": "root"})
        node.ask("/v3/auth/enable", {})
        node.account = "root", "secret"
        decider = etcd(node, keys, user="root", password="secret")
        sight = await led(decider)
        assert sight.record is not None
        node.ask("/v3/auth/user/add", {"name": "other", "password": "secret"})
        assert await decider.look(None, 0) == sight
        node.ask("/v3/auth/user/changepw", {"name": "other", "password": "another"})
        wider = with_set(sight.record, [1, 2])
        assert (await decider.change(sight, wider, lease_of(sight))).record == wider


def test_records_of_masters_differ_by_their_lease() -> None:
    first = Record(epoch=1, master=1, sync_set=(1,), set_epoch=1, lease="1")
    assert elected(first, 1, "2", 1) != elected(first, 1, "3", 1)


@pytest.mark.trio
async def test_three_nodes_decide_while_two_of_them_run(tmp_path: Path, keys: Keys) -> None:
    cluster = nodes(tmp_path, 3)
    with ExitStack() as running:
        for node in cluster:
            running.callback(node.kill)
            node.launch()
        for node in cluster:
            node.wait()
        # An endpoint that stands still takes a fifth of that once, and is asked last from then on.
        decider = Etcd([endpoint(node.url) for node in cluster], keys, 2 * LEASE_S)
        sight = await led(decider)
        assert sight.record is not None
        cluster[0].stand_still()
        with trio.fail_after(60):
            while True:
                # The others may have to elect a leader first.
                try:
                    wider = with_set(sight.record, [1, 2])
                    changed = await decider.change(sight, wider, lease_of(sight))
                    break
                except DeciderSilent:
                    continue
        assert await decider.look(None, 0) == changed
        cluster[1].kill()
        with pytest.raises(DeciderSilent):
            await decider.look(None, 0)
        cluster[1].start()
        with trio.fail_after(60):
            while True:
                try:
                    seen = await decider.look(None, 0)
                    break
                except DeciderSilent:
                    continue
        assert (seen.record, seen.version) == (changed.record, changed.version)
