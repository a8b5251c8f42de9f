"""Signatures as the Java client makes them, and connections through TLS on every front."""

import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aerobee import Credentials, Message, RetryPolicy, TLSConfig
from aerobee.client.security import link_of, signed
from aerobee.errors import AerobeeError, ConfigurationError, SendFailedError
from aerobee.remoting.wire.request_signature import is_signed, with_signature
from tests.aerobee.client.fronts import Front, in_thread
from tests.conftest import AnyBroker
from tests.kit.tls import Certificate, tls_door

ACCOUNT = Credentials("ak", "secret12345")


def test_the_signature_is_that_of_the_java_client() -> None:
    key, secret = ACCOUNT.access_key, ACCOUNT.secret_key.encode()
    fields = with_signature(key, secret, {"topic": "T"}, b"")
    assert fields["Signature"] == "UHh0bYxILU+HNQMGnAcD8Nizmxs="
    fields = with_signature(key, secret, {"b": "T", "a": "pg", "SecurityToken": "tok"}, b"hi")
    assert fields["Signature"] == "3OIZ1kxvS/BA36N9g1MDLT0xTLE="


def test_what_is_signed_is_good_for_its_request_code_only() -> None:
    """A name server that gets a question for a route cannot make a send of it."""
    token = Credentials("ak", "secret12345", "tok")
    fields = signed(token, 105, {"topic": "T"}, b"")
    assert fields["SecurityToken"] == "tok"
    assert is_signed(b"secret12345", fields, b"", 105)
    assert not is_signed(b"secret12345", fields, b"", 310)


def test_keys_may_change_while_a_client_runs() -> None:
    accounts = [Credentials("one", "x"), Credentials("two", "y")]
    dress = link_of(lambda: accounts.pop(0), tls=False).dress
    assert dress is not None
    assert [dress(11, {}, b"")["AccessKey"] for _ in range(2)] == ["one", "two"]


@pytest.mark.service
@pytest.mark.anyio
async def test_a_function_of_credentials_that_fails_for_a_while_ends_no_client(
    front: Front, fresh: Callable[[str], str]
) -> None:
    """It is called for heartbeats as well, in the background."""
    topic, failed = fresh("topic"), threading.Event()
    vault = [ACCOUNT]

    def credentials() -> Credentials:
        try:
            return vault[0]
        except IndexError:
            failed.set()
            raise

    retry = RetryPolicy(attempts=1, patient=False)
    options: dict[str, Any] = {
        "credentials": credentials,
        "heartbeat_interval": 0.1,
        "retry": retry,
    }
    async with front.producer(**options) as producer:
        await producer.send(Message(topic, b"before"))
        vault.clear()
        assert await in_thread(failed.wait, 30.0), "a heartbeat asks for them"
        with pytest.raises(SendFailedError, match="no credentials: IndexError"):
            await producer.send(Message(topic, b"without"))
        vault.append(ACCOUNT)
        assert (await producer.send(Message(topic, b"again"))).ok


def test_a_namespace_is_named_in_each_request_before_it_is_signed() -> None:
    plain = link_of(None, tls=False, namespace_v2="shop").dress
    assert plain is not None
    named = {"topic": "T", "nsd": "true", "ns": "shop"}
    assert plain(11, {"topic": "T"}, b"x") == named
    with_account = link_of(ACCOUNT, tls=False, namespace_v2="shop").dress
    assert with_account is not None
    assert with_account(11, {"topic": "T"}, b"x") == signed(ACCOUNT, 11, named, b"x")


@pytest.mark.service
@pytest.mark.anyio
async def test_names_stay_as_they_are_in_a_namespace(front: Front) -> None:
    async with front.producer(namespace_v2="shop") as producer:
        result = await producer.send(Message("Plain", b"x"))
        queues = await producer.queues("Plain")
    assert result.queue in queues
    with pytest.raises(ConfigurationError, match="namespace_v2"):
        front.producer(namespace_v2="a b")


def test_secrets_are_not_shown() -> None:
    assert "secret12345" not in repr(ACCOUNT)
    with pytest.raises(ConfigurationError):
        Credentials("", "x")


def test_files_that_are_no_certificates_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nothing\.pem"):
        TLSConfig(ca_file=str(tmp_path / "nothing.pem")).ssl_context()


def test_without_options_nothing_is_added() -> None:
    assert link_of(None, tls=False).dress is None
    own = ssl.create_default_context()
    assert TLSConfig(context=own).ssl_context() is own


@pytest.mark.service
@pytest.mark.anyio
async def test_a_client_speaks_tls_and_checks_the_certificate(
    front_name: str, broker: AnyBroker, shown: Certificate
) -> None:
    with tls_door(broker.namesrv_address, shown) as address:
        front = Front(front_name, address)
        async with front.admin(tls=TLSConfig(ca_file=str(shown.cert))) as admin:
            assert "TBW102" in await admin.topics()
        async with front.admin(tls=TLSConfig(verify=False)) as admin:
            assert await admin.topics()
        with pytest.raises(AerobeeError, match=r"the certificate is not trusted"):
            async with front.admin(tls=True, connect_timeout=5.0):
                pass
