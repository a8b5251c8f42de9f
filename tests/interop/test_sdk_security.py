"""Signatures and TLS of the SDK and of Spark's tasks, against the Java broker and name server."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest

import aerobee.blocking
from aerobee import ConsumeFrom, Credentials, Filter, Message, TLSConfig
from aerobee.errors import AerobeeError, SendFailedError
from aerobee.spark.options import write_options
from aerobee.spark.sink.writer import Task, WriterBase
from tests.kit.java import toolkit
from tests.kit.java_server import JavaBroker, JavaNamesrv
from tests.kit.tls import Certificate
from tests.kit.waiting import eventually

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
def namesrv(tmp_path_factory: pytest.TempPathFactory, shown: Certificate) -> Iterator[str]:
    """Of a cluster that takes signed requests only, and speaks TLS with who begins so."""
    options = (
        "-Dtls.server.mode=permissive",
        "-Dtls.test.mode.enable=false",
        f"-Dtls.server.certPath={shown.cert}",
        f"-Dtls.server.keyPath={shown.key}",
    )
    home = tmp_path_factory.mktemp("guarded")
    with ExitStack() as running:
        namesrv = JavaNamesrv(toolkit("5.5.0"), tmp_path_factory.mktemp("namesrv"), *options)
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
    tls = TLSConfig(ca_file=str(shown.cert))
    # The signature covers the namespace, too.
    options = {"credentials": ACCOUNT, "tls": tls, "namespace_v2": "shop"}
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


def test_tasks_of_spark_sign_their_requests_through_tls(
    namesrv: str, shown: Certificate, tmp_path: Path
) -> None:
    """What a task of `save()` does, and a read of the same options."""
    keys = tmp_path / "tools.yml"
    keys.write_text("accessKey: aerobee\nsecretKey: secret12345\n")
    guarded = {"nameServer": namesrv, "tlsCaFile": str(shown.cert), "credentialsFile": str(keys)}
    rows = pa.record_batch({"body": pa.array([b"%d" % n for n in range(300)])})
    writer = WriterBase(write_options({**guarded, "topic": "FromSpark"}), rows.schema)
    assert writer.write_batches(iter([rows]), Task()).sent == 300

    def bodies() -> list[bytes]:
        # Java's broker answers a send before its queues have the message.
        table = aerobee.arrow("FromSpark", columns="body", options=guarded)
        return sorted(table["body"].to_pylist())

    sent = sorted(rows["body"].to_pylist())
    eventually(lambda: bodies() == sent, within_s=30, what="all rows are read")


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


STRICT = "strict"


@pytest.fixture(scope="module")
def strict(
    namesrv: str, shown: Certificate, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A broker at the same name server that talks TLS only, with clients of one certificate."""
    home = tmp_path_factory.mktemp("strict")
    broker = JavaBroker(
        toolkit=toolkit("4.9.7"),
        data=home / "data",
        home=home,
        settings={
            "namesrvAddr": namesrv,
            "brokerName": STRICT,
            "enablePropertyFilter": True,
        },
        options=(
            "-Dtls.test.mode.enable=false",
            "-Dtls.server.mode=enforcing",
            "-Dtls.server.need.client.auth=require",
            "-Dtls.server.authClient=true",
            f"-Dtls.server.certPath={shown.cert}",
            f"-Dtls.server.keyPath={shown.key}",
            f"-Dtls.server.trustCertPath={shown.cert}",
        ),
    )
    with broker:
        yield broker.address


def test_a_broker_that_wants_tls_and_a_certificate_serves_who_has_it(
    namesrv: str, strict: str, shown: Certificate
) -> None:
    known = TLSConfig(ca_file=str(shown.cert), cert_file=str(shown.cert), key_file=str(shown.key))
    with aerobee.blocking.Client(namesrv, tls=known) as client:
        with aerobee.blocking.AdminClient(client=client) as admin:
            eventually(
                lambda: strict in str(admin.cluster_info()), within_s=30.0, what="it is registered"
            )
            admin.create_topic("Strict", broker=STRICT)
        with aerobee.blocking.Producer(client=client) as producer:
            for price in range(4):
                producer.send(Message("Strict", b"%d" % price, properties={"price": f"{price}"}))
        consumer = aerobee.blocking.PullConsumer(
            "strict-readers", client=client, start_from=ConsumeFrom.FIRST
        )
        with consumer:
            consumer.subscribe("Strict", Filter.sql("price > 1 AND price IS NOT NULL"))
            bodies: set[bytes] = set()

            def both() -> bool:
                bodies.update(one.body for one in consumer.poll(timeout=0.5))
                return len(bodies) == 2

            eventually(both, within_s=30.0, what="both messages that fit")
    assert bodies == {b"2", b"3"}
    for tls in (False, TLSConfig(ca_file=str(shown.cert))):
        with (
            aerobee.blocking.Producer(namesrv, tls=tls, timeout=2.0) as producer,
            pytest.raises(SendFailedError, match=strict),
        ):
            producer.send(Message("Strict", b"x"))
