"""Worker processes of a replay: started or forked, confined to a workspace, watched, and reporting back."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.hindsight.workers.executor import RankTask, Task, Watch, execute_tasks
    from relive.hindsight.workers.outside_facts import doubtful_reads, outside_fields
    from relive.hindsight.workers.rebuilt_environment import rebuilt_python
    from relive.hindsight.workers.wire import Job, Moment, OutsideRead, StateCheck, WorkerReport
    from relive.hindsight.workers.worker_start import WorkerStarter
    from relive.hindsight.workers.workspace import (
        Workspace,
        create_workspace,
        entry_file,
        materialise,
        merged_variables,
        needs_temporary_folder,
        rendezvous_variables,
        worker_environment,
    )

__getattr__ = lazy_names(__name__)
