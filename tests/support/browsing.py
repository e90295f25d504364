"""What the tests of the page do in a browser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selenium.webdriver import Chrome


def run_script(browser: Chrome, script: str, *arguments: Any) -> Any:
    """What the script returns."""
    return browser.execute_script(script, *arguments)


def choose(browser: Chrome, name: str, value: str) -> None:
    """Choose a value of one of the page's filters."""
    run_script(
        browser,
        "const s = document.querySelector(`#filters select[name=${arguments[0]}]`);"
        "s.value = arguments[1]; s.dispatchEvent(new Event('change', {bubbles: true}));",
        name,
        value,
    )
