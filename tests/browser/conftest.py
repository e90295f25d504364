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


@pytest.fixture
def open_report(report: Path, tmp_path: Path) -> Iterator[Open]:
    """Opens the report in a window of the given size and scheme, with or without scripts."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("chromium and chromedriver are not installed")
    opened: list[Chrome] = []

    def open_it(width: int = 1280, *, dark: bool = False, scripts: bool = True) -> Chrome:
        browser = _start(chromium, driver, tmp_path / f"profile-{len(opened)}")
        opened.append(browser)
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        if not scripts:
            browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
        browser.get(report.as_uri())
        return browser

    yield open_it
    for browser in opened:
        browser.quit()


def _start(chromium: str, driver: str, profile: Path) -> Chrome:
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return Chrome(options=options, service=Service(driver))
