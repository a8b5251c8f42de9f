"""Requests about settings: 25 and 26 of the broker, 318 and 319 of its name server.

Source: admin §4.3 (AdminBrokerProcessor), nameserver §4.1 (DefaultRequestProcessor).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from aerobee.broker.config.report import as_properties, namesrv_properties
from aerobee.broker.errors import Refusal
from aerobee.broker.live_settings.asked import NAMESRV, settings_asked
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.headers.admin import GetBrokerConfigResponse

if TYPE_CHECKING:
    from aerobee.broker.live_settings.live_settings import LiveSettings
    from aerobee.remoting.server.caller import Caller
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.headers import admin, namesrv

log = structlog.stdlib.get_logger(__name__)


class SettingsProcessor:
    """Handles the codes 25, 26, 318 and 319."""

    def __init__(self, live: LiveSettings) -> None:
        self._live = live
        self._answer = self._all_settings()
        self._answered = live.version

    async def change(
        self, header: admin.UpdateBrokerConfig, command: Command, connection: Caller
    ) -> Answer:
        """UPDATE_BROKER_CONFIG: changes all settings of the request, or none."""
        return await self._change(command, connection, "")

    async def change_namesrv(
        self, header: namesrv.UpdateNamesrvConfig, command: Command, connection: Caller
    ) -> Answer:
        """UPDATE_NAMESRV_CONFIG: as 25, for the settings of the name server."""
        return await self._change(command, connection, NAMESRV)

    async def _change(self, command: Command, connection: Caller, part: str) -> Answer:
        by = str(connection.address)
        try:
            remark = await self._live.change(settings_asked(bytes(command.body), part=part), by)
        except Refusal as refused:
            log.warning(
                "config.change_refused", address=by, code=refused.code, reason=refused.remark
            )
            raise
        return Answer(remark=remark or None)

    def settings(
        self, header: admin.GetBrokerConfig, command: Command, connection: Caller
    ) -> Answer:
        """GET_BROKER_CONFIG: the current values."""
        if self._answered != self._live.version:
            self._answer, self._answered = self._all_settings(), self._live.version
        return self._answer

    def _all_settings(self) -> Answer:
        version = self._live.version.to_bytes().decode()
        body = as_properties(self._live.config).encode()
        return Answer(header=GetBrokerConfigResponse(version=version), body=body)

    def namesrv_settings(
        self, header: namesrv.GetNamesrvConfig, command: Command, connection: Caller
    ) -> Answer:
        """GET_NAMESRV_CONFIG: the current values of the name server."""
        return Answer(body=namesrv_properties(self._live.config).encode())
