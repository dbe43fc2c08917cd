"""Replay processes: started or forked, confined to their workspace, watched, and reporting back."""

from typing import TYPE_CHECKING

from relive.doors import lazy_names

if TYPE_CHECKING:
    from relive.hindsight.workers.executor import Share, Task, Watch, execute
    from relive.hindsight.workers.rebuilt_environment import rebuilt_python
    from relive.hindsight.workers.wire import Job, WorkerReport
    from relive.hindsight.workers.worker_start import WorkerStarter
    from relive.hindsight.workers.workspace import (
        Workspace,
        entry_file,
        environment,
        lay_out,
        materialise,
        meeting_place,
        variables,
    )

__getattr__ = lazy_names(__name__)
