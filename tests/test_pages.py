"""Pages that are made from the source are complete; that the kept are current is a house rule."""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

import aerobee
from aerobee.broker.config.load import load_config
from aerobee.broker.config.schema import SCHEMA, snake
from aerobee.client.settings.client import ClientOptions
from aerobee.client.settings.consumers import PushOptions
from tests.pages import sdk, settings
from tests.pages.__main__ import BUILT, KEPT, main

if TYPE_CHECKING:
    from pathlib import Path


def test_every_class_that_takes_options_is_in_the_table() -> None:
    taking = {
        name
        for name in aerobee.__all__
        if "Options]" in str(getattr(getattr(aerobee, name).__init__, "__annotations__", ""))
    }
    assert {"Client", "Producer", "PopConsumer"} <= taking <= set(sdk.CLASSES)


def test_every_option_is_in_the_table() -> None:
    page = sdk.options_md()
    for option in {**PushOptions.__annotations__, **ClientOptions.__annotations__}:
        assert f"| `{option}` |" in page


def test_an_option_that_nobody_explained_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ClientOptions.__annotations__, "lunch", "float")
    with pytest.raises(ValueError, match="Client: what is lunch for"):
        sdk.options_md()


@pytest.mark.parametrize("module", sdk.MODULES)
def test_every_public_name_has_its_entry(module: str) -> None:
    page = sdk.module_md(module)
    for name in import_module(module).__all__:
        assert f"\n## {name}\n" in page


def test_every_setting_stands_in_both_pages() -> None:
    yaml, page = settings.broker_yaml(), settings.config_md()
    for key in SCHEMA.values():
        assert f"\n  #{snake(key.name)}:" in yaml
        assert f"| `{snake(key.name)}` |" in page


def test_all_keys_uncommented_are_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "all.yaml"
    file.write_text(re.sub(r"(?m)^  #(?=\w)", "  ", settings.broker_yaml()))
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


def test_all_pages_are_built_and_stale_ones_are_told_and_renewed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([], tmp_path) == 1
    built = tmp_path / "build" / "docs"
    assert {str(page.relative_to(built)) for page in built.rglob("*.md")} == set(BUILT)
    assert f"stale: {next(iter(KEPT))}" in capsys.readouterr().out
    assert main(["--write"], tmp_path) == 0
    assert main([], tmp_path) == 0
