"""The SDK with the Java broker 5.4.0."""

import pytest

from tests.interop.sdk_against_java import check_sdk

pytestmark = pytest.mark.interop


def test_the_sdk_keeps_its_promises_with_javas_broker() -> None:
    check_sdk("5.4.0")
