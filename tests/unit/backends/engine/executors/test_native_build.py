"""The C++ kernels are compiled once for each compiler and processor, or a reason is said."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from backends.kernels.cpu import native

try:
    native.library()
except native.NativeUnavailableError as error:
    pytest.skip(f"no native kernels: {error}", allow_module_level=True)


def test_without_a_compiler_the_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    native.library.cache_clear()
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(native.NativeUnavailableError, match="no C\\+\\+ compiler found"):
        native.library()
    native.library.cache_clear()


def test_a_folder_that_others_can_write_to_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shared = tmp_path / "cache" / "decodebench"
    shared.mkdir(parents=True)
    shared.chmod(0o777)
    private = tmp_path / "tmp"
    private.mkdir()
    good = Path(native.library()._name).read_bytes()
    monkeypatch.setattr(native, "_build", lambda compiler, target: target.write_bytes(good))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(private))
    native.library.__wrapped__()
    assert list(shared.iterdir()) == []
    assert len(list(private.glob(f"decodebench-{os.getuid()}/*.so"))) == 1


def test_a_compiler_may_have_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_folders", list)
    monkeypatch.setenv("CXX", "env LC_ALL=C g++")
    with pytest.raises(native.NativeUnavailableError, match="no folder can be written to"):
        native.library.__wrapped__()


def test_a_folder_that_runs_no_code_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = native.library()
    good = Path(real._name).read_bytes()
    barred, free = tmp_path / "barred", tmp_path / "free"
    monkeypatch.setattr(native, "_folders", lambda: [barred, free])

    def build(compiler: list[str], target: Path) -> None:
        target.write_bytes(good if target.parent == free else b"not for execution")

    monkeypatch.setattr(native, "_build", build)
    found = native.library.__wrapped__()
    assert found.instructions() == real.instructions()
    assert found._name == str(free / Path(real._name).name)


def test_a_compilers_own_flags_make_another_library(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    built: list[Path] = []
    monkeypatch.setattr(native, "_folders", lambda: [tmp_path])
    monkeypatch.setattr(native, "_build", lambda compiler, target: built.append(target))
    for compiler in ("g++", "g++ -mno-avx512f"):
        monkeypatch.setenv("CXX", compiler)
        with pytest.raises(native.NativeUnavailableError):
            native.library.__wrapped__()
    assert len(set(built)) == 2


@pytest.mark.parametrize(
    ("compiler", "told"),
    [
        ('"g++', "\\$CXX: No closing quotation"),
        ("true", "true: wrote no library"),
        ("g++ -std=c++03x", "unrecognized command-line option"),
    ],
)
def test_a_compiler_that_makes_no_library_is_named(
    compiler: str, told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(native, "_folders", lambda: [tmp_path])
    monkeypatch.setattr(native, "FLAGS", ())
    monkeypatch.setenv("CXX", compiler)
    with pytest.raises(native.NativeUnavailableError, match=told):
        native.library.__wrapped__()


def test_what_the_linker_says_is_told_and_not_that_it_failed(tmp_path: Path) -> None:
    compiler = tmp_path / "g++"
    compiler.write_text(
        "#!/bin/sh\necho 'ld: final link failed: No space left on device' >&2\n"
        "echo 'collect2: error: ld returned 1 exit status' >&2\nexit 1\n"
    )
    compiler.chmod(0o755)
    with pytest.raises(native.NativeUnavailableError, match="No space left on device"):
        native._run([str(compiler)])


@pytest.mark.parametrize(
    "full", [OSError(28, "No space left on device"), native.NativeUnavailableError("ld: no space")]
)
def test_a_full_disk_is_passed_over(
    full: Exception, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    good = Path(native.library()._name).read_bytes()
    small, free = tmp_path / "small", tmp_path / "free"
    monkeypatch.setattr(native, "_folders", lambda: [small, free])

    def build(compiler: list[str], target: Path) -> None:
        if target.parent == small:
            raise full
        target.write_bytes(good)

    monkeypatch.setattr(native, "_build", build)
    assert native.library.__wrapped__().instructions()


def test_processes_that_start_together_compile_once(tmp_path: Path) -> None:
    compiler = tmp_path / "slow"
    compiler.write_text(f"#!/bin/sh\necho once >> {tmp_path}/calls\nsleep 0.5\ntouch $3\n")
    compiler.chmod(0o755)
    code = (
        "from pathlib import Path; import sys; from backends.kernels.cpu import native; "
        "native.FLAGS = (); native._build_once([sys.argv[1]], Path(sys.argv[2]))"
    )
    command = [sys.executable, "-c", code, str(compiler), str(tmp_path / "library.so")]
    started = [subprocess.Popen(command) for _ in range(3)]
    assert [process.wait(60) for process in started] == [0, 0, 0]
    assert (tmp_path / "calls").read_text().split() == ["once"]
