"""Installs Chromium where the tests of the page lack it and this account may; elsewhere those tests are skipped."""

from __future__ import annotations

import os
import shutil
import subprocess

NAMES = ("chromium", "chromium-browser", "google-chrome")


def main() -> None:
    if any(map(shutil.which, NAMES)):
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        print("there is no Chromium here, so the tests of the page are skipped; install it with your package manager")
        return
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], env=env, check=False)
    subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"], env=env, check=False)


main()
