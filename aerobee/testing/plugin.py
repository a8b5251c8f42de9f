"""pytest fixtures: `pytest_plugins = ["aerobee.testing.plugin"]` in conftest.py provides them.

`aerobee_broker`: one broker for the whole run, in real time; use new topic names.
`aerobee_virtual_broker`: one per test, whose time is moved by `advance`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aerobee.testing import broker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.testing import TestBroker

__all__ = ["aerobee_broker", "aerobee_virtual_broker"]


@pytest.fixture(scope="session")
def aerobee_broker() -> Iterator[TestBroker]:
    """A running broker, the same one for every test."""
    with broker() as running:
        yield running


@pytest.fixture
def aerobee_virtual_broker() -> Iterator[TestBroker]:
    """A broker of this test alone, whose time is moved by `advance`."""
    with broker(virtual_time=True) as running:
        yield running
