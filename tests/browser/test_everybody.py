"""For everybody: phones, dark rooms, keyboards, screen readers."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources

import pytest

from tests.browser.conftest import Browser

TAB, ENTER, RIGHT, DOWN, SPACE, ESCAPE = "\ue004", "\ue007", "\ue014", "\ue015", "\ue00d", "\ue00c"


def findings(browser: Browser) -> list[str]:
    """What axe finds that is serious or critical."""
    script = resources.files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    # by the driver, not by the page: its policy lets no script in
    browser.driver.execute_script(script)
    found = browser.driver.execute_async_script(
        "const done = arguments[0]; axe.run(document, {resultTypes: ['violations']}).then(done)"
    )
    serious = [one for one in found["violations"] if one["impact"] in ("serious", "critical")]
    return [f"{one['id']}: {[node['html'][:120] for node in one['nodes'][:3]]}" for one in serious]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390], ids=["desk", "phone"])
def test_no_barriers(
    chromium: Browser, server: str, screenshot: Callable[[str], None], *, width: int, dark: bool
) -> None:
    chromium.visit(server, width=width, height=844, dark=dark)
    assert findings(chromium) == []
    name = f"{'phone' if width < 600 else 'desk'}-{'dark' if dark else 'light'}"
    screenshot(f"{name}-start")
    chromium.click("[data-sample=cat]")
    chromium.explained()
    chromium.until("document.querySelectorAll('#desiderata tr:not(.old)').length === 5")
    assert findings(chromium) == []
    assert chromium.see("document.documentElement.scrollWidth <= innerWidth"), "it scrolls sideways"
    background = chromium.see("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]")
    assert (background < 60) == dark
    screenshot(name)
    if dark:  # once for each width is enough
        chromium.click("#python")
        chromium.until("document.getElementById('code').open")
        assert findings(chromium) == []
    assert chromium.complaints() == []


def test_the_button_for_the_light(browser: Browser) -> None:
    browser.click("#theme")
    assert browser.see("getComputedStyle(document.documentElement).colorScheme") == "dark"
    browser.click("#theme")
    assert browser.see("getComputedStyle(document.documentElement).colorScheme") == "light"
    browser.do("localStorage.clear()")


def tab_to(browser: Browser, condition: str) -> None:
    """Press Tab until the focus is there."""
    for _ in range(60):
        if browser.see(f"(one => {condition})(document.activeElement)"):
            return
        browser.press(TAB)
    raise AssertionError(f"Tab never reaches {condition}")


def test_keyboard_alone(browser: Browser) -> None:
    tab_to(browser, "one.dataset.sample === 'cat'")
    browser.press(ENTER)
    browser.explained()
    assert browser.see("document.activeElement.id") == "canvas"
    browser.press(RIGHT, DOWN)
    browser.until("document.getElementById('hover').textContent.includes('part')")
    browser.press(ENTER)
    browser.until("!document.getElementById('verdict').hidden")
    browser.press(ESCAPE)
    assert browser.see("document.getElementById('verdict').hidden")
    tab_to(browser, "one.id === 'divider'")
    browser.press(RIGHT)
    assert browser.see("document.activeElement.getAttribute('aria-valuenow')") == "52"
    tab_to(browser, "one.name === 'class'")
    browser.press(DOWN)
    browser.until("document.querySelector('[name=class]:checked').value !== '282'")
    browser.explained()
    tab_to(browser, "one.id === 'temperature'")
    browser.press(RIGHT)
    browser.until("Number(document.body.dataset.drawn) >= 1")
    tab_to(browser, "one.name === 'budget'")
    browser.press(RIGHT)  # from the last to the first
    browser.until("document.querySelector('[name=budget]:checked').value === 'cell'")
    tab_to(browser, "one.id === 'python'")
    browser.press(SPACE)
    browser.until("document.getElementById('code').open")
    browser.press(ESCAPE)
    browser.until("!document.getElementById('code').open")
