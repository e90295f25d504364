"""A headless Chromium. Where there is none the browser tests skip, visibly."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.core.nouns import Slo
from reports.page import write_report
from tests.support.exits.early_exits import Exits
from tests.support.results.report_runs import (
    ENGINES,
    LOADS,
    PLAIN,
    TECHNIQUES,
    MadeUpBackend,
    write_run,
)

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
ATTACK = (
    "<script>window.pwned = 1</script></script><img src=x onerror='window.pwned = 1'><!-- "
    "\x00\u202e " + "long" * 2000
)
Open = Callable[..., "Chrome"]


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with several variants, exits of both kinds, a backend that is not valid, hostile
    answers."""
    noisy = MadeUpBackend("noisy", 0.009, changes=0.2, reasons=("machine-noisy: others used 30%",))
    gammas = [
        MadeUpBackend(
            "adadecode", 0.0, {"gamma": g}, exits=Exits(), lossless=g > 0.4, changes=0.9 - g
        )
        for g in (0.4, 0.9)
    ]
    early = [MadeUpBackend("adadecode", 0.0, {"gamma": 0.75}, exits=Exits()), *gammas]
    run = write_run(
        tmp_path_factory.mktemp("run"),
        engines=(*ENGINES[:3], noisy, PLAIN, *early, *TECHNIQUES[1:3]),
        workloads=["cnn_dailymail", "gsm8k"],
        loads=LOADS[:2],
        repeats=2,
        requests=40,
        slo=Slo(ttft_ms=60, tpot_ms=11),
        texts={f"gsm8k-{i}": ATTACK for i in (0, 8)},
    )
    return write_report(run)


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """One browser for all tests: it takes as long to start and to end as most of them."""
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("chromium and chromedriver are not installed")
    browser = _start(program, driver, tmp_path_factory.mktemp("profile"))
    yield browser
    browser.quit()


@pytest.fixture
def open_report(report: Path, chromium: Chrome) -> Iterator[Open]:
    """Opens the report in a tab of its own, of the given size and scheme, with or without scripts.
    What is emulated is the tab's, and logs begin with it."""
    first = chromium.current_window_handle

    def open_it(width: int = 1280, *, dark: bool = False, scripts: bool = True) -> Chrome:
        chromium.switch_to.new_window("tab")
        for log in ("browser", "performance"):
            chromium.get_log(log)  # type: ignore[no-untyped-call]
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        if not scripts:
            chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
        chromium.get(report.as_uri())
        return chromium

    yield open_it
    for tab in chromium.window_handles:
        if tab != first:
            chromium.switch_to.window(tab)
            chromium.close()
    chromium.switch_to.window(first)


def _start(chromium: str, driver: str, profile: Path) -> Chrome:
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return Chrome(options=options, service=Service(driver))
