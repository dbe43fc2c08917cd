"""The endpoints of the page of one run: its config, code, data, environment, checkpoints, artifacts and console."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.server.endpoints.run.artifact_download import ArtifactEndpoints
    from relive.server.endpoints.run.run_media import MediaEndpoints
    from relive.server.endpoints.run.run_page import RunPageEndpoints

__getattr__ = lazy_names(__name__)
