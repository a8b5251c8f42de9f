"""The SDK's signature and its TLS, against the Java broker and name server."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

import aerobee.blocking
from aerobee import ConsumeFrom, Credentials, Message, TLSConfig
from aerobee.errors import AerobeeError
from tests.kit.java import toolkit
from tests.kit.java_server import JavaBroker, JavaNamesrv
from tests.kit.tls import Certificate, certificate

pytestmark = pytest.mark.interop

ACL = """globalWhiteRemoteAddresses: []
accounts:
- accessKey: aerobee
  secretKey: secret12345
  whiteRemoteAddress:
  admin: true
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: SUB
"""
ACCOUNT = Credentials("aerobee", "secret12345")
TOPIC = "Guarded"


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory, shown: Certificate) -> Iterator[str]:
    """Of a cluster that takes signed requests only, and speaks TLS with who begins so."""
    options = (
        "-Dtls.test.mode.enable=false",
        f"-Dtls.server.certPath={shown.cert}",
        f"-Dtls.server.keyPath={shown.key}",
    )
    home = tmp_path_factory.mktemp("guarded")
    with ExitStack() as running:
        namesrv = JavaNamesrv(toolkit("5.4.0"), tmp_path_factory.mktemp("namesrv"), *options)
        running.callback(namesrv.stop)
        (home / "conf").mkdir()
        (home / "conf" / "plain_acl.yml").write_text(ACL)
        broker = JavaBroker(
            toolkit=toolkit("4.9.7"),
            data=home / "data",
            home=home,
            namesrv_address=namesrv.address,
            settings={"aclEnable": True},
            options=options,
        )
        running.enter_context(broker)
        yield namesrv.address


def test_signed_requests_through_tls_are_served(namesrv: str, shown: Certificate) -> None:
    options = {"credentials": ACCOUNT, "tls": TLSConfig(ca_file=str(shown.cert))}
    with aerobee.blocking.Client(namesrv, **options) as client:  # type: ignore[arg-type]  # named
        with aerobee.blocking.Producer(client=client) as producer:
            results = producer.send_batch(Message(TOPIC, b"%d" % n, tag="ü") for n in range(3))
        with aerobee.blocking.PullConsumer(
            "readers", client=client, start_from=ConsumeFrom.FIRST
        ) as consumer:
            consumer.subscribe(TOPIC)
            bodies = {message.body for message in consumer.poll(timeout=30.0)}
    assert all(result.ok for result in results)
    assert bodies <= {b"0", b"1", b"2"}
    assert bodies


@pytest.mark.parametrize(
    ("credentials", "said"),
    [(None, "accessKey"), (Credentials("aerobee", "wrong"), "signature"), ("nobody", "No acl")],
)
def test_others_are_refused_in_the_words_of_the_broker(
    namesrv: str, credentials: Credentials | str | None, said: str
) -> None:
    account = Credentials(credentials, "x") if isinstance(credentials, str) else credentials
    with (
        aerobee.blocking.Producer(namesrv, credentials=account, timeout=5.0) as producer,
        pytest.raises(AerobeeError, match=f"(?i){said}"),
    ):
        producer.send(Message(TOPIC, b"x"))
