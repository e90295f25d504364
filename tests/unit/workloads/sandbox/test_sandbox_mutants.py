"""Spoilt solutions of HumanEval: the sandbox says of each what a plain interpreter says."""

from __future__ import annotations

import ast
import gzip
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from workloads.sandbox.humaneval import humaneval_program
from workloads.sandbox.runner import UntrustedProgram, run_programs

MUTANTS = 200
TIMEOUT_S, LONG_S = 5.0, 60.0
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


def mutants(function: str) -> Iterator[str]:
    """The function with one operator swapped, one number raised or one result taken away."""
    for place, node in enumerate(ast.walk(ast.parse(function))):
        tree = ast.parse(function)
        twin = list(ast.walk(tree))[place]
        if isinstance(twin, ast.Compare) and type(twin.ops[0]) in SWAPS:
            twin.ops[0] = SWAPS[type(twin.ops[0])]()  # type: ignore[call-overload]
        elif isinstance(twin, ast.BinOp | ast.BoolOp) and type(twin.op) in SWAPS:
            twin.op = SWAPS[type(twin.op)]()  # type: ignore[assignment]
        elif isinstance(twin, ast.Constant) and type(twin.value) is int:
            twin.value += 1
        elif isinstance(twin, ast.Return):
            twin.value = None
        else:
            continue
        assert type(node) is type(twin)
        yield ast.unparse(tree)


def passes_plainly(program: UntrustedProgram, timeout_s: float = TIMEOUT_S) -> bool:
    code = f"{program.source}\n\n{program.tests}"
    try:
        done = subprocess.run(
            [sys.executable, "-S", "-c", code], capture_output=True, timeout=timeout_s
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


@pytest.mark.slow
def test_mutants_pass_here_where_they_pass_in_a_plain_interpreter(shared_data: Path) -> None:
    with gzip.open(shared_data / "humaneval" / "HumanEval.jsonl.gz", "rt") as file:
        rows = [json.loads(line) for line in file]
    found = [
        humaneval_program(row, mutant)
        for row in rows
        for mutant in mutants(row["prompt"] + row["canonical_solution"])
    ]
    chosen = random.Random(0).sample(found, MUTANTS)
    with ThreadPoolExecutor(2) as pool:
        truth = list(pool.map(passes_plainly, chosen))
    verdicts = run_programs(chosen, timeout_s=TIMEOUT_S)
    doubtful = [
        program
        for program, verdict, right in zip(chosen, verdicts, truth, strict=True)
        if verdict.passed != right
    ]
    # a machine that stands still has one side's time run out
    again = run_programs(doubtful, timeout_s=LONG_S)
    wrong = [
        (program.source, verdict.reason)
        for program, verdict in zip(doubtful, again, strict=True)
        if verdict.passed != passes_plainly(program, LONG_S)
    ]
    assert wrong == []
    assert MUTANTS * 0.6 < truth.count(False) < MUTANTS
