"""Debian's Chromium, driven by playwright, and axe-core, which judges how accessible a page is.

AEROBEE_TEST_CHROMIUM names a Chromium; else the one on the PATH is taken. With AEROBEE_CI a test
run of root installs it once by apt-get; otherwise the test is skipped with the reason. axe-core
comes from npm once, as pinned here, into `.cache/axe`.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import tarfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.kit.java import CACHE, run_tool, unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

INSTALL = ("apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium")
UPDATE = ("apt-get", "update", "-qq")
INSTALL_WITHIN_S = 900.0
NAMES = ("chromium", "chromium-browser", "google-chrome")
WINDOW = (
    "PreloadTopChromeWebUI",
    "SpareRendererForSitePerProcess",
    "WebUIOmniboxAimPopup",
    "WebUIOmniboxFullPopup",
    "WebUIOmniboxPopup",
)
"""Pages of Chromium itself, which each new window loads for its address bar though nobody sees it:
half of what a test in a browser costs."""
OF_PLAYWRIGHT = (
    "AimEnabled",
    "AvoidCorsURLLoaderRestartOnRedirect",
    "AvoidUnnecessaryBeforeUnloadCheckSync",
    "DestroyProfileOnBrowserClose",
    "HttpsFirstBalancedModeAutoEnable",
    "HttpsUpgrades",
    "LensOverlay",
    "MediaRouter",
    "NetworkTimeServiceQuerying",
    "OptimizationHints",
    "PaintHolding",
    "PreconnectToSearch",
    "ThirdPartyStoragePartitioning",
)
"""What playwright turns off; of two such switches Chromium hears the last, and that is ours."""
SWITCHES = (
    # Its sandbox needs rights that root in a container does not have; only our pages are loaded.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    # Better code does not pay for pages of a second.
    "--js-flags=--no-opt --no-maglev",
    f"--disable-features={','.join((*WINDOW, *OF_PLAYWRIGHT))}",
)
AXE = "axe-core@4.14.1"
AXE_SHA256 = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
AXE_WITHIN_S = 120.0
JUDGED = """axe.run(document, {resultTypes: ['violations']}).then(({violations}) =>
    violations.filter(rule => ['serious', 'critical'].includes(rule.impact)).flatMap(rule =>
        rule.nodes.map(node => `${rule.id}: ${node.target} ${node.html.slice(0, 160)}`)))"""
"""All that it saw is a hundred times as much as what is wrong."""


@functools.cache
def chromium() -> str:
    """The path of a Chromium; skips where there is none."""
    given = os.environ.get("AEROBEE_TEST_CHROMIUM")
    if given:
        if not os.access(given, os.X_OK):
            unavailable(f"AEROBEE_TEST_CHROMIUM: {given} cannot be run")
        return given
    if (found := _on_path()) is not None:
        return found
    if not os.environ.get("AEROBEE_CI") or os.geteuid() != 0 or shutil.which("apt-get") is None:
        unavailable("chromium is not installed (apt-get install chromium)")
    with _alone("chromium"):
        if _on_path() is None:
            _install()
    found = _on_path()
    if found is None:
        unavailable("apt-get has installed no chromium")
    return found


def _on_path() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name)) is not None), None)


def _install() -> None:
    """By the lists that are there; newer ones where those are too old."""
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    first = subprocess.run(
        INSTALL, capture_output=True, env=environment, timeout=INSTALL_WITHIN_S, check=False
    )
    if first.returncode:
        run_tool(UPDATE, INSTALL_WITHIN_S)
        run_tool(["env", "DEBIAN_FRONTEND=noninteractive", *INSTALL], INSTALL_WITHIN_S)


@contextmanager
def _alone(name: str) -> Iterator[None]:
    """Two runs do not fetch the same thing at the same time."""
    folder = CACHE.with_name(name)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser without a window."""
    path = chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=list(SWITCHES))
        try:
            yield running
        finally:
            running.close()


# ── axe-core ──


@functools.cache
def axe() -> str:
    """The script of axe-core; skips where it cannot be fetched."""
    script = CACHE.with_name("axe") / "axe.min.js"
    with _alone("axe"):
        if not script.exists():
            _fetch_axe(script)
    content = script.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    assert found == AXE_SHA256, f"{script} is not that of {AXE}: {found}"
    return content.decode()


def _fetch_axe(script: Path) -> None:
    if shutil.which("npm") is None:
        unavailable("npm is not installed, and axe-core is not there yet")
    folder = script.parent
    run_tool(["npm", "pack", "--silent", AXE], AXE_WITHIN_S, at=folder)
    (packed,) = folder.glob("axe-core-*.tgz")
    with tarfile.open(packed) as archive:
        file = archive.extractfile("package/axe.min.js")
        assert file is not None
        half = script.with_suffix(".part")
        half.write_bytes(file.read())
    packed.unlink()
    half.rename(script)


def hindrances(page: Page) -> list[str]:
    """What axe-core finds serious on a page, a line for each rule and element."""
    # By the debugging protocol: the policy of our pages lets no foreign script in.
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(axe())
    found: list[str] = page.evaluate(JUDGED)
    return found
