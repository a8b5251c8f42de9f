"""Secrets leave no text: by the name in front of them, or by their value."""

import pytest

from aerobee.cli.masking import MASK, Masking, sounds_secret

SECRET = "a-very-secret-value"


@pytest.mark.parametrize(
    "text",
    [
        "password={}",
        "password: {}",
        'secretKey = "{}"',
        '{{"secretKey":"{}","a":1}}',
        "--set 'securityToken={}'",
        '\\"password\\":\\"{}\\"',
        "tls.server.keyPassword={}",
        "aerobee_secret_key={} next",
        "https://user:{}@host/path",
        "Authorization: Bearer {}",
        "{{'Signature': '{}'}}",
        "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\n{} and the end is cut off",
    ],
)
def test_a_secret_goes_by_what_stands_before_it(text: str) -> None:
    masked = Masking([]).text(text.format(SECRET))
    assert SECRET not in masked
    assert MASK in masked


def test_a_known_secret_goes_wherever_it_stands_and_the_rest_stays() -> None:
    masking = Masking([SECRET, f"{SECRET}-longer", "", "ab"])
    assert masking.text(f"x{SECRET}-longer y {SECRET}") == f"x{MASK} y {MASK}"
    assert masking.text("about abbreviations, 5 topics=3") == "about abbreviations, 5 topics=3"
    assert masking.tree({"a": [SECRET, {"password": "p"}, 5], "b": None}) == {
        "a": [MASK, {"password": MASK}, 5],
        "b": None,
    }


def test_settings_show_whether_a_secret_is_set() -> None:
    found = Masking([]).settings({"securityToken": "", "secretKey": "s", "brokerName": "b"})
    assert found == {"securityToken": "", "secretKey": MASK, "brokerName": "b"}
    assert sounds_secret("initAuthenticationUser")
    assert not sounds_secret("brokerName")
