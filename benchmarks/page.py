"""How soon a slider's new picture is on the screen, in a real browser: at 224 and at 1024 pixels."""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

#: Milliseconds that were promised, by the side of the model's input.
WANTED = {224: 100, 1024: 500}
_MODEL = """
from torch import nn
from usu.models import Preparation
def net():
    layers = [nn.Conv2d(3, 8, 3, stride=4, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=8, padding=1), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
    return model, Preparation(crop=({side}, {side}), resize=None)
"""
#: From the moment the slider says it moved to the frame after the new map was drawn.
_SLIDE = """
const [value, budget, done] = arguments;
document.querySelector(`[name=budget][value=${budget}]`).checked = true;
const before = Number(document.body.dataset.drawn) || 0;
const slider = document.getElementById("temperature");
slider.value = value;
const start = performance.now();
slider.dispatchEvent(new Event("input"));
const look = () => Number(document.body.dataset.drawn) > before
  ? requestAnimationFrame(() => done(performance.now() - start)) : setTimeout(look, 1);
look();
"""


def slides(driver: Any, budget: str, count: int = 7) -> list[float]:
    found = []
    for number in range(count):
        found.append(driver.execute_async_script(_SLIDE, -1.2 + 0.1 * number, budget))
        time.sleep(1.0)  # the measuring of D1 to D4 comes after a pause, and is over by then
    return found


def main() -> None:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        flags = "--headless --no-sandbox --disable-gpu --disable-background-networking --disable-component-update"
        for flag in (*flags.split(), "--disable-sync", "--no-first-run", f"--user-data-dir={home}/profile"):
            options.add_argument(flag)
        driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        driver.set_script_timeout(60)
        try:
            for side, wanted in WANTED.items():
                file = Path(home) / f"net{side}.py"
                file.write_text(_MODEL.format(side=side))
                command = [sys.executable, "-m", "usu.cli", "app", "--port", "0", "--no-browser", "--engine", "torch"]
                command += ["--model", f"{file}:net", "--evaluations", "24"]
                process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
                try:
                    line = process.stdout.readline() if process.stdout else ""
                    found = re.search(r"http://\S+", line)
                    driver.get(found[0] if found else "about:blank")
                    _until(driver, "document.body.dataset.ready === 'yes'")
                    driver.find_element("css selector", "[data-sample=cat]").click()
                    _until(driver, "document.body.dataset.state === 'done'")
                    time.sleep(3)
                    for budget in ("soft", "hybrid", "cell"):
                        took = slides(driver, budget)
                        middle, longest = statistics.median(took), max(took)
                        print(
                            f"{side:5} {budget:7} median {middle:5.0f} ms, longest {longest:5.0f} ms, wanted {wanted}"
                        )
                finally:
                    process.terminate()
                    process.wait(60)
        finally:
            driver.quit()


def _until(driver: Any, condition: str, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not driver.execute_script(f"return {condition}"):
        if time.monotonic() > end:
            raise TimeoutError(condition)
        time.sleep(0.05)
