"""Versions of the user's code, stored in git without changing the user's branch, index or work tree."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.store.versions import code_versions, version_checkout, version_contents
    from relive.store.versions.git_prefetch import GitPrefetch, start_git_prefetch
    from relive.store.versions.version_checkout import has_version
    from relive.store.versions.version_files import VersionFiles
    from relive.store.versions.version_objects import VersionObjects, check_repository
    from relive.store.versions.version_repository import is_index_whole

__getattr__ = lazy_names(__name__)
