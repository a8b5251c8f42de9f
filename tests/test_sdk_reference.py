"""The printed reference of the SDK is complete; that it is current is a house rule."""

from importlib import import_module

import pytest

import aerobee
from aerobee.client.settings.client import ClientOptions
from aerobee.client.settings.consumers import PushOptions
from tests import sdk_reference


def test_every_class_that_takes_options_is_in_the_table() -> None:
    taking = {
        name
        for name in aerobee.__all__
        if "Options]" in str(getattr(getattr(aerobee, name).__init__, "__annotations__", ""))
    }
    assert {"Client", "Producer", "PopConsumer"} <= taking <= set(sdk_reference.CLASSES)


def test_every_option_is_in_the_table() -> None:
    page = sdk_reference.options_md()
    for option in {**PushOptions.__annotations__, **ClientOptions.__annotations__}:
        assert f"| `{option}` |" in page


def test_an_option_that_nobody_explained_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ClientOptions.__annotations__, "lunch", "float")
    with pytest.raises(ValueError, match="Client: what is lunch for"):
        sdk_reference.options_md()


@pytest.mark.parametrize("module", sdk_reference.MODULES)
def test_every_public_name_has_its_entry(module: str) -> None:
    page = sdk_reference.module_md(module)
    for name in import_module(module).__all__:
        assert f"\n## {name}\n" in page


def test_stale_pages_are_told_and_written(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sdk_reference, "SDK", tmp_path)
    monkeypatch.setattr("sys.argv", ["sdk_reference"])
    assert sdk_reference.main() == 1
    assert "stale: " in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["sdk_reference", "--write"])
    assert sdk_reference.main() == 0
    monkeypatch.setattr("sys.argv", ["sdk_reference"])
    assert sdk_reference.main() == 0
