"""The site builds without a warning, knows every public name, needs nothing from elsewhere, and fits its screen."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from inspect import isclass, isroutine
from pathlib import Path

import pytest

import usu
from tests.browser.conftest import Browser
from tests.contracts.source import ROOT

ROOMS = ("segment", "score", "forward", "metrics", "stats", "upsamplers", "models", "plot")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sphinx")
    pytest.importorskip("furo")
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-d", f"{out}.trees"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [*command, str(ROOT / "docs"), str(out)], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return out


def test_every_public_name_has_an_entry(site: Path) -> None:
    from sphinx.util.inventory import InventoryFile

    with (site / "objects.inv").open("rb") as file:
        known = {name for kind in InventoryFile.load(file, "", lambda a, b: b).values() for name in kind}
    assert len(known) > 300
    missing = [name for name in usu.__all__ if name != "__version__" and f"usu.{name}" not in known]
    homes = {"fills": "usu.forward.fills", "potentials": "usu.operator.potentials"}
    assert [name for name in missing if homes.get(name) not in known] == []
    for room in ROOMS:
        module = importlib.import_module(f"usu.{room}")
        public = [name for name in module.__all__ if isroutine(getattr(module, name)) or isclass(getattr(module, name))]
        assert [name for name in public if f"usu.{room}.{name}" not in known] == [], room


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    """Scripts, styles, fonts and pictures; the search, too, works without a network."""
    for page in site.rglob("*.html"):
        loaded = re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="(https?:[^"]*)"', page.read_text(encoding="utf-8"))
        assert loaded == [], page
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    assert "redistribut" in index
    assert "<math" in (site / "theory.html").read_text(encoding="utf-8")


def test_links_within_the_site_have_their_places(site: Path) -> None:
    places = {page: set(re.findall(r'id="([^"]+)"', page.read_text(encoding="utf-8"))) for page in site.rglob("*.html")}
    lost = []
    for page in places:
        for target in re.findall(r'<a [^>]*href="([^"]*)"', page.read_text(encoding="utf-8")):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, place = target.partition("#")
            goal = (page.parent / path).resolve() if path else page
            if not goal.exists() or (place and goal in places and place not in places[goal]):
                lost.append((page.name, target))
    assert lost == []


#: What sticks out of the screen on the right, but for what can be scrolled by itself.
STICKS_OUT = """
const wide = document.documentElement.clientWidth;
const scrolls = (one) => {
  for (let up = one.parentElement; up.tagName !== "ARTICLE"; up = up.parentElement)
    if (["auto", "scroll", "hidden"].includes(getComputedStyle(up).overflowX)) return true;
  return false;
};
const found = [...document.querySelectorAll("article *")].filter((one) => {
  const place = one.getBoundingClientRect();
  return place.width && place.right > wide + 1 && !scrolls(one);
});
const page = document.documentElement.scrollWidth - wide;
return [...(page > 0 ? [`the page, by ${page}`] : []), ...found.map((one) => one.outerHTML.slice(0, 80))];
"""


@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_sticks_out(site: Path, chromium: Browser, width: int) -> None:
    """On a phone and on a desk, on every page; tables and code that are too wide are scrolled by themselves."""
    pages = [page for page in sorted(site.rglob("*.html")) if "_" not in page.name]
    assert len(pages) > 30
    lost = {}
    for page in pages:
        chromium.open(page.as_uri(), width=width)
        lost[str(page.relative_to(site))] = chromium.do(STICKS_OUT)
    assert {name: found for name, found in lost.items() if found} == {}


def test_what_sticks_out_is_seen(site: Path, chromium: Browser) -> None:
    chromium.open((site / "index.html").as_uri(), width=360)
    chromium.do("document.querySelector('article p').style.width = '500px'")
    assert chromium.do(STICKS_OUT)


def test_charts_are_cards_on_a_dark_page(site: Path, chromium: Browser) -> None:
    """And a picture with a dark variant shows that one."""
    colour = "getComputedStyle(document.querySelector('article img')).backgroundColor"
    chromium.open((site / "theory.html").as_uri(), dark=True)
    assert chromium.see(colour) == "rgb(255, 255, 255)"
    chromium.open((site / "index.html").as_uri(), dark=True)
    shown = "[...document.querySelectorAll('article img')].filter((one) => one.offsetWidth).map((one) => one.src)"
    (picture,) = chromium.see(shown)
    assert picture.endswith("readme-dark.png")
    assert chromium.see(f"{shown}.length && {colour}") != "rgb(255, 255, 255)"


def test_the_search_answers_from_a_file(site: Path, chromium: Browser) -> None:
    """No server, no network."""
    chromium.open(f"{(site / 'search.html').as_uri()}?q=water-filling+ceiling")
    chromium.until("document.querySelectorAll('ul.search li a').length > 0", seconds=20)
    chromium.open(f"{(site / 'search.html').as_uri()}?q=redistribute")
    chromium.until("[...document.querySelectorAll('ul.search li a')].some((a) => a.href.includes('operator'))", 20)
