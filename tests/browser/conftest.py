"""A real server of the embedded network, and a real browser: headless Chromium, or a skip that says why."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

#: The least that shows a map getting sharper.
EVALUATIONS = 48
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync "
    "--no-first-run --window-size=1280,900"
)


def start(*options: str) -> tuple[subprocess.Popen[str], str]:
    """``usu app`` as a process of its own, and its address."""
    command = [sys.executable, "-m", "usu.cli", "app", "--port", "0", "--no-browser", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    found = re.search(r"http://\S+", process.stdout.readline())
    assert found is not None, "the server did not start"
    return process, found[0]


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    process, url = start("--evaluations", str(EVALUATIONS))
    yield url
    process.terminate()
    assert process.wait(60) == 0
    assert process.stdout is not None
    process.stdout.close()


class Browser:
    """What a person does and sees. Every wait has an end."""

    def __init__(self, driver: Any, downloads: Path) -> None:
        self.driver, self.downloads = driver, downloads

    def visit(self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """As a new visitor, on a screen of this size."""
        self.driver.get("about:blank")
        self.driver.execute_cdp_cmd("Network.clearBrowserCookies", {})
        self.open(url, width=width, height=height, dark=dark)
        self.until("document.body.dataset.ready === 'yes'")

    def open(self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Any page, on a screen of this size."""
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
        self.driver.get(url)

    def do(self, script: str, *given: Any) -> Any:
        return self.driver.execute_script(script, *given)

    def see(self, expression: str) -> Any:
        return self.driver.execute_script(f"return {expression}")

    def until(self, condition: str, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not self.see(condition):
            assert time.monotonic() < end, f"never: {condition}; {self.see('document.body.innerText')[:400]}"
            time.sleep(0.02)

    def find(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def click(self, selector: str) -> None:
        self.do("document.querySelector(arguments[0]).scrollIntoView({block: 'center'})", selector)
        self.find(selector).click()

    def text(self, selector: str) -> str:
        found: str = self.see(f"document.querySelector('{selector}').textContent")
        return found

    def explained(self) -> None:
        self.until("document.body.dataset.state === 'done'")

    def set(self, name: str, value: float) -> None:
        """Move a slider."""
        move = "slider.value = arguments[1]; slider.dispatchEvent(new Event('input'))"
        self.do(f"const slider = document.getElementById(arguments[0]); {move}", name, value)

    def looks_like(self) -> str:
        """A digest of what is on the canvas."""
        found: str = self.see("document.getElementById('canvas').toDataURL()")
        return found

    def press(self, *keys: str) -> None:
        from selenium.webdriver import ActionChains

        for key in keys:
            ActionChains(self.driver, duration=0).send_keys(key).perform()

    def downloaded(self, click: str) -> Path:
        """What a button gives."""
        for old in self.downloads.iterdir():  # a file of the same name would be written over
            old.unlink()
        self.click(click)
        end = time.monotonic() + 30
        while time.monotonic() < end:
            new = [file for file in self.downloads.iterdir() if file.name.startswith("usu-")]
            if new and new[0].suffix != ".crdownload":
                kept = self.downloads.with_name(f"{time.monotonic_ns()}{new[0].suffix}")
                return new[0].rename(kept)
            time.sleep(0.02)
        raise AssertionError(f"{click} gave nothing; {self.text('#trouble')}")

    def complaints(self) -> list[str]:
        """Errors and warnings of the console since it was last asked; a 409 says that a newer question came."""
        entries = [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] != "INFO"]
        return [message for message in entries if "status of 409" not in message]


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        reason = "Chromium and its driver are not installed (on Debian: apt-get install chromium chromium-driver)"
        if os.environ.get("USU_BROWSER") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    downloads = tmp_path_factory.mktemp("downloads")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in FLAGS.split():
        options.add_argument(flag)
    # on a busy machine a download may come too late to be taken for the click's; then the second one is asked about
    several = {"profile.default_content_setting_values.automatic_downloads": 1}
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads), **several})
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options.add_argument(f"--user-data-dir={profile}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        made = webdriver.Chrome(options=options, service=Service(driver))
        made.set_script_timeout(30)
        made.execute_cdp_cmd("Page.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(downloads)})
        yield Browser(made, downloads)
        made.quit()


@pytest.fixture
def browser(chromium: Browser, server: str) -> Iterator[Browser]:
    """A new visitor; afterwards the console must be empty."""
    chromium.visit(server)
    yield chromium
    assert chromium.complaints() == []


@pytest.fixture
def cat(browser: Browser) -> Browser:
    """The sample with the cat, explained."""
    browser.click("[data-sample=cat]")
    browser.explained()
    return browser


@pytest.fixture
def screenshot(chromium: Browser) -> Callable[[str], None]:
    """Pictures for a person to look at, where ``USU_SCREENSHOTS`` names a folder."""

    def take(name: str) -> None:
        folder = os.environ.get("USU_SCREENSHOTS")
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            chromium.driver.save_screenshot(str(Path(folder) / f"{name}.png"))

    return take
