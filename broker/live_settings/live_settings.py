"""The settings of a running broker, and the only code that changes them.

A change is checked, written to the overlay file, then applied: an acknowledged change survives a
kill, and a refused one has changed nothing. All parts of the broker hold the same objects
(`BrokerConfig.store` and so on) and read a setting when they need it; code that derived something
from a setting does so again in `when_changed`. Source: configuration §4.2.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import structlog
import trio

from aerobee.broker.config.files.entries import COMMAND_LINE, ConfigurationError
from aerobee.broker.config.live import Difference, changed, clashes, differences, odd, with_live
from aerobee.broker.config.report import beyond_disk
from aerobee.broker.config.schema import SCHEMA
from aerobee.broker.errors import Refusal
from aerobee.broker.live_settings.overlay_file import OverlayFile
from aerobee.broker.process.host import disk_bytes
from aerobee.broker.saved.data_version import bumped, first_version
from aerobee.remoting.server.turns import in_slices
from aerobee.remoting.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from aerobee.broker.config.layers import Setting
    from aerobee.broker.config.model import BrokerConfig
    from aerobee.store.clock import Clock
    from aerobee.store.files.disk import Disk

SIGNAL = "SIGHUP"

log = structlog.stdlib.get_logger(__name__)


class LiveSettings:
    """The current settings. Changes run one at a time."""

    def __init__(self, config: BrokerConfig, *, disk: Disk, clock: Clock) -> None:
        self.config = config
        self._disk = disk
        self._clock = clock
        self._one_change = trio.Lock()
        path = config.broker.config_overlay_path
        root = Path(config.store.store_path_root_dir).expanduser()
        self._overlay = OverlayFile(Path(path or root / "config/aerobee-overlay.yaml"), disk)
        self.version = first_version(clock.now_ms())
        """The data version, incremented by every change."""
        self.when_changed: list[Callable[[], Iterator[None]]] = []
        self.when_asked: list[Callable[[], None]] = []
        """Called when SIGHUP asks to read everything again; what is read besides settings."""

    async def change(self, settings: Mapping[str, Setting], by: str) -> str:
        """Change these settings, by canonical name, now and for later starts.

        Returns warnings as text. `by`: the address of the administrator. Raises: Refusal.
        """
        async with self._one_change:
            self._check_allowed(settings)
            at = str(self._overlay.path)
            placed = {name: entry._replace(location=at) for name, entry in settings.items()}
            wanted = changed(self.config, placed)
            clash = clashes(self.config, wanted)
            clash += await self._disk.in_thread(self._beyond_disk, wanted)
            if clash:
                raise Refusal(ResponseCode.INVALID_PARAMETER, "; ".join(clash))
            try:
                await self._disk.in_thread(self._overlay.add, placed)
            except OSError as error:
                reason = f"{self._overlay.path}: {error.strerror or error}"
                log.error("config.not_saved", path=at, error=str(error))
                raise Refusal(
                    ResponseCode.SYSTEM_ERROR,
                    f"nothing was changed, it could not be saved: {reason}",
                ) from error
            remarks = odd(self.config, wanted)
            await self._take_over(wanted, by)
        for remark in remarks:
            log.warning("config.warning", text=remark)
        return "; ".join(remarks)

    def _check_allowed(self, settings: Mapping[str, Setting]) -> None:
        if not self.config.broker.allow_runtime_config:
            raise Refusal(
                ResponseCode.NO_PERMISSION, "allowRuntimeConfig is false: settings do not change"
            )
        names = [SCHEMA[name].name for name in settings]
        fixed = [name for name in names if self._is_fixed(name)]
        if fixed:
            raise Refusal(
                ResponseCode.NO_PERMISSION,
                f"{', '.join(fixed)}: given on the command line, which wins over changes while"
                " running; restart without it",
            )

    def _is_fixed(self, name: str) -> bool:
        return self.config.sources.get(name, "").startswith(COMMAND_LINE)

    async def reload(self, reread: Callable[[], BrokerConfig]) -> None:
        """Apply the live settings of all sources, and log the settings that need a restart.

        `reread` reads all sources again, in a thread. On any problem nothing changes, and the
        problem is logged.
        """
        for again in self.when_asked:
            again()
        async with self._one_change:
            try:
                await self._disk.in_thread(self._overlay.check)
                read = await self._disk.in_thread(reread)
            except ConfigurationError as error:
                self._refuse(error.problems)
                return
            old, new = str(self._overlay.path), read.broker.config_overlay_path
            if new and Path(new) != self._overlay.path:
                text = (
                    f"{new} is read from the next start on; what was changed until now is in {old}"
                )
                self._refuse([f"configOverlayPath: {text}: move that file, and restart"])
                return
            wanted = with_live(self.config, read)
            beyond = await self._disk.in_thread(self._beyond_disk, wanted)
            if beyond:
                self._refuse(beyond)
                return
            clash = clashes(self.config, wanted)
            if clash:
                self._refuse([f"{key} (it counts only with a restart)" for key in clash])
                return
            left = [
                difference
                for difference in differences(self.config, read)
                if not difference.key.declaration.live
            ]
            changes = await self._take_over(wanted, SIGNAL)
        for change in left:
            log.warning(
                "config.needs_restart", key=change.key.name, value=change.before, read=change.after
            )
        for warning in read.warnings:
            log.warning("config.warning", text=warning)
        log.info("config.reloaded", changed=len(changes), need_restart=len(left))

    def _beyond_disk(self, wanted: BrokerConfig) -> list[str]:
        """New limits that keep more free than the disk has: all messages would go. Blocking."""
        try:
            total = disk_bytes(wanted, self._disk)
        except OSError:
            return []
        return beyond_disk(
            wanted, (difference.key for difference in differences(self.config, wanted)), total
        )

    def _refuse(self, problems: Sequence[str]) -> None:
        for problem in problems:
            log.error("config.reload_refused", reason=problem)

    async def _take_over(self, wanted: BrokerConfig, by: str) -> list[Difference]:
        """Apply the values of `wanted`; returns the differences from the values before."""
        changes = list(differences(self.config, wanted))
        for difference in changes:
            assert difference.key.declaration.live, difference.key.name
            part, values = (
                getattr(self.config, difference.key.part),
                getattr(wanted, difference.key.part),
            )
            for name in filter(None, (difference.key.attribute, difference.key.declaration.free)):
                # The dataclass is frozen for all other code, which holds this same object.
                object.__setattr__(part, name, getattr(values, name))
            log.info(
                "config.changed",
                key=difference.key.name,
                value=difference.after,
                before=difference.before,
                by=by,
            )
        for name in ("sources", "unknown", "without_effect", "warnings"):
            object.__setattr__(self.config, name, getattr(wanted, name))
        if changes:
            self.version = bumped(self.version, self._clock.now_ms())
            for take in self.when_changed:
                await in_slices(take())
        return changes
