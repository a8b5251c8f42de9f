"""Everything that a release consists of, built from the commit that is checked out.

    python -m deploy.release.build [--only PART,…] [--out DIRECTORY]

| part | file |
|---|---|
| `sdist` | `aerobee-V.tar.gz` |
| `wheel` | `aerobee-V-py3-none-any.whl`, built from the sdist |
| `compiled` | one wheel for each CPython 3.11 to 3.14 that is here with its headers |
| `chart` | `aerobee-chart-V.tgz` |
| `image` | `aerobee-image-V.tar`, an OCI archive; needs buildah and root |
| `sbom` | `aerobee-V.sbom.cdx.json`: what the image is built of |

`RELEASE.md` (the notes, from CHANGELOG.md) and `SHA256SUMS` are always made. A part that cannot be
built on this machine is left out, and the end says so. A change that is not committed is not in it.
Two builds of a commit are equal byte by byte: every time in them is the commit's, and nothing
depends on the directory, the hour or the machine's umask. Of the image that holds with the same
base image.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
OUT = ROOT / "dist" / "release"
CHART = Path("deploy", "helm", "aerobee")
INTERPRETERS = ("python3.11", "python3.12", "python3.13", "python3.14")
SILENT: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
NO_COMPILED = "no compiled build: "
"""How `deploy.compiled.build` begins when the machine lacks something."""
EXACT = {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
"""Of the environment, what could show in a file that is built."""


class Release(NamedTuple):
    """The content of a release, and where it goes."""

    tree: Path
    """The files of the commit, and nothing else."""
    out: Path
    version: str
    commit: str
    epoch: int
    """Seconds: when the commit was made, the only time in what is built."""

    def run(self, *command: str | Path) -> None:
        """Run a program in the tree; it may complain, and what else it says nobody reads.

        Raises: CalledProcessError.
        """
        quiet = subprocess.DEVNULL
        subprocess.run(command, cwd=self.tree, env=self.environment(), stdout=quiet, check=True)

    def fetch(self, *command: str | Path) -> None:
        """Run a program in the tree that brings what others have made. Raises: LeftOut."""
        done = self.ended(*command)
        if done.returncode:
            said = done.stderr.strip().rpartition("\n")[2]
            raise LeftOut(f"{command[-1]} does not come: {said}")

    def ended(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        """The end of a program in the tree, with its complaints."""
        return subprocess.run(
            command,
            cwd=self.tree,
            env=self.environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    def environment(self) -> dict[str, str]:
        """That of a program which builds."""
        return os.environ | EXACT | {"SOURCE_DATE_EPOCH": str(self.epoch)}


class LeftOut(Exception):
    """This machine cannot build a part; the text says what it lacks."""


def sdist(release: Release) -> None:
    """The sources, as pip takes them."""
    hatchling = (sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", release.out)
    release.run(*hatchling)


def wheel(release: Release) -> None:
    """The pure wheel, of the sdist: so whoever builds from that gets this one."""
    with tempfile.TemporaryDirectory() as place:
        archive = release.out / f"aerobee-{release.version}.tar.gz"
        if not archive.exists():
            sdist(release._replace(out=Path(place)))
            archive = Path(place, archive.name)
        with tarfile.open(archive) as opened:
            opened.extractall(place, filter="data")
        unpacked = release._replace(tree=Path(place, archive.name.removesuffix(".tar.gz")))
        hatchling = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", release.out)
        unpacked.run(*hatchling)


def compiled(release: Release) -> None:
    """A wheel for each interpreter. Raises: LeftOut names those for which there is none."""
    lacking = []
    for name in INTERPRETERS:
        try:
            _compiled_for(name, release)
        except LeftOut as reason:
            lacking.append(f"{name}: {reason}")
    if lacking:
        raise LeftOut("; ".join(lacking))


def _compiled_for(name: str, release: Release) -> None:
    python = sys.executable
    if name != "python{}.{}".format(*sys.version_info):
        found = shutil.which(name)
        # A manager of versions has a command of each name, which fails where its version is not.
        if found is None or subprocess.run((found, "-c", ""), check=False, **SILENT).returncode:
            raise LeftOut("not on this machine")
        place = release.tree / ".cache" / name
        release.run(found, "-m", "venv", place)
        python = str(place / "bin" / "python")
        release.fetch(python, "-m", "pip", "install", "--quiet", ".[compiled,grpc]")
    done = release.ended(python, "-m", "deploy.compiled.build", "--wheel", release.out)
    if done.stderr.startswith(NO_COMPILED):
        raise LeftOut(done.stderr.removeprefix(NO_COMPILED).partition("\n")[0])
    sys.stderr.write(done.stderr)
    done.check_returncode()


def chart(release: Release) -> None:
    """The chart as `helm package` makes it, which has the time of the build in it, however."""
    root = release.tree / CHART
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        # Helm takes its description first.
        for path in sorted(root.rglob("*"), key=lambda one: (one.name != "Chart.yaml", one)):
            if path.is_file():
                entry = tarfile.TarInfo(f"{root.name}/{path.relative_to(root).as_posix()}")
                entry.size, entry.mtime, entry.mode = path.stat().st_size, release.epoch, 0o644
                with path.open("rb") as content:
                    archive.addfile(entry, content)
    zipped = gzip.compress(packed.getvalue(), mtime=release.epoch)
    (release.out / f"aerobee-chart-{release.version}.tgz").write_bytes(zipped)


def image(release: Release) -> None:
    """The container image. BUILDAH may name the program with options, as for another storage."""
    buildah = shlex.split(os.environ.get("BUILDAH", "buildah"))
    if shutil.which(buildah[0]) is None:
        raise LeftOut(f"{buildah[0]} is not installed")
    if os.geteuid() != 0:
        raise LeftOut("building an image needs root")
    for base in base_images((release.tree / "Dockerfile").read_text("utf-8")):
        release.fetch(*buildah, "pull", "--quiet", "--policy", "missing", base)
    name = f"aerobee:{release.version}"
    options = ["--isolation", "chroot", "--format", "oci", "--timestamp", str(release.epoch)]
    options += shlex.split(os.environ.get("BUILDAH_OPTIONS", ""))
    revision = ["--build-arg", f"REVISION={release.commit}"]
    release.run(*buildah, "bud", *options, *revision, "--tag", name, ".")
    archive = release.out / f"aerobee-image-{release.version}.tar"
    release.run(*buildah, "push", "--quiet", name, f"oci-archive:{archive}:{name}")
    again_in_order(archive, release.epoch)


def base_images(dockerfile: str) -> list[str]:
    """The images of others that a Dockerfile begins with."""
    return sorted(set(re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE)))


def again_in_order(archive: Path, epoch: int) -> None:
    """Write a tar again, sorted by name, with one time and no owner: buildah has those of today."""
    half = archive.with_suffix(".part")
    with tarfile.open(archive) as old, tarfile.open(half, "w", format=tarfile.USTAR_FORMAT) as new:
        for entry in sorted(old.getmembers(), key=lambda one: one.name):
            entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = epoch, 0, 0, "", ""
            entry.pax_headers = {}
            new.addfile(entry, old.extractfile(entry) if entry.isfile() else None)
    half.replace(archive)


def sbom(release: Release) -> None:
    """The bill of materials, of the libraries in the versions of the lock file."""
    place = release.tree / ".cache" / "sbom"
    python = place / "bin" / "python"
    release.run(sys.executable, "-m", "venv", "--without-pip", place)
    pip = (sys.executable, "-m", "pip", "--quiet", "--python", python, "install")
    lock = ("--only-binary", ":all:", "--require-hashes", "-r", "deploy/image/requirements.lock")
    release.fetch(*pip, *lock)
    release.run(*pip, "--no-deps", ".")
    target = release.out / f"aerobee-{release.version}.sbom.cdx.json"
    release.run(python, "deploy/image/sbom.py", target)


PARTS: dict[str, Callable[[Release], None]] = {
    "sdist": sdist,
    "wheel": wheel,
    "compiled": compiled,
    "chart": chart,
    "image": image,
    "sbom": sbom,
}


def section(changelog: str, version: str) -> str:
    """The section of the change log about a version, its heading included. Raises: ValueError."""
    sections = re.split(r"(?m)^(?=## )", changelog)[1:]
    for one in sections:
        if re.match(rf"## {re.escape(version)}(?:\s|$)", one):
            return one.rstrip() + "\n"
    raise ValueError(f"CHANGELOG.md has no section of {version}: write one, ## {version}")


def notes(release: Release) -> str:
    """The text of the release: what changed, from which commit, and how to look at the files."""
    changes = section((release.tree / "CHANGELOG.md").read_text("utf-8"), release.version)
    files = "".join(f"- `{path.name}`\n" for path in sorted(release.out.iterdir()))
    return (
        f"# Aerobee {release.version}\n\nBuilt from commit {release.commit}.\n\n"
        f"## Files\n\n{files}\n`sha256sum -c SHA256SUMS` compares them; `make release` builds "
        f"them again, equal byte by byte.\n\n{changes}"
    )


def sums(directory: Path) -> str:
    """Lines for `sha256sum -c`."""
    lines = (
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(directory.iterdir())
    )
    return "".join(lines)


def git(*arguments: str) -> bytes:
    """The output of git. Exits with its words where it fails, as outside a clone."""
    done = subprocess.run(("git", "-C", ROOT, *arguments), capture_output=True, check=False)
    if done.returncode:
        sys.exit(f"a release is built from a commit: {done.stderr.decode().strip()}")
    return done.stdout


def checked_out(tree: Path) -> None:
    """Put the files of the commit there."""
    packed = git("-c", "tar.umask=0022", "archive", "--format=tar", "HEAD")
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(tree, filter="data")


def build(out: Path, parts: list[str]) -> Iterator[str]:
    """Build these parts into an empty directory; yields what was left out, and why."""
    commit = git("rev-parse", "HEAD").decode().strip()
    epoch = int(git("show", "-s", "--format=%ct", "HEAD"))
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="aerobee-release-") as place:
        tree = Path(place)
        checked_out(tree)
        project = tomllib.loads((tree / "pyproject.toml").read_text("utf-8"))["project"]
        release = Release(tree, out, project["version"], commit, epoch)
        for name in parts:
            sys.stderr.write(f"building {name} ...\n")
            try:
                PARTS[name](release)
            except LeftOut as reason:
                yield f"{name}: {reason}"
        (out / "RELEASE.md").write_text(notes(release), "utf-8")
    (out / "SHA256SUMS").write_text(sums(out), "utf-8")


def main() -> None:
    """Build what the arguments name, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default=",".join(PARTS), help="parts, with commas between")
    parser.add_argument("--out", type=Path, default=OUT, help="where to; emptied first")
    arguments = parser.parse_args()
    parts = arguments.only.split(",")
    if unknown := set(parts) - PARTS.keys():
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    out = arguments.out.resolve()
    left_out = list(build(out, parts))
    sys.stdout.write((out / "SHA256SUMS").read_text("utf-8"))
    for line in left_out:
        sys.stdout.write(f"left out: {line}\n")
    if git("status", "--porcelain"):
        sys.stdout.write("what is not committed is not in it\n")


if __name__ == "__main__":
    main()
