"""What the scripts that set environments up hand on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPTS = Path(__file__).parent.parent / "scripts"


def test_uv_is_told_of_the_indexes_that_pip_is_configured_with(tmp_path: Path) -> None:
    config = tmp_path / "pip.conf"
    config.write_text(
        "[global]\nindex-url = https://a.example/simple\ntrusted-host = b.example\n"
        "extra-index-url =\n    https://b.example/simple\n    file:///wheels/simple\n"
    )
    own = {"PIP_CONFIG_FILE": str(config), "PIP_INDEX_URL": "https://c.example/simple"}
    own |= dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS"), str(tmp_path))
    more = {"PIP_FIND_LINKS": "/wheels /more", "NAME": "test", "PYTHON": sys.executable}
    other = {key: value for key, value in os.environ.items() if not key.startswith("PIP_")}
    done = subprocess.run(
        ["bash", "-c", f'. {SCRIPTS}/environments.sh; uv_settings "$PYTHON"'],
        env={**other, **own, **more},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    told = dict(line.split("=", 1) for line in done.stdout.splitlines())
    told.pop("SSL_CERT_FILE", None)  # /etc/pip.conf is read in any case
    assert told == {
        "UV_DEFAULT_INDEX": "https://c.example/simple",
        "UV_INDEX": "https://b.example/simple file:///wheels/simple",
        "UV_FIND_LINKS": "/wheels,/more",
        "UV_INSECURE_HOST": "b.example",
    }
