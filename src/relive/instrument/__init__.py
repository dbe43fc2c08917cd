"""Which loops and log calls of a script matter, and the same script with them made visible: source in, trees out."""

from relive.instrument.choosing import Kind, LoopChoice, choose
from relive.instrument.numbers import dotted, named_numbers
from relive.instrument.rewriting import HOOK, instrument
from relive.instrument.statements import names_told, told_by_name
from relive.instrument.survey import Survey, reachable, survey

RULES = 1  # raised when the same source would get other loops, or other names for them

__all__ = [
    "HOOK",
    "RULES",
    "Kind",
    "LoopChoice",
    "Survey",
    "choose",
    "dotted",
    "instrument",
    "named_numbers",
    "names_told",
    "reachable",
    "survey",
    "told_by_name",
]
