"""The provenance of a run: environment, packages, code version, data fingerprints, input files; and its artifacts."""

from typing import TYPE_CHECKING

from relive.lazy_imports import lazy_names

if TYPE_CHECKING:
    from relive.record.provenance import run_header
    from relive.record.provenance.artifact_capture import load_from_server, load_object, store_artifact
    from relive.record.provenance.code_lines import CodeLines
    from relive.record.provenance.data_fingerprint import fingerprint_file, fingerprint_folder
    from relive.record.provenance.drift import (
        changed_inputs,
        changes_since,
        is_as_recorded,
        is_beginning_as_recorded,
        is_same_machine,
    )
    from relive.record.provenance.fingerprint_cache import FingerprintCache
    from relive.record.provenance.input_watch import (
        APPENDED,
        FileTimes,
        InputFilter,
        InputWatch,
        file_times,
        ignore_reads,
    )
    from relive.record.provenance.named_variables import OF_THE_PLACE, is_of_the_place, named_in
    from relive.record.provenance.provenance import Provenance
    from relive.record.provenance.run_header import RunBeginning
    from relive.record.provenance.runtime_environment import installed_packages, set_ignored_signals
    from relive.record.provenance.secret_filter import REDACTED, SecretFilter, hides, is_secret
    from relive.record.provenance.version_prefetch import prefetch_version

__getattr__ = lazy_names(__name__)
