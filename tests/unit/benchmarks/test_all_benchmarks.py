"""`make bench` runs every script there is, and knows what each is asked."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks.__main__ import BY_OTHERS, ROOT, SCRIPTS, missing


def test_every_script_is_run() -> None:
    folder = ROOT / "benchmarks"
    found = {
        str(path.relative_to(folder).with_suffix(""))
        for path in folder.rglob("*.py")
        if 'if __name__ == "__main__":' in path.read_text() and path.name != "__main__.py"
    }
    apart = {name for name in found if name.startswith("support/")}
    assert found - apart == {script.name for script in SCRIPTS} | set(BY_OTHERS)


def test_what_is_not_here_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert missing("cuda") == "needs a CUDA device"
    assert missing(None) is None


def test_one_alone_and_one_that_is_not_there() -> None:
    def bench(*names: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "benchmarks", "--quick", *names]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3000)

    done = bench("load_loop")
    assert done.returncode == 0, done.stderr
    assert "== load_loop\n" in done.stdout
    wrong = bench("load_lop")
    assert wrong.returncode == 2
    assert wrong.stderr == "no benchmark 'load_lop': did you mean 'load_loop'?\n"
