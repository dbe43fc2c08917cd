"""The kind byte of a journal slot: the type of the logged value, or the loop event that the slot records."""

from __future__ import annotations

# Plain Python values.
FLOAT = 1
INT = 2
BOOL = 3
NONE = 4
LINE = 5  # the record is the line with the same sequence number in the journal's lines file

# numpy scalars are numbered in the order of _SCALARS; torch scalars likewise, with their own codes.
_FIRST_NUMPY = 8
_FIRST_TORCH = 32
_SCALARS = (
    "float16", "float32", "float64", "int8", "int16", "int32", "int64",
    "uint8", "uint16", "uint32", "uint64", "bool", "bfloat16",
)  # fmt: skip

# Loop events.
LOOP = 64  # a loop begins: value = parent loop and parent iteration
RANGE = 65  # its items are start + step * iteration: value = start and step
ITEM = 66  # the item of this iteration is an integer other than start + step * iteration: value = the item
MARK = 67  # an iteration begins (only written when iterations are slow enough to be worth a slot)
END = 68  # the loop ended: value = the number of iterations begun, iteration = how it was left
TICK = 69  # the full 64-bit clock, from which readers reconstruct the 32-bit times of the slots around it

# How a loop was left: older records, and loops that are dropped rather than left, don't say.
LEFT_UNKNOWN, LEFT_EXHAUSTED, LEFT_BY_CODE, LEFT_BY_ERROR = range(4)

NUMPY_KINDS = {name: _FIRST_NUMPY + i for i, name in enumerate(_SCALARS)}
TORCH_KINDS = {name: _FIRST_TORCH + i for i, name in enumerate(_SCALARS)}

_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")
INTEGER_KINDS = frozenset(
    [INT, BOOL, *(NUMPY_KINDS[n] for n in _INTEGERS), *(TORCH_KINDS[n] for n in _INTEGERS)],
)
FLOAT_KINDS = frozenset(
    [FLOAT, *(k for table in (NUMPY_KINDS, TORCH_KINDS) for n, k in table.items() if n not in _INTEGERS)],
)
VALUE_KINDS = FLOAT_KINDS | INTEGER_KINDS | {NONE, LINE}

TYPE_NAMES: dict[int, str] = {
    FLOAT: "float",
    INT: "int",
    BOOL: "bool",
    NONE: "none",
    LINE: "json",
    **{kind: f"numpy.{name}" for name, kind in NUMPY_KINDS.items()},
    **{kind: f"torch.{name}" for name, kind in TORCH_KINDS.items()},
}
