"""The packages that a run had, where they differ from today's: an environment of their own, made once."""

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

_OURS = frozenset({"relive", "pip", "setuptools", "wheel", "uv"})


def differing(packages: Mapping[str, str]) -> dict[str, str]:
    """The recorded packages that are of another version now, or not installed."""
    now = {name.lower(): version for name, version in installed_packages().items()}
    return {
        name: version
        for name, version in packages.items()
        if name.lower() not in _OURS and now.get(name.lower()) != version
    }


def rebuilt_python(home: Home, packages: Mapping[str, str]) -> str:
    """An interpreter that sees the recorded packages: today's own if nothing differs.

    What is the same is shared with today's environment; only what differs is installed, without its dependencies,
    since those were recorded too.
    """
    wanted = differing(packages)
    if not wanted:
        return sys.executable
    folder = home.path / "environments" / stable_hash([sys.version, sys.prefix, sorted(wanted.items())])[:16]
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        _run([sys.executable, "-m", "venv", "--without-pip", str(folder)])
        (_site_packages(folder) / "today.pth").write_text("\n".join(_today()) + "\n")
        pins = [f"{name}=={version}" for name, version in wanted.items()]
        _run([sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps", *pins])
        (folder / "ready").touch()
    return str(python)


def _today() -> list[str]:
    """Where today's packages lie; behind those that are installed here."""
    return [path for path in sys.path if (path and os.path.isdir(path) and "-packages" in path) or _is_editable(path)]


def _is_editable(path: str) -> bool:
    return bool(path) and os.path.isfile(os.path.join(path, "relive", "__init__.py"))


def _site_packages(folder: Path) -> Path:
    variables = {"base": str(folder), "platbase": str(folder)}
    return Path(sysconfig.get_path("purelib", vars=variables))


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ReliveError(f"the recorded environment can't be rebuilt: {reason}; replay without --env rebuild")
