"""The SDK with the Java broker 5.5.0."""

from pathlib import Path

import pytest

from tests.interop.sdk_against_java import check_choice

pytestmark = pytest.mark.interop


def test_the_sdk_keeps_its_promises_with_javas_broker(tmp_path: Path) -> None:
    check_choice("5.5.0", tmp_path / "report.xml")
