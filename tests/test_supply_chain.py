"""What the image is built of: the lock files against the project, the bill, known weaknesses.

S18.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deploy.image import sbom
from tests.console_browser.test_vendor import PINNED

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).parents[1]
LOCKS = ("requirements.lock", "build.lock")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ENTRY = re.compile(
    r"^(\S+)==(\S+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE
)
ASKED_BY_US = re.compile(r"^(\S+?)==[^#]*?# via(?:\n    #  )? (?:aerobee|-r deploy)", re.MULTILINE)
AUDIT_WITHIN_S = 120.0


def read(name: str) -> str:
    return (ROOT / "deploy" / "image" / name).read_text(encoding="utf-8")


def wanted(lock: str) -> list[Requirement]:
    """What the project asks for, of what a lock file is for."""
    if lock == "build.lock":
        return [Requirement(one) for one in PROJECT["build-system"]["requires"]]
    project = PROJECT["project"]
    in_image = [*project["dependencies"], *project["optional-dependencies"]["grpc"]]
    return [Requirement(one) for one in in_image]


def names(requirements: Iterable[Requirement]) -> set[str]:
    return {canonicalize_name(one.name) for one in requirements}


@pytest.mark.parametrize("lock", LOCKS)
def test_s18_the_lock_file_is_what_the_project_asks_for(lock: str) -> None:
    pinned = sbom.locked(read(lock))
    for one in wanted(lock):
        version = pinned.get(canonicalize_name(one.name))
        assert version, f"{lock} lacks {one}: make lock"
        assert one.specifier.contains(version), f"{lock}: {one} is {version}: make lock"
    assert set(ASKED_BY_US.findall(read(lock))) == names(wanted(lock))


@pytest.mark.parametrize("lock", LOCKS)
def test_s18_every_package_has_hashes_and_no_place_to_come_from(lock: str) -> None:
    text = read(lock)
    assert len(ENTRY.findall(text)) == text.count("==") == len(sbom.locked(text))
    assert "://" not in text
    assert "index" not in text


def test_s18_the_image_installs_by_hash_alone() -> None:
    steps = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    installs = re.findall(r"pip --python \S+ install [^&\n]+", steps)
    assert len(installs) == 3
    for one in installs:
        assert "--require-hashes" in one or ("--no-index" in one and "--no-deps" in one), one


def test_the_build_asks_for_what_pyproject_asks_for() -> None:
    lines = [line for line in read("build.in").splitlines() if not line.startswith("#")]
    assert lines == PROJECT["build-system"]["requires"]


def test_the_image_has_the_version_of_the_project() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert f'image.version="{PROJECT["project"]["version"]}"' in text


def test_s18_the_bill_names_version_and_licence_of_everything() -> None:
    found = {name: distribution(name) for name in ("aerobee", "trio", "click", "msgspec")}
    bill = json.loads(json.dumps(sbom.bill(found)))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    subject = bill["metadata"]["component"]
    assert subject["licenses"] == [{"expression": "Apache-2.0"}]
    listed: list[dict[str, Any]] = bill["components"]
    names = [one["name"] for one in listed]
    assert names == ["click", "msgspec", "trio", "htmx.org", "uplot"]
    for one in listed[:3]:
        assert one["purl"] == f"pkg:pypi/{one['name']}@{found[one['name']].version}"
        assert one["licenses"]
    assert bill == json.loads(json.dumps(sbom.bill(found)))


def test_s18_the_bill_names_the_scripts_that_browsers_get() -> None:
    listed = sbom.vendored(sbom.VENDORED)
    assert [(one["purl"], one["licenses"][0]["expression"]) for one in listed] == [
        ("pkg:npm/htmx.org@4.0.1", "0BSD"),
        ("pkg:npm/uplot@1.6.32", "MIT"),
    ]
    files = {
        file["name"]: file["hashes"][0]["content"] for one in listed for file in one["components"]
    }
    assert files == {name: PINNED[name][1] for name in PINNED if not name.endswith(".LICENSE")}
    kept = {path.name for path in sbom.VENDORED.iterdir() if path.suffix in (".js", ".css")}
    assert files.keys() == kept


def test_s18_a_bill_is_not_made_of_other_packages_than_the_locked(tmp_path: Path) -> None:
    script = ROOT / "deploy" / "image" / "sbom.py"
    out = tmp_path / "sbom.json"
    done = subprocess.run(
        [sys.executable, str(script), str(out)], capture_output=True, text=True, check=False
    )
    # The environment of the tests has more than the image.
    assert done.returncode == 1
    assert re.search(r"pytest: installed \S+, locked no", done.stderr)
    assert not out.exists()


@pytest.mark.image
def test_s18_nothing_in_the_image_has_a_known_weakness() -> None:
    program = shutil.which("pip-audit", path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip("pip-audit is not installed: make audit installs it")
    files = [word for lock in LOCKS for word in ("-r", str(ROOT / "deploy" / "image" / lock))]
    done = subprocess.run(
        [program, "--strict", "--disable-pip", *files],
        capture_output=True,
        text=True,
        timeout=AUDIT_WITHIN_S,
        check=False,
    )
    if "ConnectionError" in done.stderr or "not found on PyPI" in done.stderr:
        pytest.skip(f"the advisories cannot be reached: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stdout + done.stderr
