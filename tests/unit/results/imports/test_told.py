"""Other tools' files read, however large."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core.errors import UserError
from results.imports import told
from results.imports.told import read_lines, read_object


def test_what_is_too_large_is_not_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of objects, one a line, each may be as large as a whole file."""
    monkeypatch.setattr(told, "MAX_BYTES", 20)
    path = tmp_path / "many.jsonl"
    path.write_text('{"a": 1}\n\n{"b": 2}\n{"c": 3}\n')
    assert list(read_lines(path)) == [{"a": 1}, {"b": 2}, {"c": 3}]
    with pytest.raises(UserError, match=r"many\.jsonl: larger than 20 bytes, more than is read"):
        read_object(path)
    path.write_text('{"a": 1}\n' + '{"b": "%s"}\n' % ("x" * 20))
    found = read_lines(path)
    assert next(found) == {"a": 1}
    with pytest.raises(UserError, match=r"line 2: larger than 20 bytes"):
        next(found)
