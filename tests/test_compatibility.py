"""`docs/compatibility.md` says of every request whether it is served: held against the routes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from aerobee.remoting.wire.codes import RequestCode
from tests.broker.desk import open_desk

PAGE: Final = Path(__file__).parents[1] / "docs" / "compatibility.md"
ROW: Final = re.compile(r"\| (\d+) \| (\w+) \| (served, pool `(\w+)`|not served: .{10,}) \|")


@pytest.mark.trio
async def test_every_request_is_served_as_the_page_says(tmp_path: Path) -> None:
    rows = ROW.findall(PAGE.read_text(encoding="utf-8"))
    assert [(int(code), name) for code, name, *_ in rows] == [
        (int(code), code.name) for code in sorted(RequestCode, key=int)
    ]
    said = {int(code): pool for code, _, _, pool in rows if pool}
    async with open_desk(tmp_path) as desk:
        assert {int(route.header.code): route.pool for route in desk.broker.routes} == said
