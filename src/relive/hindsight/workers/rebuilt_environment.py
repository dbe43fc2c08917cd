"""A virtual environment with the recorded packages of a run, built once, where they differ from today's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from relive.errors import ReliveError
from relive.hashing import stable_hash
from relive.record.provenance import installed_packages
from relive.store import Home

_NOT_REBUILT = frozenset({"relive", "pip", "setuptools", "wheel", "uv"})


def differing_packages(packages: Mapping[str, str]) -> dict[str, str]:
    """The recorded packages that have another version now, or are not installed."""
    now = {name.lower(): version for name, version in installed_packages().items()}
    return {
        name: version
        for name, version in packages.items()
        if name.lower() not in _NOT_REBUILT and now.get(name.lower()) != version
    }


def rebuilt_python(home: Home, packages: Mapping[str, str]) -> str:
    """Returns a Python interpreter that sees the recorded packages: the current one if nothing differs.

    Equal packages are shared with the current environment; only differing ones are installed, without their
    dependencies, since those were recorded too.
    """
    missing = differing_packages(packages)
    if not missing:
        return sys.executable
    folder = home.path / "environments" / stable_hash([sys.version, sys.prefix, sorted(missing.items())])[:16]
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        _run([sys.executable, "-m", "venv", "--without-pip", str(folder)])
        (_site_packages(folder) / "today.pth").write_text("\n".join(_current_package_folders()) + "\n")
        pins = [f"{name}=={version}" for name, version in missing.items()]
        _run([sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps", *pins])
        (folder / "ready").touch()
    return str(python)


def _current_package_folders() -> list[str]:
    """The folders of today's packages, which come after those of the new environment."""
    return [path for path in sys.path if (path and os.path.isdir(path) and "-packages" in path) or _holds_relive(path)]


def _holds_relive(path: str) -> bool:
    return bool(path) and os.path.isfile(os.path.join(path, "relive", "__init__.py"))


def _site_packages(folder: Path) -> Path:
    variables = {"base": str(folder), "platbase": str(folder)}
    return Path(sysconfig.get_path("purelib", vars=variables))


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ReliveError(f"the recorded environment can't be rebuilt: {reason}; replay without --env rebuild")
