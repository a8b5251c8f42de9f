"""`aerobee store` looks into directories of the Java broker, in use and at rest."""

from pathlib import Path

import pytest

from tests.aerobee.cli.test_store import run, told, tree
from tests.interop.conftest import GetClient
from tests.interop.test_directory_exchange import fill, java_broker, our_broker
from tests.kit.java import VERSIONS
from tests.kit.java_server import JavaNamesrv

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("version", VERSIONS)
def test_a_directory_of_a_java_broker_is_sound_in_use_and_at_rest(
    version: str, java_client: GetClient, java_namesrv: JavaNamesrv, tmp_path: Path
) -> None:
    data = tmp_path / "store"
    client = java_client("5.5.0", "JSON")
    with java_broker(version, data, java_namesrv) as java:
        fill(java, client)
        assert told("verify", data)["live"], "Java's lock is seen"
        java.stop()
    client.call("clear")
    before = tree(data)
    found = told("verify", data)
    assert (found["clean_stop"], found["damage"]) == (True, [])
    assert found["index_entries"] > 0
    assert told("stats", data)["messages"] == found["messages"] >= 200
    assert run("dump", data, "--topic", "moved").stdout.count("\n") == 200
    assert run("repair", data, "--yes").stdout == "nothing to do\n"
    assert tree(data) == before
    with our_broker(data) as ours:
        assert ours.ready is not None
        assert ours.ready.recovered == "clean"
