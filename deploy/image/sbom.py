"""The software bill of materials of an installed Aerobee, as CycloneDX JSON.

    python deploy/image/sbom.py FILE

It lists the distributions of the interpreter that runs it, and the scripts of the console. It
refuses an environment that is not what `requirements.lock` beside it says: a package too many, one
too few, another version.
Standard library only.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import uuid
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from importlib.metadata import Distribution, PackageMetadata

LOCK = Path(__file__).with_name("requirements.lock")
OURS = "aerobee"
VENDORED = Path(__file__).parents[2] / "broker/console/pages/static/vendor"
"""Scripts of others that browsers get, and a table of them in README.md."""
ROW = re.compile(r"^\| `([^`]+)` \| `([^`]+)` ([^,]+), [^|]+ \| (\S+) \|$", re.MULTILINE)
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)


def locked(text: str) -> dict[str, str]:
    """Version by normalized name, of a lock file."""
    return {normalized(name): version for name, version in PIN.findall(text)}


def installed() -> dict[str, Distribution]:
    """The distributions of this interpreter, by normalized name."""
    return {normalized(one.name): one for one in distributions()}


def licenses(metadata: PackageMetadata) -> list[dict[str, Any]]:
    """The licences as CycloneDX has them: an SPDX expression, else the words of older fields."""
    if "License-Expression" in metadata:
        return [{"expression": metadata["License-Expression"]}]
    words = [metadata["License"]] if "License" in metadata else []
    if not words or "\n" in words[0]:
        found = [one for one in metadata.get_all("Classifier") or () if one.startswith("License")]
        words = [one.rpartition(" :: ")[2] for one in found]
    return [{"license": {"name": one}} for one in words]


def normalized(name: str) -> str:
    """A name as registries compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def component(name: str, found: Distribution) -> dict[str, Any]:
    """One library of the bill."""
    purl = f"pkg:pypi/{name}@{found.version}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": found.version,
        "purl": purl,
        "licenses": licenses(found.metadata),
    }


def vendored(folder: Path) -> list[dict[str, Any]]:
    """The libraries for browsers that Aerobee brings with it, with the hashes of their files."""
    libraries: dict[str, dict[str, Any]] = {}
    for file, name, version, licence in ROW.findall((folder / "README.md").read_text("utf-8")):
        purl = f"pkg:npm/{name}@{version}"
        library = libraries.setdefault(
            purl,
            {
                "type": "library",
                "bom-ref": purl,
                "name": name,
                "version": version,
                "purl": purl,
                "licenses": [{"expression": licence}],
                "components": [],
            },
        )
        content = hashlib.sha256((folder / file).read_bytes()).hexdigest()
        hashes = [{"alg": "SHA-256", "content": content}]
        library["components"].append({"type": "file", "name": file, "hashes": hashes})
    return [libraries[purl] for purl in sorted(libraries)]


def bill(found: Mapping[str, Distribution]) -> dict[str, Any]:
    """The document: Aerobee as the subject, everything else as its components."""
    subject = component(OURS, found[OURS])
    others = [component(name, one) for name, one in sorted(found.items()) if name != OURS]
    others += vendored(VENDORED)
    # Of what it lists, so that the same packages give the same document.
    named = " ".join([subject["purl"], *(one["purl"] for one in others)])
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, named)}",
        "version": 1,
        "metadata": {"component": {**subject, "type": "application"}},
        "components": others,
        "dependencies": [
            {"ref": subject["purl"], "dependsOn": [one["purl"] for one in others]},
        ],
    }


def differences(found: Mapping[str, str], lock: Mapping[str, str]) -> Iterable[str]:
    """The differences between an environment and its lock file, in both directions."""
    for name in sorted(found.keys() | lock.keys()):
        if found.get(name) != lock.get(name):
            yield f"{name}: installed {found.get(name, 'no')}, locked {lock.get(name, 'no')}"


def main(arguments: list[str]) -> int:
    """The exit code: 1 when the environment is not what the lock file says."""
    found = installed()
    versions = {name: one.version for name, one in found.items() if name != OURS}
    wrong = list(differences(versions, locked(LOCK.read_text(encoding="utf-8"))))
    if wrong:
        sys.stderr.write("the environment is not what the lock file says\n" + "\n".join(wrong))
        return 1
    Path(arguments[0]).write_text(json.dumps(bill(found), indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
