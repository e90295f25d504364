"""Reading a classifier's weights."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
CODE = """
import sys
from pathlib import Path
from backends.classifiers.weights import load
places = {parameter.device.type for parameter in load(Path(sys.argv[1])).parameters()}
print(places, "torch._dynamo" in sys.modules)
"""


@pytest.mark.parametrize("model", ["sentiment", "shapes"])
def test_weights_that_are_read_are_not_drawn_first(model: str) -> None:
    """What draws them imports torch's compiler: as long again as torch, in each process of a
    stage."""
    folder = ROOT / "backends" / "classifiers" / "bundled" / model
    done = subprocess.run(
        [sys.executable, "-c", CODE, folder], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert (done.stdout, done.returncode) == ("{'cpu'} False\n", 0), done.stderr
