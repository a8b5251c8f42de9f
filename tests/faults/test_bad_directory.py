"""Data directories that cannot be served: the start is refused with 3 and says how to go on.

Refusing changes nothing in the directory. Damage is for the recovery tests; here the directory
belongs to somebody else, or cannot be written, or is used by another broker at this moment.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.broker_process import BrokerProcess
from tests.kit.mounts import make_read_only, small_file_system, unreadable
from tests.kit.process import DidNotStart
from tests.kit.raw_client import RawConnection, send_fields

pytestmark = pytest.mark.faults

WRONG_USAGE, STORE_REFUSED = 2, 3
MiB = 1_048_576


def refusal(data: Path, *, exit_code: int = STORE_REFUSED, **settings: object) -> str:
    """Start a broker there, which must end with this code: what it says on stderr."""
    broker = BrokerProcess(data=data, settings=settings)
    with pytest.raises(DidNotStart) as refused, broker:
        raise AssertionError("it serves")
    said = broker.log.read_text()
    assert refused.value.exit_code == exit_code, said
    assert "Traceback" not in said, said
    return said


def tree(data: Path) -> dict[str, bytes]:
    files = (path for path in data.rglob("*") if path.is_file())
    return {str(path.relative_to(data)): path.read_bytes() for path in files}


def test_two_brokers_never_share_a_directory(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with BrokerProcess(data=data) as first:
        second = BrokerProcess(data=data)
        with pytest.raises(DidNotStart) as refused, second:
            raise AssertionError("both serve")
        assert refused.value.exit_code == STORE_REFUSED
        assert str(data) in second.log.read_text()
        with RawConnection(first.address) as connection:
            assert connection.call(310, send_fields("T", 0), b"x").code == 0
        assert first.stop() == 0


def test_a_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.write_text("I am a file")
    assert str(data) in refusal(data, exit_code=WRONG_USAGE)
    assert data.read_text() == "I am a file"


def test_a_directory_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("I am a file")
    assert str(tmp_path / "file") in refusal_below(tmp_path / "file" / "data", tmp_path)


def refusal_below(data: Path, log_at: Path) -> str:
    """As `refusal`, for a path whose parent cannot hold a log."""
    broker = BrokerProcess(data=data, log_path=log_at / "broker.log")
    with pytest.raises(DidNotStart) as refused, broker:
        raise AssertionError("it serves")
    assert refused.value.exit_code == STORE_REFUSED, broker.log.read_text()
    return broker.log.read_text()


def test_a_read_only_directory_is_refused(tmp_path: Path) -> None:
    with small_file_system(tmp_path / "small", size_bytes=64 * MiB) as mount:
        make_read_only(mount)
        said = refusal_below(mount / "data", tmp_path)
    assert str(mount) in said


def test_a_full_file_system_names_the_sizes_to_lower(tmp_path: Path) -> None:
    with small_file_system(tmp_path / "small", size_bytes=6 * MiB) as mount:
        said = refusal_below(mount / "data", tmp_path)
    assert "mappedFileSizeCommitLog" in said


FOREIGN = {
    "consume queues in RocksDB": "consumequeue/CURRENT",
    "consume queues in RocksDB, manifest": "consumequeue/MANIFEST-000004",
    "topics in RocksDB": "config/topics/CURRENT",
    "groups in RocksDB": "config/subscriptionGroups/CURRENT",
    "a timer in RocksDB": "rocksdbstore/000012.sst",
    "a DLedger log": "dledger-n0/00000000000000000000",
    "batch consume queues": "batchconsumequeue/T/0/00000000000000000000",
    "a controller's epochs": "epochFileCheckpoint",
}


@pytest.mark.parametrize("name", FOREIGN.values(), ids=FOREIGN)
def test_a_store_of_a_foreign_kind_is_refused_and_left_as_it_is(name: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / name).parent.mkdir(parents=True)
    (data / name).write_bytes(b"somebody's data")
    said = refusal(data)
    assert name.partition("/")[0] in said
    assert tree(data)[name] == b"somebody's data"


def test_a_topic_with_batch_queues_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    topic = {"topicName": "T", "perm": 6, "readQueueNums": 1, "writeQueueNums": 1}
    table = {"topicConfigTable": {"T": topic | {"attributes": {"queue.type": "BatchCQ"}}}}
    (data / "config").mkdir(parents=True)
    (data / "config" / "topics.json").write_text(json.dumps(table))
    assert "BatchCQ" in refusal(data)


def odd_size(commitlog: Path) -> None:
    (commitlog / f"{0:020}").write_bytes(bytes(1 * MiB))
    (commitlog / f"{MiB:020}").write_bytes(bytes(2 * MiB))


def odd_name(commitlog: Path) -> None:
    (commitlog / "backup-of-monday").write_bytes(bytes(1 * MiB))


@pytest.mark.parametrize("spoil", [odd_size, odd_name])
def test_log_files_that_do_not_fit_together_are_refused(
    spoil: Callable[[Path], None], tmp_path: Path
) -> None:
    data = tmp_path / "data"
    (data / "commitlog").mkdir(parents=True)
    spoil(data / "commitlog")
    before = tree(data / "commitlog")
    assert "commitlog" in refusal(data, mappedFileSizeCommitLog=MiB)
    assert tree(data / "commitlog") == before


def test_log_files_of_another_size_than_configured_keep_their_size(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with BrokerProcess(data=data, settings={"mappedFileSizeCommitLog": MiB}) as broker:
        with RawConnection(broker.address) as connection:
            for _ in range(3):
                assert connection.call(310, send_fields("T", 0), bytes(700_000)).code == 0
        assert broker.stop() == 0
    with BrokerProcess(data=data, settings={"mappedFileSizeCommitLog": 4 * MiB}) as broker:
        with RawConnection(broker.address) as connection:
            sent = connection.call(310, send_fields("T", 0), bytes(700_000))
        assert (sent.code, sent.ext["queueOffset"]) == (0, "3")
        assert broker.stop() == 0
    assert {path.stat().st_size for path in (data / "commitlog").iterdir()} == {MiB}


@pytest.mark.parametrize("killed", [False, True])
def test_a_segment_that_its_disk_cannot_read_is_named(tmp_path: Path, killed: bool) -> None:
    """Read through a mapping it would end the process by a signal, without a word."""
    data = tmp_path / "data"
    with BrokerProcess(data=data, settings={"mappedFileSizeCommitLog": MiB}) as broker:
        with RawConnection(broker.address) as connection:
            assert connection.call(310, send_fields("T", 0), bytes(10_000)).code == 0
        if killed:
            broker.kill()
        else:
            assert broker.stop() == 0
    segment = data / "commitlog" / f"{0:020}"
    with unreadable(segment, tmp_path / "bad"):
        said = refusal_below(data, tmp_path)
    assert str(segment) in said
    assert "Input/output error" in said
    with BrokerProcess(data=data) as broker:
        assert broker.stop() == 0


def test_a_wrong_setting_stops_the_start_with_2_and_names_it(tmp_path: Path) -> None:
    broker = BrokerProcess(data=tmp_path / "data", settings={"flushDiskType": "SOMETIMES"})
    with pytest.raises(DidNotStart) as refused, broker:
        raise AssertionError("it serves")
    assert refused.value.exit_code == 2
    assert "flushDiskType" in broker.log.read_text()
