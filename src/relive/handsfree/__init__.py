"""Hands-free recording of a script that does not import relive."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.handsfree.cell_instruments import notebook_instruments
    from relive.handsfree.script_runner import find_running_script, locate_script, run_script
    from relive.handsfree.script_start import ScriptStart

__getattr__ = lazy_names(__name__)
