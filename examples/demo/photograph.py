"""Enters the page of `relive ui` with the address that it printed, and photographs it with Chromium.

usage: python photograph.py ADDRESS FILE
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome")


def main(address: str, file: str) -> None:
    program = next(filter(None, map(shutil.which, NAMES)), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        program = None
    if program is None:
        print("no picture of the page: there is no Chromium here; install it with your package manager")
        return
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 760})
        page.goto(address)
        page.locator(".plot .u-over").first.wait_for(timeout=60_000)
        page.wait_for_timeout(1500)  # until the other charts are drawn
        page.screenshot(path=file)
        browser.close()
    print(f"a picture of the page: {file}")


main(*sys.argv[1:])
