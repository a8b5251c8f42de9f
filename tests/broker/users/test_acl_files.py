"""The files of accounts of ACL 1.0: what others may do with them."""

import re
import subprocess
from pathlib import Path

import pytest

from aerobee.broker.config.files.entries import ConfigurationError
from aerobee.broker.users.acl_files import read_accounts
from tests.kit.logged import Logged

ACCOUNT = "accounts:\n- accessKey: the-shop\n  secretKey: a-long-secret\n"
COMMAND = re.compile(r"chmod \S+ '[^']+'")


def test_the_command_that_is_printed_for_a_file_open_to_others_helps(
    tmp_path: Path, logged: Logged
) -> None:
    path = tmp_path / "plain acl" / "plain_acl.yml"
    path.parent.mkdir()
    path.write_text(ACCOUNT)
    path.chmod(0o666)
    with pytest.raises(ConfigurationError, match="others than its owner may change it") as refused:
        read_accounts(path.parent)
    run(str(refused.value))
    read_accounts(path.parent)
    [warning] = logged
    assert "everybody on this host may read it" in warning["text"]
    run(warning["text"])
    read_accounts(path.parent)
    assert len(logged) == 1
    assert path.stat().st_mode & 0o777 == 0o640


def run(text: str) -> None:
    """Run the command that a text prints."""
    (command,) = COMMAND.findall(text)
    subprocess.run(["sh", "-c", command], check=True)
