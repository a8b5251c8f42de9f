"""The text of `plain_acl.yml`: RocketMQ's own file, and each mistake with line and field."""

import pytest

from aerobee.broker.users.acl_text import read_acl
from aerobee.broker.users.plain_acl import DENY, Perm

BUNDLED = b"""\
globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 192.168.0.*

accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
      - topicC=SUB
    groupPerms:
      # the group should convert to retry topic
      - groupA=DENY
      - groupB=PUB|SUB
      - groupC=SUB

  - accessKey: rocketmq2
    secretKey: "12345678"
    whiteRemoteAddress: 192.168.1.*
    # if it is admin, it could access all resources
    admin: true
dataVersion:
- counter: 1
  timestamp: 1600000000000
"""


def test_the_file_that_rocketmq_ships_is_read_as_it_stands() -> None:
    found = read_acl(BUNDLED, "plain_acl.yml")
    assert (found.problems, found.warnings) == ([], [])
    assert found.white == ["10.10.103.*", "192.168.0.*"]
    first, second = found.accounts
    assert found.places == ["plain_acl.yml:6", "plain_acl.yml:22"]
    assert (first.access_key, first.secret, first.admin) == ("RocketMQ", b"12345678", False)
    assert (first.default_topic, first.default_group) == (DENY, Perm.SUB)
    assert first.topics == {"topicA": DENY, "topicB": Perm.PUB | Perm.SUB, "topicC": Perm.SUB}
    assert first.groups["groupB"] == Perm.PUB | Perm.SUB
    assert second.admin
    assert second.white
    assert "12345678" not in repr(first), "S13"


ACCOUNT = "accounts:\n- accessKey: rocketmq1\n  secretKey: 12345678\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("accounts: [", "f:1: not YAML: "),
        ("- a", "f:1: settings are"),
        ("acounts:\n", "f:1: acounts: no such field; did you mean accounts?"),
        ("accounts:\naccounts:\n", ""),
        (ACCOUNT + "accounts: []\n", "f:4: accounts: is there twice"),
        ("accounts: x", "f:1: accounts: is a list"),
        ("accounts:\n- x", "f:2: accounts: an account has fields"),
        ("accounts:\n- accessKey: short\n  secretKey: 12345678", "f:2: accessKey: has at least 7"),
        ("accounts:\n- accessKey: rocketmq1\n", "f:2: secretKey: has at least 7 characters"),
        ("accounts:\n- accessKey: rocketmq1\n  secretKey: 01234567", "f:3: secretKey: looks like"),
        ("accounts:\n- accessKey: rocketmq1\n  secretKey: 1234567.0", "f:3: secretKey: looks like"),
        (
            ACCOUNT + "  topicPerm: [a=PUB]",
            "f:4: topicPerm: no such field; did you mean topicPerms",
        ),
        (ACCOUNT + "  topicPerms: [a]", "f:4: topicPerms: has the form name=PUB|SUB"),
        (ACCOUNT + "  topicPerms: a=PUB", "f:4: topicPerms: is a list"),
        (ACCOUNT + "  groupPerms: [{a: PUB}]", "f:4: groupPerms: is one value"),
        (ACCOUNT + "  admin: maybe", "f:4: admin: is true or false"),
        (
            ACCOUNT + "  whiteRemoteAddress: 10.0.0.999",
            "f:4: whiteRemoteAddress: '10.0.0.999' is no",
        ),
        (
            "globalWhiteRemoteAddresses: [10.0.0.0/8]",
            "f:1: globalWhiteRemoteAddresses: '10.0.0.0/8'",
        ),
    ],
)
def test_a_mistake_is_named_with_its_line_and_field(text: str, problem: str) -> None:
    found = read_acl(text.encode(), "f")
    if problem:
        assert found.problems[0].startswith(problem), found.problems
        assert "12345678" not in "".join(found.problems), "S13"
    else:
        assert not found.problems


def test_a_permission_that_rocketmq_does_not_know_means_deny_and_is_reported() -> None:
    found = read_acl((ACCOUNT + "  defaultTopicPerm: pub\n").encode(), "f")
    assert found.accounts[0].default_topic == DENY
    assert found.warnings == [
        "f:4: defaultTopicPerm: 'pub' is none of DENY, PUB, SUB, PUB|SUB, SUB|PUB: it means DENY"
    ]


def test_s3_who_lets_every_address_in_is_told_so() -> None:
    text = "globalWhiteRemoteAddresses: ['*']\n" + ACCOUNT + "  whiteRemoteAddress: '*.*.*.*'\n"
    found = read_acl(text.encode(), "f")
    assert not found.problems
    everybody, one = found.warnings
    assert "globalWhiteRemoteAddresses lets every address in" in everybody
    assert one.startswith("f:")
    assert "whiteRemoteAddress lets every address be" in one
