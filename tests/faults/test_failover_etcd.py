"""Broker processes with three nodes of etcd, over TLS with certificates and a password."""

from __future__ import annotations

import ssl
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.kit.etcd import nodes
from tests.kit.failover_group import FailoverGroup, Ledger
from tests.kit.replicas import SUCCESS
from tests.kit.tls import certificate
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.kit.etcd import EtcdNode

pytestmark = [pytest.mark.faults, pytest.mark.ours]

WITHIN_S = 90.0
USER, PASSWORD = "root", "secret"
LEASE_S = 10
"""A fifth of it is for an answer, with the handshakes of TLS."""


@contextmanager
def guarded_etcd(root: Path) -> Iterator[tuple[list[EtcdNode], dict[str, object]]]:
    """Three nodes that want a certificate and a password, and the settings that a member needs."""
    root.mkdir()
    # With users, etcd takes no certificate with a common name over its JSON gateway.
    shown = certificate(root, "/O=aerobee test")
    context = ssl.create_default_context(cafile=str(shown.cert))
    context.load_cert_chain(shown.cert, shown.key)
    tls = [
        *(f"--cert-file={shown.cert}", f"--key-file={shown.key}"),
        *("--client-cert-auth", f"--trusted-ca-file={shown.cert}"),
        # A password takes etcd a tenth of a second of CPU else, which is long on a busy machine.
        "--bcrypt-cost=4",
    ]
    cluster = nodes(root, 3, tls, context)
    with ExitStack() as stack:
        for node in cluster:
            node.launch()
            stack.callback(node.kill)
        for node in cluster:
            node.wait()
        cluster[0].ask("/v3/auth/user/add", {"name": USER, "password": PASSWORD})
        cluster[0].ask("/v3/auth/user/grant", {"user": USER, "role": "root"})
        cluster[0].ask("/v3/auth/enable", {})
        for node in cluster:
            node.account = USER, PASSWORD
        yield (
            cluster,
            {
                "failoverLease": LEASE_S,
                "etcdUser": USER,
                "etcdPassword": PASSWORD,
                "etcdTrustCertPath": shown.cert,
                "etcdClientCertPath": shown.cert,
                "etcdClientKeyPath": shown.key,
            },
        )


def test_one_node_of_etcd_may_die_and_with_two_dead_nothing_is_acknowledged(
    tmp_path: Path,
) -> None:
    with (
        guarded_etcd(tmp_path / "etcd") as (etcd, settings),
        FailoverGroup(tmp_path / "group", etcd, settings=settings) as group,
    ):
        ledger = Ledger(group)
        ledger.send(8, "before")
        # The one that every member asks first.
        etcd[0].kill()
        first = ledger.send(8, "with two nodes")
        group.members[first].kill()
        assert ledger.send(8, "of another master") != first
        group.members[first].start()
        group.until_complete()
        etcd[1].kill()
        eventually(
            lambda: SUCCESS not in {ledger.ask(member, 0, b"without") for member in group.members},
            within_s=WITHIN_S,
            what="no member acknowledges",
        )
        etcd[0].launch()
        etcd[0].wait()
        ledger.send(8, "with two nodes again")
        group.until_complete()
        ledger.expect_everywhere()
