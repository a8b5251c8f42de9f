"""`aerobee completion`: what it prints is a script, and words complete."""

import os
import shutil
import subprocess

import pytest

from tests.aerobee.cli.conftest import Call, command
from tests.conftest import AnyBroker
from tests.kit.waiting import eventually


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_script(shell: str) -> None:
    done = subprocess.run(
        command("completion", shell), capture_output=True, text=True, check=True, timeout=60
    )
    assert "_AEROBEE_COMPLETE" in done.stdout
    if shutil.which(shell):
        checked = subprocess.run([shell, "-n"], input=done.stdout, text=True, check=False)
        assert checked.returncode == 0


def test_words_complete() -> None:
    asked = {"_AEROBEE_COMPLETE": "bash_complete", "COMP_WORDS": "aerobee to", "COMP_CWORD": "1"}
    done = subprocess.run(
        command(),
        env=os.environ | asked,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert {line.split(",")[1] for line in done.stdout.splitlines()} == {"top", "topic"}


def completed(words: str, number: int, namesrv: str) -> set[str]:
    """What bash would offer for the word of this number."""
    asked = {
        "_AEROBEE_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(number),
        "NAMESRV_ADDR": namesrv,
    }
    done = subprocess.run(
        command(), env=os.environ | asked, capture_output=True, text=True, check=False, timeout=60
    )
    return {line.split(",", 1)[1] for line in done.stdout.splitlines() if line}


@pytest.mark.service
def test_names_of_topics_and_groups_complete(call: Call, broker: AnyBroker, topic: str) -> None:
    call("topic", "create", topic)
    call("topic", "create", f"%RETRY%g-{topic}")
    there = broker.namesrv_address

    def offered() -> bool:
        # It gives up within a moment, which a busy machine may take by itself.
        return completed(f"aerobee topic describe {topic}", 3, there) == {topic}

    eventually(offered, within_s=60, what="the name of the topic")

    def offered_group() -> bool:
        return completed(f"aerobee group lag g-{topic}", 3, there) == {f"g-{topic}"}

    eventually(offered_group, within_s=60, what="the name of the group")
    assert completed(f"aerobee topic describe {topic}", 3, "127.0.0.1:1") == set()
