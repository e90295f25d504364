"""What a process that measures nothing of ours needs not load."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[5]
CODE = """
import sys
from harness.cli import wiring
from harness.cli.session import open_session
from harness.experiment.config import parse_experiment
from harness.measure.child import run_trial
from harness.measure.machine.meters import Meter
from harness.measure.messages import TrialJob

content = {
    "name": "x",
    "model": "demo",
    "backends": ["scripted"],
    "workloads": ["gsm8k"],
    "load": [{"kind": "closed", "concurrency": 1}],
    "requests": 2,
}
trial = wiring.resolve(parse_experiment(content, "x.yaml", wiring.known())).trials()[0]
list(wiring.prompt_rows([trial], wiring.model_folder(trial.model)))
session = open_session(trial)
record = run_trial(session, TrialJob("k", trial, {}, None), Meter(), lambda _: None)
assert record.status == "ok" and len(record.texts) == 2, record
print(sorted({name.partition(".")[0] for name in sys.modules} & set(sys.argv[1:])))
"""


def test_a_scripted_trial_imports_neither_torch_nor_transformers() -> None:
    """On a cluster's node that would be most of the time that its engine takes to start."""
    done = subprocess.run(
        [sys.executable, "-c", CODE, "torch", "transformers", "vllm", "ray", "pandas"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr
