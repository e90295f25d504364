"""An error of the program itself is no failed gate."""

from __future__ import annotations

import pytest

from harness.cli import main


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
