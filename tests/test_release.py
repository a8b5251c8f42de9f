"""`make release`: what it builds is the same each time, and works installed by itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deploy.release import build, trial
from tests.kit.ports import free_block, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
QUICK = "sdist,wheel,chart"
"""Compiled wheels, image and bill take minutes, a network or root."""


def built(out: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "deploy.release.build", "--only", QUICK, "--out", str(out)],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("release")
    done = built(out)
    assert done.returncode == 0, done.stderr
    return out


def test_two_builds_are_equal_byte_by_byte(release: Path, tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        done = built(tmp_path, TZ="Asia/Tokyo", PYTHONHASHSEED="7", SOURCE_DATE_EPOCH="1")
    finally:
        os.umask(old)
    assert done.returncode == 0, done.stderr
    names = {path.name for path in release.iterdir()}
    assert names == {
        f"aerobee-{VERSION}.tar.gz",
        f"aerobee-{VERSION}-py3-none-any.whl",
        f"aerobee-chart-{VERSION}.tgz",
        "RELEASE.md",
        "SHA256SUMS",
    }
    for name in sorted(names):
        assert (release / name).read_bytes() == (tmp_path / name).read_bytes(), name


def test_the_sums_are_those_of_the_files(release: Path) -> None:
    command = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    done = subprocess.run(command, cwd=release, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == len(list(release.iterdir())) - 1


def test_the_chart_package_has_every_file_of_the_chart(release: Path) -> None:
    chart = ROOT / build.CHART
    with tarfile.open(release / f"aerobee-chart-{VERSION}.tgz") as archive:
        names = archive.getnames()
        read = {name: archive.extractfile(name) for name in names}
        assert names[0] == "aerobee/Chart.yaml", "Helm reads its description first"
        committed = subprocess.run(
            ["git", "ls-files"], cwd=chart, capture_output=True, text=True, check=True
        ).stdout.split()
        assert sorted(names) == sorted(f"aerobee/{one}" for one in committed)
        assert all(content is not None and content.read() for content in read.values())


def test_the_notes_are_the_section_of_the_version(release: Path) -> None:
    text = (release / "RELEASE.md").read_text("utf-8")
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert text.endswith(build.section(changelog, VERSION))
    assert f"`aerobee-{VERSION}.tar.gz`" in text
    assert re.search(r"Built from commit [0-9a-f]{40}\.", text)


def test_a_version_without_a_section_has_no_release() -> None:
    text = "# Changelog\n\n## 0.2.0\n\nNew.\n\n## 0.1.0 (not released)\n\nOld.\n"
    assert build.section(text, "0.2.0") == "## 0.2.0\n\nNew.\n"
    assert build.section(text, "0.1.0").endswith("Old.\n")
    with pytest.raises(ValueError, match=r"no section of 0\.1: write one, ## 0\.1"):
        build.section(text, "0.1")


def test_what_cannot_be_built_here_is_said_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUILDAH", "no-such-buildah")
    assert list(build.build(tmp_path, ["image"])) == ["image: no-such-buildah is not installed"]
    assert {path.name for path in tmp_path.iterdir()} == {"RELEASE.md", "SHA256SUMS"}


@pytest.mark.skipif(os.geteuid() != 0, reason="building an image needs root")
def test_an_image_whose_base_does_not_come_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where no registry is reached."""
    monkeypatch.setenv("BUILDAH", "sh -c 'echo first >&2; echo no such host >&2; exit 125'")
    (said,) = build.build(tmp_path, ["image"])
    assert re.fullmatch(r"image: python:\S+ does not come: no such host", said)
    assert "SHA256SUMS" in {path.name for path in tmp_path.iterdir()}


def test_an_archive_written_again_has_one_time_and_no_owner(tmp_path: Path) -> None:
    place = tmp_path / "image.tar"
    (tmp_path / "b").write_text("two")
    (tmp_path / "a").write_text("one")
    with tarfile.open(place, "w") as archive:
        for name in ("b", "a"):
            archive.add(tmp_path / name, name)
    build.again_in_order(place, 1_700_000_000)
    with tarfile.open(place) as archive:
        assert archive.getnames() == ["a", "b"]
        assert {(one.mtime, one.uid, one.uname) for one in archive} == {(1_700_000_000, 0, "")}
        content = archive.extractfile("a")
        assert content is not None
        assert content.read() == b"one"


def asked_for(one: Distribution, found: dict[str, Distribution]) -> None:
    """Add what a distribution asks for without extras, and what those ask for."""
    for line in one.requires or ():
        wanted = Requirement(line)
        for extra in ("", *wanted.extras):
            if wanted.marker is None or wanted.marker.evaluate({"extra": extra}):
                break
        else:
            continue
        name = canonicalize_name(wanted.name)
        if name not in found:
            found[name] = distribution(name)
            asked_for(found[name], found)


def tops(one: Distribution) -> Iterator[Path]:
    """What a distribution has put beside the packages of others."""
    names = {
        path.parts[0] for path in one.files or () if path.parts[0] not in ("..", "__pycache__")
    }
    return (Path(str(one.locate_file(name))) for name in sorted(names))


def test_the_wheel_works_with_the_libraries_that_it_asks_for(release: Path, tmp_path: Path) -> None:
    """Those of this environment, linked one by one: a library too few shows."""
    venv.create(tmp_path / "environment", symlinks=True)
    programs = tmp_path / "environment" / "bin"
    (wheel,) = release.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "--python", str(programs / "python"), "--quiet"]
    install = [*pip, "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(install, check=True, timeout=60)
    (site,) = tmp_path.glob("environment/lib/python*/site-packages")
    (info,) = site.glob("aerobee-*.dist-info")
    found: dict[str, Distribution] = {}
    asked_for(Distribution.at(info), found)
    assert "trio" in found
    assert "pytest" not in found
    for one in found.values():
        for path in tops(one):
            (site / path.name).symlink_to(path)
    place = tmp_path / "place"
    place.mkdir()
    ports = free_block()
    given = trial.Ports(ports.listen, ports.vip, namesrv=free_port(), console=free_port())
    version = trial.use(programs, place, given)
    assert version == f"aerobee {VERSION}"
