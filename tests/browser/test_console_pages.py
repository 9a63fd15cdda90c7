"""The platform's pages in a real Chromium: wide and narrow, light and dark, by keyboard, with and without scripts."""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from testkit.console import PASSWORD, first_admin, web_process
from tests.browser.chromium import NONE, Chromium, found
from tests.server.test_page_cost import PAGES, fill, snapshot
from twinshore.kafka.clock import wall_ms
from twinshore.server.core.snapshots import overview_row
from twinshore.state.core.platform_values import SnapshotKind
from twinshore.state.store import Store, open_store

WIDTHS = (1200, 360)
SCHEMES = ("light", "dark")
SHOWS = pytest.mark.claim(
    "platform",
    "browser",
    "every page in a real Chromium: no error, nothing loaded from elsewhere, no sideways scrolling at 360 px, dark and"
    " light, no serious finding of axe; without scripts pages read and forms work",
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as opened:
        yield opened


def axe() -> str | None:
    """The accessibility checker's script, if this Python has it."""
    spec = importlib.util.find_spec("axe_playwright_python")
    files = list(Path(spec.origin).parent.glob("**/axe.min.js")) if spec and spec.origin else []
    return files[0].read_text(encoding="utf-8") if files else None


def log_in(browser: Chromium, base: str) -> None:
    browser.open(f"{base}/login")
    browser.value("document.querySelector('[name=name]').value = 'ada'")
    browser.value(f"document.querySelector('[name=password]').value = '{PASSWORD}'")
    browser.value("document.querySelector('main form').submit()")
    browser.until("document.readyState == 'complete' && location.pathname == '/'", "logged in")


def findings(browser: Chromium, script: str) -> list[str]:
    """The checker's serious and critical findings."""
    browser.call("Runtime.evaluate", expression=script)
    browser.value("axe.run().then(found => { window.found = found.violations; })")
    browser.until("Array.isArray(window.found)", "axe ends")
    every = json.loads(browser.value("JSON.stringify(window.found)"))
    return [
        f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in every if one["impact"] in ("serious", "critical")
    ]


@SHOWS
@pytest.mark.timeout(600)
def test_every_page_at_every_width_in_both_schemes(store: Store, tmp_path: Path) -> None:
    program = found()
    if program is None:
        print(f"told: {NONE}")
        return
    fill(store, 500)
    script = axe()
    with web_process(store) as base, Chromium(program, tmp_path / "profile") as browser:
        first_admin(store, base)
        log_in(browser, base)
        for scheme in SCHEMES:
            features = [{"name": "prefers-color-scheme", "value": scheme}]
            browser.call("Emulation.setEmulatedMedia", features=features)
            for width in WIDTHS:
                size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
                browser.call("Emulation.setDeviceMetricsOverride", **size)
                for path in PAGES:
                    browser.open(base + path)
                    wide = browser.value("document.documentElement.scrollWidth")
                    assert wide <= width, f"{path} is {wide} wide at {width}"
                    high = browser.value("document.querySelector('header').offsetHeight")
                    assert high <= 100, f"the header of {path} is {high} high at {width}"
                    if script is not None:
                        assert findings(browser, script) == [], (path, scheme, width)
        assert browser.complaints == []
        assert {one for one in browser.asked if not one.startswith((base, "about:", "data:"))} == set()
    checked = "axe finds nothing serious" if script is not None else "axe is not installed here and was not asked"
    print(f"told: {len(PAGES)} pages, {len(WIDTHS)} widths, light and dark; {checked}")


@SHOWS
def test_a_narrow_page_unfolds_its_menu_and_can_be_read(store: Store, tmp_path: Path) -> None:
    program = found()
    if program is None:
        print(f"told: {NONE}")
        return
    link = {"link": "east->west", "state": "flowing", "rank": 0, "lag": 1234, "recovery_point_s": 1.0}
    row = overview_row([], [], [], wall_ms())
    values = {**json.loads(row.value), "links": [link], "silent": ["west"]}
    store.snapshots.save([replace(row, value=json.dumps(values))])
    with web_process(store) as base, Chromium(program, tmp_path / "profile") as browser:
        first_admin(store, base)
        log_in(browser, base)
        browser.call("Emulation.setScriptExecutionDisabled", value=True)
        browser.call("Emulation.setDeviceMetricsOverride", width=360, height=800, deviceScaleFactor=1, mobile=True)
        browser.open(base)
        shown = "document.querySelector('header nav').offsetHeight"
        assert browser.value(shown) == 0
        browser.value("document.querySelector('.menu').click()")
        assert browser.value(shown) > 0
        assert browser.value("document.querySelector('.map text').getBoundingClientRect().height") >= 12
        assert browser.value("document.querySelectorAll('.map .silent').length") == 1


@SHOWS
def test_a_page_is_fetched_again_while_it_is_shown(store: Store, tmp_path: Path) -> None:
    program = found()
    if program is None:
        print(f"told: {NONE}")
        return
    fill(store, 20)
    with web_process(store) as base, Chromium(program, tmp_path / "profile") as browser:
        first_admin(store, base)
        log_in(browser, base)
        browser.open(f"{base}/links")
        browser.value("window.before = document.querySelector('h1')")
        values = {"says": "stopped by hand", "recovery_point_s": 5.0, "p99_ms": None}
        store.snapshots.save([snapshot(SnapshotKind.LINK, "c0->c1", "c0->c1", 4, values)])
        browser.until("document.body.textContent.includes('stopped by hand')", "it is shown by itself")
        assert browser.value("window.before === document.querySelector('h1')"), "the page was not loaded again"
        ages = "[...document.querySelectorAll('time')].every(one => one.textContent.endsWith(' ago'))"
        browser.until(ages, "ages are shown")
        before = len(browser.asked)
        time.sleep(2.5)
        browser.value("1")
        assert 0 < len(browser.asked) - before <= 3, "every two seconds"


@SHOWS
def test_without_scripts_pages_read_and_forms_work(store: Store, tmp_path: Path) -> None:
    program = found()
    if program is None:
        print(f"told: {NONE}")
        return
    fill(store, 20)
    with web_process(store) as base, Chromium(program, tmp_path / "profile") as browser:
        first_admin(store, base)
        log_in(browser, base)
        browser.call("Emulation.setScriptExecutionDisabled", value=True)
        for path in PAGES:
            browser.open(base + path)
            assert "UTC" in browser.value("document.body.textContent") or "time" not in browser.value(
                "document.querySelector('#live').innerHTML"
            )
        browser.open(f"{base}/do/link-list")
        browser.value("document.querySelector('main form').requestSubmit()")
        browser.until("location.pathname.startsWith('/jobs/')", "the form is sent")
