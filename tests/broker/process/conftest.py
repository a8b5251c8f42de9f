"""The log is set up by tests here: each leaves it as it was."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
import structlog

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    """Otherwise later tests log to a descriptor that is closed, or is a store's file by then."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()
