"""Records which code of the project runs: the files that were imported, and the environment variables they name."""

from __future__ import annotations

from relive.record.provenance.imported_modules import ImportedModules
from relive.record.provenance.input_watch import ignore_reads
from relive.record.provenance.named_variables import NamedVariables, initial_environment
from relive.record.provenance.secret_filter import SecretFilter
from relive.store.journal import Journal, line_schema


class CodeLines:
    """Writes lines for what is new since the last time."""

    def __init__(self, journal: Journal, root: str, secrets: SecretFilter) -> None:
        self._journal = journal
        self._modules = ImportedModules(root)
        self._variables = NamedVariables(root, initial_environment(), secrets)
        self._has_imports = False

    def variables_of(self, script: str | None) -> dict[str, str]:
        """Returns the variables that the script names."""
        return self._new_variables([script] if script else [])

    def record_imports(self, *, is_last: bool = False) -> None:
        """Records new imports, and the variables that they name."""
        files = self._modules.new_files(is_last=is_last)
        if files or not self._has_imports:  # the first line says that there will be more if need be
            found = self._new_variables(files)
            self._journal.line(
                line_schema.ModulesImported, files=list(map(_valid, files)), **({"variables": found} if found else {})
            )
            self._has_imports = True

    def _new_variables(self, files: list[str]) -> dict[str, str]:
        with ignore_reads():  # our own reads are no inputs of the run
            found = self._variables.new(files)
        return {_valid(name): _valid(value) for name, value in found.items()}


def _valid(text: str) -> str:
    """Replaces lone surrogates by question marks: names and paths may hold any bytes."""
    return text.encode("utf-8", "replace").decode()
