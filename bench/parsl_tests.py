"""Parsl's own tests of memoization, run from the installed package, with relive's memoizer in the place of Parsl's."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.measuring import clean_environment, report

# Those under test_checkpointing that look into the files of Parsl's own memoizer have no meaning for another.
LOCAL = (
    "test_python_apps/test_memoize_2.py",
    "test_python_apps/test_memoize_exception.py",
    "test_python_apps/test_memoize_plugin.py",
    "test_checkpointing/test_get_all_checkpoints.py",
)
SHARED = (
    "test_python_apps/test_memoize_1.py",
    "test_python_apps/test_memoize_4.py",
    "test_python_apps/test_memoize_bad_id_for_memo.py",
    "test_python_apps/test_memoize_ignore_args.py",
    "test_python_apps/test_memoize_joinapp.py",
    "test_bash_apps/test_memoize.py",
    "test_bash_apps/test_memoize_ignore_args.py",
    "test_bash_apps/test_memoize_ignore_args_regr.py",
)


def put_in_place() -> None:
    """What the tests call BasicMemoizer becomes ours; as a pytest plugin this happens before any test is read."""
    import parsl.dataflow.dflow
    import parsl.dataflow.memoization
    import parsl.tests.conftest

    from relive.integrations.parsl import Memoizer

    class Ours(Memoizer):
        def __init__(self, *, memoize: bool = True, **about_files: Any) -> None:
            super().__init__(memoize=memoize)

    parsl.dataflow.memoization.BasicMemoizer = Ours  # type: ignore[misc]
    parsl.dataflow.dflow.BasicMemoizer = Ours  # type: ignore[misc]
    # It asks for an argument that pytest 9 no longer gives; what it would pass over isn't asked for here.
    vars(parsl.tests.conftest).pop("pytest_ignore_collect", None)


def main() -> None:
    """Run them in a scratch folder; the exit code is 1 if one fails."""
    import parsl.tests

    from relive.store.chunks import MemoTable

    tests = Path(parsl.tests.__file__).parent
    failed = False
    with tempfile.TemporaryDirectory() as scratch:
        for config, names in (("local", LOCAL), (str(tests / "configs" / "local_threads.py"), SHARED)):
            command = [sys.executable, "-m", "pytest", "-q", "-p", "bench.parsl_tests", "-p", "no:cacheprovider"]
            command += ["-c", "/dev/null", f"--rootdir={tests}", "--config", config, *(str(tests / n) for n in names)]
            environment = _environment(Path(scratch))
            failed |= subprocess.run(command, cwd=scratch, env=environment, check=False).returncode != 0
        remembered = len(MemoTable(Path(scratch, "home", "memo.sqlite")).rows())
    report("parsl_tests", {"failed": "no", "remembered": "> 0"}, failed=failed, remembered=remembered)
    raise SystemExit(1 if failed or not remembered else 0)


def _environment(scratch: Path) -> dict[str, str]:
    root = Path(__file__).parents[1]
    return {**clean_environment(), "PYTHONPATH": str(root), "RELIVE_HOME": str(scratch / "home")}


if __name__ == "__main__":
    main()
elif "pytest" in sys.modules and "bench.parsl_tests" in sys.argv:
    put_in_place()
