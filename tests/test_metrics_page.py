"""The printed page of the metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests import metrics_page

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_the_page_of_metrics_is_up_to_date() -> None:
    page = metrics_page.PAGE.read_text(encoding="utf-8")
    assert page == metrics_page.document(), "run: python -m tests.metrics_page --write"


def test_the_check_says_by_its_exit_code_whether_the_page_is_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "metrics.md"
    monkeypatch.setattr(metrics_page, "PAGE", page)

    def exit_code(*arguments: str) -> int:
        monkeypatch.setattr("sys.argv", ["metrics_page", *arguments])
        return metrics_page.main()

    assert exit_code() == 1
    assert exit_code("--write") == 0
    assert exit_code() == 0
    page.write_text(page.read_text() + "by hand\n")
    assert exit_code() == 1
    assert "by hand" not in capsys.readouterr().err
