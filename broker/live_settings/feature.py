"""Settings of the running broker: reading and changing them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.core.feature import Feature
from aerobee.broker.live_settings.live_settings import LiveSettings
from aerobee.broker.live_settings.settings_processor import SettingsProcessor
from aerobee.remoting.server.routes import Route
from aerobee.remoting.wire.headers import admin, namesrv

if TYPE_CHECKING:
    from aerobee.broker.core.core import Core


class LiveSettingsFeature(Feature):
    """The requests about settings. `namesrv_routes` are served on the name server's port."""

    def __init__(self, core: Core) -> None:
        self.live = LiveSettings(core.config, disk=core.disk, clock=core.clock)
        requests = SettingsProcessor(self.live)
        self.routes = (
            Route(admin.GetBrokerConfig, requests.settings, "admin"),
            Route(admin.UpdateBrokerConfig, requests.change, "admin"),
        )
        self.namesrv_routes = (
            Route(namesrv.GetNamesrvConfig, requests.namesrv_settings, "admin"),
            Route(namesrv.UpdateNamesrvConfig, requests.change_namesrv, "admin"),
        )
