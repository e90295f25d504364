"""An error of the program itself is no failed gate."""

from __future__ import annotations

import pytest
import typer

from harness.cli import main
from tests.support.harness.command import call


def test_an_error_of_its_own_has_a_code_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(**_: object) -> None:
        raise ZeroDivisionError("played")

    monkeypatch.setattr(main, "app", broken)
    with pytest.raises(SystemExit) as stopped:
        main.main()
    assert stopped.value.code == main.OWN_ERROR
    assert main.OWN_ERROR not in (0, 1, 2, 3, 4)
    told = capsys.readouterr().err
    assert "ZeroDivisionError: played" in told
    assert told.endswith("an error of decodebench itself, as above; please report it\n")


def test_an_end_that_nobody_expected_is_no_interrupt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    app = typer.Typer()

    @app.command()
    def broken() -> None:
        raise EOFError("played")

    monkeypatch.setattr(main, "app", app)
    assert call(monkeypatch) == main.OWN_ERROR
    told = capsys.readouterr().err
    assert "EOFError: played" in told
    assert told.endswith("an error of decodebench itself, as above; please report it\n")


def test_an_abort_without_an_end_is_an_interrupt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def aborted(**_: object) -> None:
        raise typer.Abort

    monkeypatch.setattr(main, "app", aborted)
    assert call(monkeypatch) == main.INTERRUPTED
    assert capsys.readouterr().err == f"decodebench: {main.STOPPED}\n"
