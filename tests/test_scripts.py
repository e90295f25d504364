"""What the scripts that set environments up hand on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPTS = Path(__file__).parent.parent / "scripts"


def told(folder: Path, config: str, **more: str) -> subprocess.CompletedProcess[str]:
    """What uv is told where pip has this configuration and these variables."""
    (folder / "pip.conf").write_text(config)
    own = {"PIP_CONFIG_FILE": str(folder / "pip.conf"), "NAME": "test", "PYTHON": sys.executable}
    own |= dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS"), str(folder))
    other = {key: value for key, value in os.environ.items() if not key.startswith("PIP_")}
    return subprocess.run(
        ["bash", "-c", f'. {SCRIPTS}/environments.sh; uv_settings "$PYTHON"'],
        env={**other, **own, **more},
        capture_output=True,
        text=True,
        timeout=60,
    )


def settings(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    assert (done.returncode, done.stderr) == (0, "")
    found = dict(line.split("=", 1) for line in done.stdout.splitlines())
    found.pop("SSL_CERT_FILE", None)  # /etc/pip.conf is read in any case
    return found


def test_uv_is_told_of_the_indexes_that_pip_is_configured_with(tmp_path: Path) -> None:
    config = (
        "[global]\nindex-url = https://a.example/simple\ntrusted-host = b.example\n"
        "extra-index-url =\n    https://b.example/simple\n    file:///wheels/simple\n"
    )
    variables = {"PIP_INDEX_URL": "https://c.example/simple", "PIP_FIND_LINKS": "/wheels /more"}
    assert settings(told(tmp_path, config, **variables)) == {
        "UV_DEFAULT_INDEX": "https://c.example/simple",
        "UV_INDEX": "https://b.example/simple file:///wheels/simple",
        "UV_FIND_LINKS": "/wheels,/more",
        "UV_INSECURE_HOST": "b.example",
    }


def test_what_stands_in_pip_stands_in_uv(tmp_path: Path) -> None:
    """A later section replaces an earlier one, other commands' are not read, nor is what is
    empty."""
    config = (
        "[download]\nindex-url = https://d.example\n"
        "[global]\nindex-url = https://g.example\nextra-index-url = https://more.example\n"
        "[install]\nindex-url = https://i.example\n"
    )
    variables = {"PIP_INDEX_URL": "", "PIP_EXTRA_INDEX_URL": "https://e.example"}
    assert settings(told(tmp_path, config, **variables, PIP_NO_INDEX="1")) == {
        "UV_DEFAULT_INDEX": "https://i.example",
        "UV_INDEX": "https://e.example",
        "UV_NO_INDEX": "1",
    }


def test_what_uv_has_no_word_for_is_left_to_pip(tmp_path: Path) -> None:
    done = told(tmp_path, "[global]\nonly-binary = :all:\n")
    assert (done.returncode, done.stdout) == (1, "")
