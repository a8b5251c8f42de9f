"""Numbers and names of the protocol."""

from __future__ import annotations

import pytest

from aerobee.remoting.wire.codes import (
    LANGUAGE_CODES,
    LANGUAGES,
    VERSION,
    LanguageCode,
    RequestCode,
    ResponseCode,
)
from aerobee.remoting.wire.version import describe


@pytest.mark.parametrize("codes", [RequestCode, ResponseCode, LanguageCode])
def test_no_number_has_two_names(codes: type[RequestCode]) -> None:
    assert len(codes.__members__) == len(list(codes))


def test_codes_compare_with_plain_numbers() -> None:
    assert {310: "there"}[RequestCode.SEND_MESSAGE_V2] == "there"
    assert ResponseCode(-1006) is ResponseCode.RPC_TIME_OUT


def test_languages_by_number_and_name() -> None:
    assert LANGUAGES[9] == "GO"
    assert LANGUAGE_CODES["NODE_JS"] == 13


def test_our_version_is_that_of_5_3_3() -> None:
    assert describe(VERSION) == "V5_3_3"
