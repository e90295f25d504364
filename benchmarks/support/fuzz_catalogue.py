"""What is known to have broken readers of files: one case each, by name."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from backends.checkpoints import models
from benchmarks.support.fuzz_cases import FILE, write_experiment

Maker = Callable[[Path], object]
ROW = json.dumps({"question": "a" * 2**20, "answer": "#### 5"}).encode() + b"\n"
LONG_CODE = json.dumps(
    {
        "task_id": "a",
        "prompt": "+",
        "entry_point": "x",
        "test": "x",
        "canonical_solution": "+" * (3 * 2**20),
    }
).encode()


def _text(text: str | bytes) -> Maker:
    content = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    return lambda folder: (folder / FILE).write_bytes(content)


def _keys(**keys: Any) -> Maker:
    return lambda folder: write_experiment(folder, **keys)


def _laugh(first: str, link: str, end: str = "") -> str:
    """Aliases that double many times; `link` is a level made of the one before, ``{}``."""
    lines = [f"\na0: &a0 {first}"]
    lines += [f"a{n}: &a{n} {link.format(', '.join([f'*a{n - 1}'] * 9))}" for n in range(1, 30)]
    return "\n".join(lines) + end


def _endless(name: str, make: Callable[[Path], object], **keys: Any) -> Maker:
    """A file that never ends or cannot be read, named as source, trace or experiment."""

    def case(folder: Path) -> None:
        make(folder / name)
        write_experiment(folder, **keys)

    return case


def _bomb(content: bytes, count: int) -> Callable[[Path], object]:
    def make(path: Path) -> None:
        with gzip.open(path, "wb", compresslevel=1) as file:
            for _ in range(count):
                file.write(content)

    return make


def _zero(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        before = Path.cwd()
        os.chdir(path.parent)  # a socket's path may have 108 characters
        try:
            server.bind(path.name)
        finally:
            os.chdir(before)


def _experiment_is(make: Callable[[Path], object]) -> Maker:
    return lambda folder: make(folder / FILE)


def _model(name: str, make: Callable[[Path], object]) -> Maker:
    """The demo model with one of its files replaced."""

    def case(folder: Path) -> None:
        copy = folder / "model"
        shutil.copytree(models.BUNDLED["demo"], copy)
        (copy / name).unlink(missing_ok=True)
        make(copy / name)
        write_experiment(folder, model=str(copy), backends=["autoregressive"])

    return case


def _parameters(option: str, name: str, backend: str, **options: Any) -> Maker:
    """A folder or file of trained parameters in which one file is a named pipe."""

    def case(folder: Path) -> None:
        os.mkfifo(folder / name)
        path = str(folder / name if option == "calibration" else folder)
        write_experiment(folder, backends=[{"name": backend, option: path, **options}])

    return case


def _bytes(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


HUGE = 10**9
GRID = {"name": "scripted"} | {key: list(range(16, 116)) for key in ("seed", "tokens", "capacity")}
SCALAR_TAGS = ("int", "float", "bool", "timestamp", "binary", "null", "str", "set", "omap", "pairs")
CATALOGUE: dict[str, Maker] = {
    **{f"tag-{tag}-empty": _text(f"name: !!{tag} ''\n") for tag in SCALAR_TAGS},
    **{f"tag-{tag}-list": _text(f"name: !!{tag} [a, b]\n") for tag in (*SCALAR_TAGS, "map")},
    **{f"tag-{tag}-odd": _text(f"name: !!{tag} -\n") for tag in (*SCALAR_TAGS, "map", "seq")},
    "laugh-top": _keys(text=_laugh("[x]", "[{}]")),
    "laugh-merge": _keys(text=_laugh("{x: y}", "{{<<: [{}]}}")),
    "laugh-mapping": _keys(text=_laugh("x", "{{k: [{}]}}")),
    **{
        f"laugh-{key}": _text(_laugh("[x]", "[{}]", f"\n{key}: *a29\n"))
        for key in ("name", "model", "backends", "workloads", "load", "slo", "seed", "limits")
    },
    "alias-of-itself": _keys(text="x: &x [*x]\n"),
    "alias-chain": _text("".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 3000))),
    "anchors-deep": _text(
        "a0: &a0 x\n" + "".join(f"b{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 3000))
    ),
    **{
        f"deep-{name}": _text(piece * 20_000)
        for name, piece in (("list", "["), ("map", "{a: "), ("dash", "- "), ("question", "? "))
    },
    **{
        f"huge-{key}": _keys(**{key: HUGE})
        for key in ("requests", "repeats", "seed", "max_new_tokens", "time_limit_s")
    },
    **{f"most-{key}": _keys(**{key: 10**7}) for key in ("requests", "repeats", "max_new_tokens")},
    "huge-rows": _keys(workloads=[{"name": "gsm8k", "rows": HUGE}]),
    "most-rows": _keys(workloads=[{"name": "gsm8k", "rows": 10**7}], requests=10**7),
    "limits-of-rows": _keys(workloads=["humaneval"], requests=2000),
    "mixed-rows": _keys(workloads=[{"name": "humaneval", "mix": "80:20"}], requests=2000),
    "limits-of-prompts": _keys(workloads=[{"name": "gsm8k", "rows": 8}], requests=20_000),
    "huge-limits": _keys(limits={"trials": 10**30, "prompts": -1}),
    "grid": _keys(backends=[GRID]),
    "grid-of-engines": _keys(
        backends=[{"name": "adadecode", "gamma": [n / 200 for n in range(199)]}]
    ),
    "grid-of-loads": _keys(load=[{"kind": "closed", "concurrency": list(range(1, 9000))}]),
    "grid-times-grid": _keys(
        load=[{"kind": "gamma", "rate": list(range(1, 5000)), "burstiness": list(range(1, 5000))}]
    ),
    "integer-of-digits": _keys(text="x: " + "9" * 100_000),
    "integer-of-hex": _keys(text="x: 0x" + "f" * 100_000),
    "integer-of-base-60": _keys(text="x: 1" + ":59" * 100_000),
    "mix-of-digits": _keys(workloads=[{"name": "gsm8k", "mix": "9" * 5000 + ":1"}]),
    "not-a-number": _keys(slo={"ttft_ms": float("nan")}, time_limit_s=float("inf")),
    "tiny-rate": _keys(load=[{"kind": "poisson", "rate": 1e-300}]),
    "control": _text("name: a\x07b\x1b[2J\nmodel: \x00\n"),
    "surrogate": _text('name: "\\ud800"\nmodel: "\\udfff"\n'),
    "surrogate-raw": _text("name: \ud800\n"),
    "doubled-key": _keys(text="name: again\n"),
    "utf-16": _text("name: a\nmodel: demo\n".encode("utf-16")),
    "latin-1": _text("name: é\n".encode("latin-1")),
    "binary": _text(bytes(range(256)) * 64),
    "two-documents": _text("name: a\n---\nname: b\n"),
    "large": _text("# " + "x" * (3 * 2**20)),
    "wide": _text("x: [" + "a, " * 200_000 + "a]"),
    "long-key": _text("x" * 2**20 + ": 1\n"),
    "keys-that-are-lists": _text("[a, b]: 1\n{c: d}: 2\n"),
    "folder": _experiment_is(Path.mkdir),
    "pipe": _experiment_is(os.mkfifo),
    "zero": _experiment_is(_zero),
    "socket": _experiment_is(_socket),
    "missing": lambda folder: None,
    "gone-link": _experiment_is(lambda path: path.symlink_to("nowhere")),
    "link-to-itself": _experiment_is(lambda path: path.symlink_to(FILE)),
    **{
        f"source-{name}": _endless(f"d{name}.jsonl", make, source=f"d{name}.jsonl")
        for name, make in (
            ("pipe", os.mkfifo),
            ("zero", _zero),
            ("socket", _socket),
            ("folder", Path.mkdir),
        )
    },
    **{
        f"trace-{name}": _endless(f"t{name}.txt", make, trace=f"t{name}.txt")
        for name, make in (
            ("pipe", os.mkfifo),
            ("zero", _zero),
            ("socket", _socket),
            ("folder", Path.mkdir),
        )
    },
    **{
        f"source-{place}": _keys(workloads=[{"name": "gsm8k", "source": place}])
        for place in ("/", "/proc", "/sys", "/dev", "~")
    },
    "bomb-zeros": _endless("b.jsonl.gz", _bomb(bytes(2**20), 2000), source="b.jsonl.gz"),
    "bomb-blank": _endless("b.jsonl.gz", _bomb(b"\n" * 2**20, 2000), source="b.jsonl.gz"),
    "bomb-rows": _endless("b.jsonl.gz", _bomb(ROW, 1000), source="b.jsonl.gz"),
    "bomb-csv": _endless("b.csv.gz", _bomb(b"a\n" * 2**19, 1000), source="b.csv.gz"),
    "bomb-quote": _endless("b.csv.gz", _bomb(b'"x\n' * 2**19, 1000), source="b.csv.gz"),
    "bomb-array": _endless("b.json.gz", _bomb(b"[\n" * 2**19, 1000), source="b.json.gz"),
    "bomb-lists": _endless(
        "b.json.gz", lambda path: _bomb(b"[" + b"[],\n" * 2**18, 200)(path), source="b.json.gz"
    ),
    "bomb-code": _endless(
        "b.jsonl.gz", _bomb(LONG_CODE + b"\n", 300), workload="humaneval", source="b.jsonl.gz"
    ),
    "bomb-trace": _endless(
        "b.txt.gz", _bomb(b"0\n" * 2**19, 1000), trace="b.txt.gz", requests=20_000
    ),
    **{
        f"model-{place}": _keys(model=place)
        for place in ("/", "/dev/zero", "nobody/nothing", "a/b/c", "x" * 5000)
    },
    **{
        f"model-{name}-{kind}": _model(name, make)
        for name in (
            "config.json",
            "tokenizer.json",
            "generation_config.json",
            "model.safetensors",
            "tokenizer_config.json",
        )
        for kind, make in (
            ("pipe", os.mkfifo),
            ("zero", _zero),
            ("garbage", _bytes(b"\x00\xff{")),
            ("deep", _bytes(b"[" * 50_000)),
            ("empty", _bytes(b"{}")),
        )
    },
    "heads-pipe": _parameters("heads", "heads.json", "adadecode"),
    "heads-exit-pipe": _parameters("heads", "heads.json", "vllm-early-exit"),
    "classifier-pipe": _parameters(
        "classifier", "classifier.json", "vllm-early-exit", measure="classifier"
    ),
    "calibration-pipe": _parameters("calibration", "c.json", "vllm-early-exit"),
    "exit-layers": _keys(backends=[{"name": "adadecode", "exit_layers": [99]}]),
    "hub-rows": _keys(workloads=[{"name": "gsm8k", "source": "hub"}]),
    "hub-revision": _keys(workloads=[{"name": "gsm8k", "source": "hub", "revision": "\0"}]),
}
"""Case name -> what writes it into a folder; the experiment's file is `FILE`."""
