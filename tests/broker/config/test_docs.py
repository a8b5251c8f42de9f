"""The printed settings: as the declarations say, and true."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aerobee.broker.config import docs
from aerobee.broker.config.load import load_config
from aerobee.broker.config.schema import SCHEMA, snake

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[3]


def test_the_printed_pages_are_what_the_declarations_say() -> None:
    assert docs.stale(ROOT) == [], "run: python -m aerobee.broker.config.docs --write"


def test_check_tells_a_stale_page_and_write_renews_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in docs.PAGES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
    assert docs.main(["--check", "--root", str(tmp_path)]) == 1
    assert "stale: conf/broker.yaml" in capsys.readouterr().out
    assert docs.main(["--write", "--root", str(tmp_path)]) == 0
    assert docs.main(["--check", "--root", str(tmp_path)]) == 0


def test_every_key_stands_in_both_pages() -> None:
    yaml, page = docs.broker_yaml(), docs.config_md()
    for key in SCHEMA.values():
        assert f"\n  #{snake(key.name)}:" in yaml
        assert f"| `{snake(key.name)}` |" in page


def test_all_keys_uncommented_are_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "all.yaml"
    file.write_text(re.sub(r"(?m)^  #(?=\w)", "  ", docs.broker_yaml()))
    machine: dict[str, Any] = {
        "environ": {"HOME": "/h"},
        "cpu_count": 3,
        "host_addresses": [],
        "host_name": "b",
    }
    spelled_out, plain = load_config(file, **machine), load_config(None, **machine)
    for part in ("broker", "store", "remoting", "namesrv", "metrics"):
        assert getattr(spelled_out, part) == getattr(plain, part)
    assert spelled_out.warnings == ()
    assert len(spelled_out.sources) > 100
