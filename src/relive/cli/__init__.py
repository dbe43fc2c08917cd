"""The command line: every `relive …` command."""

from relive.cli.main import main

__all__ = ["main"]
