"""The allocation strategies against the classes of the Java client, on groups that nobody chose."""

from random import Random

import pytest

from tests.interop.conftest import GetClient
from tests.kit.allocations import NAMES, random_case, shares
from tests.kit.java import VERSIONS

pytestmark = pytest.mark.interop

CASES = 20


@pytest.mark.parametrize("version", VERSIONS)
def test_every_member_gets_what_java_gives_it(version: str, java_client: GetClient) -> None:
    client = java_client(version, "JSON")
    random = Random()
    for name in NAMES:
        for _ in range(CASES):
            case = random_case(name, random)
            given = [row["share"] for row in client.call("allocate", **case._asdict())]
            assert shares(case) == given, case
