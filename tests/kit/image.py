"""The container image, built in earnest: the Dockerfile as it stands, by Debian's buildah, as root.

Its base is a Debian with Python that debootstrap makes once, under the name that the Dockerfile
asks for, so nothing is pulled. All that is kept lies in `.cache/image`. Where a program, root or
the network is missing the test is skipped with the reason.
"""

from __future__ import annotations

import fcntl
import functools
import json
import os
import re
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "image"
BASE = CACHE / "base.tar.gz"
RELEASE = "trixie"
"""The Debian whose Python is that of the base image."""
PACKAGES = ("ca-certificates", "python3", "python3-pip", "python3-venv")
PACKAGE_OF = {"ip": "iproute2", "nsenter": "util-linux", "systemd-nspawn": "systemd-container"}
"""Where a program is in a Debian package of another name."""
BASE_WITHIN_S = 1_200.0
BUILD_WITHIN_S = 600.0
RUN_WITHIN_S = 60.0
# Registries are reached through what this machine trusts.
CERTIFICATES = Path("/etc/ssl/certs")
REVISION = "0123456789abcdef0123456789abcdef01234567"
PATH = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"


class Image:
    """A built image and the configuration that it carries."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.config: dict[str, Any] = json.loads(buildah("inspect", "--type", "image", name))[
            "Docker"
        ]["config"]


def need(*programs: str) -> None:
    """Skip the test, saying why, unless we are root and these programs are here."""
    if os.geteuid() != 0:
        _missing("building and running an image here needs root")
    for program in programs:
        if shutil.which(program) is None:
            package = PACKAGE_OF.get(program, program)
            _missing(f"{program} is not installed (apt-get install {package})")


def _missing(reason: str) -> NoReturn:
    pytest.skip(f"image: {reason}")


@functools.cache
def build() -> tuple[Image, Image]:
    """The base image and ours above it; both are kept, and built again where sources changed."""
    need("buildah")
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
        (base,) = set(re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE))
        if not _exists(base):
            _import_base(base)
        options = ["--layers", "--pull-never", "--isolation", "chroot", "--format", "docker"]
        trusted = ["--volume", f"{CERTIFICATES}:{CERTIFICATES}:ro"]
        revision = ["--build-arg", f"REVISION={REVISION}"]
        buildah("bud", *options, *trusted, *revision, "--tag", "aerobee:test", str(ROOT))
    return Image(base), Image("aerobee:test")


def _import_base(name: str) -> None:
    """The base image from its root directory."""
    if not BASE.exists():
        _make_base()
    working = buildah("from", "scratch")
    buildah("add", "--quiet", working, str(BASE), "/")
    buildah("config", "--env", f"PATH={PATH}", "--env", "LANG=C.UTF-8", "--cmd", "python3", working)
    buildah("commit", "--quiet", "--rm", working, f"docker.io/library/{name}")


def _make_base() -> None:
    """A root directory as the official image has it: `python` and `pip` on the PATH, and no more
    than that which tells Debian's Python from another.
    """
    need("debootstrap")
    root = CACHE / "base"
    shutil.rmtree(root, ignore_errors=True)
    _run(
        "debootstrap",
        "--variant=minbase",
        f"--include={','.join(PACKAGES)}",
        RELEASE,
        str(root),
        within_s=BASE_WITHIN_S,
    )
    for name, program in (("python", "python3"), ("python3", "python3"), ("pip", "pip3")):
        (root / "usr/local/bin" / name).symlink_to(f"/usr/bin/{program}")
    for marker in root.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
        marker.unlink()
    for left in [*root.glob("var/cache/apt/archives/*.deb"), *root.glob("var/lib/apt/lists/*_*")]:
        left.unlink()
    half = BASE.with_suffix(".part")
    _run("tar", "-C", str(root), "-czf", str(half), ".")
    half.rename(BASE)
    shutil.rmtree(root)


def _exists(name: str) -> bool:
    names = json.loads(buildah("images", "--json") or "[]")
    return any(str(one).endswith(f"/{name}") for image in names for one in image["names"] or ())


def buildah(*arguments: str) -> str:
    """Run buildah on a storage of our own; what it prints. Raises: AssertionError that shows it."""
    places = ["--root", str(CACHE / "storage"), "--runroot", str(CACHE / "run")]
    return _run("buildah", *places, *arguments, within_s=BUILD_WITHIN_S)


def _run(*command: str, within_s: float = RUN_WITHIN_S) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=within_s, check=False)
    assert done.returncode == 0, f"{command}:\n{done.stdout[-2_000:]}\n{done.stderr[-4_000:]}"
    return done.stdout.strip()


@contextmanager
def mounted(image: Image) -> Iterator[Path]:
    """The tree of an image."""
    working = buildah("from", "--pull-never", image.name)
    try:
        yield Path(buildah("mount", working))
    finally:
        buildah("rm", working)


def tree_bytes(root: Path) -> int:
    """The sizes of all files below, links not followed."""
    places = (Path(folder) / name for folder, _, names in os.walk(root) for name in names)
    return sum(path.lstat().st_size for path in places)
