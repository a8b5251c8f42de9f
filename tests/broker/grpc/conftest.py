"""The compiled build does not serve the port, so nothing of it is tested there."""

from __future__ import annotations

from pathlib import Path

import pytest

from aerobee.remoting.server import worker

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not str(worker.__file__).endswith(".py"):
        skip = pytest.mark.skip(reason="compiled: grpcPort is not served")
        for item in items:
            if HERE in item.path.parents:
                item.add_marker(skip)
