"""Pictures of the pages for docs, of two real clusters. Only where TWINSHORE_PICTURES names a folder for them."""

from __future__ import annotations

import os
from pathlib import Path

from tests.browser.chromium import Chromium, found
from tests.browser.test_console_pages import log_in
from tests.scenarios.test_following_writers import until
from tests.scenarios.test_platform import LINK, platform, under_load
from twinshore.lab.cluster import LabCluster

FOLDER = os.environ.get("TWINSHORE_PICTURES", "")
TOPIC = "orders"
SIZE = {"width": 1000, "height": 700, "deviceScaleFactor": 1, "mobile": False}


def test_pictures(east: LabCluster, west: LabCluster, tmp_path: Path) -> None:
    program = found()
    if program is None or not FOLDER:
        return
    with platform(east, west, TOPIC, tmp_path) as stage, under_load(stage) as at:
        stage.moved("west")
        at("west")
        stage.moved("east")
        at("east")
        where = f"/topics/{LINK.replace('>', '%3E')}/{TOPIC}"
        until(lambda: stage.admin.get(where).status == 200, 60, "the topic has a page")
        with Chromium(program, tmp_path / "profile") as browser:
            log_in(browser, stage.admin.base)
            browser.call("Emulation.setDeviceMetricsOverride", **SIZE)
            for name, path in (("overview", "/"), ("topic", where)):
                browser.open(stage.admin.base + path)
                browser.picture(Path(FOLDER) / f"pages-{name}-light.png")
