"""Questions to the store, answered by processes with limits on time and memory, so that none holds another up."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.server.questions.change_watcher import ChangeWatcher
    from relive.server.questions.indexer import Indexer
    from relive.server.questions.question_limits import QuestionLimits
    from relive.server.questions.reader_pool import ReaderPool
    from relive.server.questions.recorded_here import RecordedHere

__getattr__ = lazy_names(__name__)
