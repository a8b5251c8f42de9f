"""`aerobee ha`: of values, and of a pair of brokers."""

from __future__ import annotations

import io
import json
import os
import subprocess
from contextlib import redirect_stderr, redirect_stdout, suppress
from typing import TYPE_CHECKING, Any

import pytest

from aerobee import Credentials, Message
from aerobee.admin import BrokerInfo, NewMaster, ReplicaInfo, ReplicationStatus
from aerobee.blocking import AdminClient, Producer
from aerobee.cli.border import exit_code_of
from aerobee.cli.ha import objections
from aerobee.cli.ha_members import Member, rows_of
from aerobee.cli.main import run as run_line
from aerobee.errors import BrokerError
from tests.aerobee.cli.conftest import Call, Done, command
from tests.kit.broker_process import BrokerProcess, with_accounts
from tests.kit.ports import HOST
from tests.kit.raw_client import RawConnection, send_fields, topic_fields
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

CREATE_TOPIC, SEND, MAX_OFFSET = 17, 310, 30
SECRET = "a-long-secret"


def member(
    broker_id: int, status: ReplicationStatus | None, host: str = "10.0.0.2", problem: str = ""
) -> Member:
    broker = BrokerInfo(
        cluster="C", name="b", broker_id=broker_id, address=f"{host}:{10_911 + broker_id}"
    )
    return Member(broker, status, problem)


def master(*replicas: ReplicaInfo, end: int = 1_000) -> ReplicationStatus:
    return ReplicationStatus(is_master=True, max_offset=end, replicas=replicas)


def replica(acknowledged: int, host: str = "10.0.0.3", **more: Any) -> ReplicaInfo:
    given: dict[str, Any] = {"in_sync": True, "lag_s": 0.0, "standing": "follows"}
    given |= more
    return ReplicaInfo(
        peer=f"{host}:4711", acknowledged=acknowledged, lag=1_000 - acknowledged, **given
    )


def slave(end: int, state: str = "following", problem: str = "") -> ReplicationStatus:
    return ReplicationStatus(is_master=False, max_offset=end, state=state, problem=problem)


def test_a_group_is_shown_with_its_master_first() -> None:
    late = member(1, slave(900), "10.0.0.3")
    rows = list(rows_of([late, member(0, master(replica(880, lag_s=2.5)))]))
    shown = [
        (row["id"], row["role"], row["max_offset"], row["lag_bytes"], row["lag_s"], row["in_sync"])
        for row in rows
    ]
    assert shown == [
        (0, "master", 1_000, None, None, None),
        (1, "slave", 900, 100, 2.5, True),
    ]
    assert not any(row["problem"] for row in rows)


def test_two_slaves_of_one_host_have_a_connection_each() -> None:
    rows = list(
        rows_of(
            [
                member(0, master(replica(300, lag_s=9.0), replica(1_000, lag_s=0.0))),
                member(1, slave(1_000), "10.0.0.3"),
                member(2, slave(320), "10.0.0.3"),
            ]
        )
    )
    assert [(row["lag_bytes"], row["lag_s"]) for row in rows[1:]] == [(0, 0.0), (680, 9.0)]


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        (
            [member(0, master()), member(1, slave(9, "diverged", "at offset 9"), "10.0.0.3")],
            "at offset 9",
        ),
        ([member(0, master()), member(1, slave(9), "10.0.0.3")], "no connection from it"),
        (
            [
                member(0, master(replica(0, standing="ahead", in_sync=False))),
                member(1, slave(9), "10.0.0.3"),
            ],
            "never sent",
        ),
        (
            [member(0, master(replica(9, in_sync=False))), member(1, slave(9), "10.0.0.3")],
            "haMaxGapNotInSync",
        ),
        (
            [member(0, None, problem="does not answer"), member(1, slave(9), "10.0.0.3")],
            "no master of the group answers",
        ),
        ([member(0, master()), member(1, master(), "10.0.0.3")], "two masters"),
    ],
)
def test_what_is_wrong_is_said_in_words(members: list[Member], problem: str) -> None:
    assert problem in str(list(rows_of(members))[-1]["problem"])


def shown_by(pair: BrokerProcess, *more: str) -> tuple[int, list[dict[str, Any]]]:
    done = ended(pair, "status", "--json", *more)
    assert done.code in (0, 1), done.err
    return done.code, done.document


@pytest.mark.service
def test_a_pair_is_shown_and_what_is_wrong_with_it(tmp_path: Path) -> None:
    ours = {"brokerName": "b", "brokerIP1": HOST, "haPeers": HOST}
    with BrokerProcess(data=tmp_path / "master", settings=ours) as first:
        theirs = {
            "brokerName": "b",
            "brokerIP1": HOST,
            "brokerRole": "SLAVE",
            "brokerId": 1,
            "namesrvAddr": first.namesrv_address,
            "embeddedNamesrv": False,
        }
        with RawConnection(first.address) as connection:
            assert connection.call(CREATE_TOPIC, topic_fields("t", 1)).code == 0
            assert connection.call(SEND, send_fields("t", 0), b"x").code == 0
        with BrokerProcess(data=tmp_path / "slave", settings=theirs) as second:
            eventually(lambda: shown_by(first)[0] == 0, within_s=30, what="a slave in sync")
            _, (of_master, of_slave) = shown_by(first)
            assert (of_master["role"], of_master["address"]) == ("master", first.address)
            assert (of_slave["id"], of_slave["address"]) == (1, second.address)
            assert of_slave["max_offset"] == of_master["max_offset"] > 0
            assert (of_slave["in_sync"], of_slave["lag_bytes"]) == (True, 0)
            assert shown_by(first, "--broker", "other") == (1, [])
            second.kill()
            eventually(
                lambda: any(row["problem"] for row in shown_by(first)[1]),
                within_s=30,
                what="a slave that is missed",
            )


def test_what_is_against_a_promotion_has_a_name() -> None:
    own = member(1, slave(900, "diverged", "at offset 9"), "10.0.0.3")
    alive = member(0, master())
    further = member(2, slave(950), "10.0.0.4")
    dead = member(0, None, problem="does not answer")
    address = own.broker.address
    found = dict(objections([alive, own, further], address))
    assert set(found) == {"master-alive", "behind", "diverged"}
    assert "50 bytes more" in found["behind"]
    whole = member(1, slave(950, "unreachable"), "10.0.0.3")
    assert not dict(objections([dead, whole, further], address))


def ended(pair: BrokerProcess, *arguments: str) -> Done:
    """How a command ended. In this process: pairs are asked many times until they are well."""
    out, err = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        for name in [name for name in os.environ if name.startswith("AEROBEE")]:
            patch.delenv(name)
        patch.setenv("NAMESRV_ADDR", pair.namesrv_address)
        code = exit_code_of(run_line, ["ha", *arguments])
    for stream in (out, err):
        stream.seek(0)
    return Done(code, out.read(), err.read())


@pytest.mark.service
def test_the_two_exchange_their_roles_and_keep_them(tmp_path: Path) -> None:
    ours = {"brokerName": "b", "brokerIP1": HOST, "haPeers": HOST}
    with BrokerProcess(data=tmp_path / "first", settings=ours) as first:
        theirs = ours | {
            "brokerRole": "SLAVE",
            "brokerId": 1,
            "namesrvAddr": first.namesrv_address,
        }
        with RawConnection(first.address) as connection:
            assert connection.call(CREATE_TOPIC, topic_fields("t", 1)).code == 0
        with BrokerProcess(data=tmp_path / "second", settings=theirs) as second:
            unknown = ended(first, "switch", "--to", "nowhere")
            assert unknown.code == 2
            assert "no broker at nowhere: `aerobee ha status` shows them" in unknown.err

            def healthy() -> bool:
                code, rows = shown_by(first)
                return not code and len(rows) == 2

            for offset, to in enumerate((second, first, second)):
                eventually(healthy, within_s=60, what="both follow")
                looked = ended(first, "switch", "b", "--to", to.address, "--dry-run", "--json")
                assert looked.document["switched"] is False, looked
                done = ended(first, "switch", "b", "--to", to.address, "--json")
                assert done.document["epoch"] == offset + 1, done
                with RawConnection(to.address) as connection:
                    sent = connection.call(SEND, send_fields("t", 0), b"x")
                    assert (sent.code, sent.ext["queueOffset"]) == (0, str(offset))
            eventually(healthy, within_s=60, what="both follow")
            first.kill()
            first.start()
            eventually(healthy, within_s=60, what="it is a slave, whatever its settings say")
            _, rows = shown_by(first)
            assert [(row["address"], row["role"], row["epoch"]) for row in rows] == [
                (second.address, "master", 3),
                (first.address, "slave", 3),
            ]


@pytest.mark.service
def test_a_slave_takes_the_place_of_a_lost_master_and_keeps_it(tmp_path: Path) -> None:
    ours = {"brokerName": "b", "brokerIP1": HOST, "haPeers": HOST}
    with BrokerProcess(data=tmp_path / "master", settings=ours) as first:
        theirs = ours | {
            "brokerRole": "SLAVE",
            "brokerId": 1,
            "haMasterAddress": f"{HOST}:{first.ports.ha}",
        }
        with RawConnection(first.address) as connection:
            assert connection.call(CREATE_TOPIC, topic_fields("t", 1)).code == 0
            for _ in range(5):
                assert connection.call(SEND, send_fields("t", 0), b"x").code == 0
        with BrokerProcess(data=tmp_path / "slave", settings=theirs) as second:

            def has_all() -> bool:
                with RawConnection(second.address) as slave:
                    ext = slave.call(MAX_OFFSET, {"topic": "t", "queueId": 0}).ext
                    return ext.get("offset") == "5"

            eventually(has_all, within_s=30, what="a copy")
            refused = ended(second, "promote", second.address)
            assert refused.code == 1
            assert "master-alive" in refused.err
            unknown = ended(second, "promote", "nowhere")
            assert unknown.code == 2
            assert "no broker at nowhere: `aerobee ha status` shows them" in unknown.err
            first.kill()
            looked = ended(second, "promote", second.address, "--dry-run", "--json")
            assert looked.document["promoted"] is False

            def promoted() -> bool:
                # The slave may not have noticed yet that its master is gone.
                return ended(second, "promote", second.address).code == 0

            eventually(promoted, within_s=30, what="a promotion")
            with RawConnection(second.address) as connection:
                sent = connection.call(SEND, send_fields("t", 0), b"x")
                assert (sent.code, sent.ext["queueOffset"]) == (0, "5")
            second.kill()
            second.start()
            with RawConnection(second.address) as connection:
                sent = connection.call(SEND, send_fields("t", 0), b"x")
                assert (sent.code, sent.ext["queueOffset"]) == (0, "6")
            _, (row,) = shown_by(second)
            assert (row["id"], row["role"]) == (0, "master")


@pytest.mark.service
def test_a_lost_master_follows_the_next_one_and_gives_up_its_tail(tmp_path: Path) -> None:
    ours = {"brokerName": "b", "brokerIP1": HOST, "haPeers": HOST}
    first = BrokerProcess(data=tmp_path / "first", settings=ours)
    theirs = ours | {
        "brokerRole": "SLAVE",
        "brokerId": 1,
        "haMasterAddress": f"{HOST}:{first.ports.ha}",
    }
    second = BrokerProcess(data=tmp_path / "second", settings=theirs)

    def send(broker: BrokerProcess, *bodies: bytes) -> None:
        with RawConnection(broker.address) as connection:
            for body in bodies:
                assert connection.call(SEND, send_fields("t", 0), body).code == 0

    def has(broker: BrokerProcess, messages: int) -> bool:
        with RawConnection(broker.address) as connection:
            ext = connection.call(MAX_OFFSET, {"topic": "t", "queueId": 0}).ext
            return ext.get("offset") == str(messages)

    with first, second:
        with RawConnection(first.address) as connection:
            assert connection.call(CREATE_TOPIC, topic_fields("t", 1)).code == 0
        send(first, b"both", b"both")
        eventually(lambda: has(second, 2), within_s=60, what="a copy")
        second.kill()
        send(first, b"lost", b"lost", b"lost")
        first.kill()
        second.start()
        promoted = ended(second, "promote", second.address, "--json")
        assert not promoted.code, promoted
        send(second, b"new")
        first.settings = theirs | {"brokerId": 2, "haMasterAddress": f"{HOST}:{second.ports.ha}"}
        first.start()
        order = ("follow", first.address, "--master", second.address, "--json")

        def diverged() -> bool:
            return "ha follow HOST:PORT" in str(shown_by(first))

        eventually(diverged, within_s=60, what="a slave that has diverged")
        looked = ended(first, *order, "--dry-run")
        assert (looked.code, looked.document["cut_messages"]) == (1, 3), looked
        assert "--cut" in looked.err
        assert ended(first, *order).code == 1
        assert ended(first, *order[:-2], first.address).code == 1
        made = ended(first, *order, "--cut", "--yes")
        assert not made.code, made
        assert "restart the broker" in made.err
        kept = made.document["kept_in"]
        first.kill()
        first.start()
        eventually(lambda: has(first, 3), within_s=60, what="the new history")
        tail = subprocess.run(
            command("store", "dump", kept, "--behind", str(made.document["common_offset"])),
            capture_output=True,
            text=True,
            check=True,
        )
        assert tail.stdout.count("\n") >= 3


@pytest.mark.service
@pytest.mark.parametrize("may", [True, False])
def test_with_accounts_the_roles_are_exchanged_where_the_master_may(
    tmp_path: Path, may: bool
) -> None:
    admin = Credentials("the-admin", SECRET)

    def signs(name: str) -> str:
        return json.dumps({"accessKey": name, "secretKey": SECRET})

    known = {
        "brokerName": "b",
        "brokerIP1": HOST,
        "haPeers": HOST,
        **with_accounts(admin.access_key, SECRET),
        "innerClientAuthenticationCredentials": signs(admin.access_key),
    }
    # Accounts are not copied: the slave does not know this one.
    stranger = {"innerClientAuthenticationCredentials": signs("stranger")}
    ours = known if may else known | stranger
    with BrokerProcess(data=tmp_path / "first", settings=ours) as first:
        theirs = known | {
            "brokerRole": "SLAVE",
            "brokerId": 1,
            "haMasterAddress": f"{HOST}:{first.ports.ha}",
        }
        with (
            BrokerProcess(data=tmp_path / "second", settings=theirs) as second,
            AdminClient(first.namesrv_address, credentials=admin) as at_first,
            AdminClient(second.namesrv_address, credentials=admin) as at_second,
        ):
            eventually(
                lambda: at_second.replication_status(second.address).state == "following",
                within_s=60,
                what="a slave",
            )
            at_first.create_topic("t", queues=1)
            with Producer(first.namesrv_address, credentials=admin) as producer:
                producer.send(Message("t", b"before"))
            if may:

                def switched() -> bool:
                    with suppress(BrokerError):
                        return at_first.switch(first.address, second.address).epoch == 1
                    return False

                eventually(switched, within_s=60, what="a switch")
                assert at_second.replication_status(second.address).is_master
                eventually(
                    lambda: at_first.replication_status(first.address).state == "following",
                    within_s=60,
                    what="the old master follows",
                )
                return
            with pytest.raises(BrokerError, match="nothing was changed"):
                at_first.switch(first.address, second.address)
            assert at_first.replication_status(first.address).is_master
            with Producer(first.namesrv_address, credentials=admin) as producer:
                producer.send(Message("t", b"after"))


@pytest.mark.parametrize("yes", [False, True])
def test_what_has_come_since_the_look_is_cut_only_unasked(
    call: Call, monkeypatch: pytest.MonkeyPatch, yes: bool
) -> None:
    cuts: list[bool] = []

    def follow(_: AdminClient, broker: str, to: str, *, cut: bool, dry_run: bool = False) -> Any:
        if not dry_run:
            cuts.append(cut)
        return NewMaster(
            epoch=1,
            max_offset=9,
            common_offset=9,
            messages=0,
            size_bytes=0,
            kept_in="",
            refused="",
        )

    monkeypatch.setattr(AdminClient, "follow", follow)
    words = ("ha", "follow", "h:1", "--master", "h:2", "--cut", *(["--yes"] if yes else []))
    assert call(*words).code == 0
    assert cuts == [yes]
