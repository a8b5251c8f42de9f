"""`aerobee completion`: what it prints is a script, and words complete."""

import os
import shutil
import subprocess

import pytest

from tests.aerobee.cli.conftest import command


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
