"""What the thread beside the training does with data that is declared meanwhile."""

from __future__ import annotations

from pathlib import Path

from relive.record.provenance import Provenance, data_fingerprint
from relive.store.journal import Journal, read_lines
from relive.store.journal.line_schema import DataDeclared, DataVersion, SlotsSealed


def test_data_may_be_declared_while_the_version_of_the_rest_is_stated(tmp_path: Path, monkeypatch) -> None:
    journal = Journal(tmp_path / "0")
    provenance = Provenance(journal, tmp_path / "known.sqlite", full_bytes=1 << 20, watch=None)
    version_of = data_fingerprint.data_version

    def slow_version(declared, seen):
        names = iter(declared)
        first = next(names)
        provenance.declare(f"{first} again", [2], None)  # as the training thread does
        return version_of({name: declared[name] for name in (first, *names)}, seen)

    provenance.declare("train", [1], None)
    with monkeypatch.context() as patch:
        patch.setattr(data_fingerprint, "data_version", slow_version)
        provenance._record_version()
    provenance._record_version()
    journal.close()

    kinds = [type(line) for line in read_lines(tmp_path / "0").lines if not isinstance(line, SlotsSealed)]
    assert kinds == [DataDeclared, DataDeclared, DataVersion, DataVersion]
