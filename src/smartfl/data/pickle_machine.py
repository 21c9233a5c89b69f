"""Reads a pickle of data in time and memory that grow with its size and with nothing else.

``pickle.Unpickler`` does not: four bytes make it reserve gigabytes for its memo, a table whose keys are nested tuples
or chosen integers takes it for ever.  So the opcodes are taken one by one from ``pickletools.genops``, which reads and
runs nothing, and only those that data need are known.
"""

from __future__ import annotations

import pickletools
import re
from collections.abc import Callable, Mapping
from typing import Any

MOST_OPCODES = 4_000_000
MOST_DEPTH = 200  # of tuples in tuples: Python walks them by recursion

PUSH = re.compile("(BIN)?INT[12]?|LONG[14]?|(BIN)?FLOAT|UNICODE|(SHORT_)?BIN(UNICODE|BYTES)8?|BYTEARRAY8")
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
EMPTY: Mapping[str, Callable[[], Any]] = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple}
STRINGS = frozenset({"STRING", "BINSTRING", "SHORT_BINSTRING"})  # of Python 2: bytes
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
PUTS, GETS = frozenset({"PUT", "BINPUT", "LONG_BINPUT"}), frozenset({"GET", "BINGET", "LONG_BINGET"})
IGNORED = frozenset({"PROTO", "FRAME"})


class Refused(Exception):
    """Something in the pickle that is not data."""


class Machine:
    """A stack, a memo, and ``find(module, name)`` for the few names that data need."""

    def __init__(self, find: Callable[[str, str], Any]) -> None:
        self._find = find
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}
        self._depths: dict[int, int] = {}  # of tuples, by identity; the tuples live as long as the machine
        self._kept: list[Any] = []

    def run(self, data: bytes) -> Any:
        """What the pickle ends with."""
        for count, (opcode, argument, _) in enumerate(pickletools.genops(data)):
            if count > MOST_OPCODES:
                raise Refused(f"more than {MOST_OPCODES} instructions")
            if opcode.name == "STOP":
                break
            self._step(opcode.name, argument)
        return self._stack.pop()

    def _step(self, name: str, argument: Any) -> None:
        stack = self._stack
        if PUSH.fullmatch(name):
            stack.append(argument)
        elif name in STRINGS:
            stack.append(argument.encode("latin1"))
        elif name in PUTS:
            self._memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            self._memo[len(self._memo)] = stack[-1]
        elif name in GETS:
            stack.append(self._memo[argument])
        elif name in CONSTANTS:
            stack.append(CONSTANTS[name])
        elif name in EMPTY:
            stack.append(EMPTY[name]())
        elif name in TUPLES:
            self._tuple(self._take(len(stack) - TUPLES[name]))
        elif name == "MARK":
            self._marks.append(len(stack))
        elif name == "DUP":
            stack.append(stack[-1])
        elif name == "POP":  # a mark counts as an item
            if self._marks and self._marks[-1] == len(stack):
                self._marks.pop()
            else:
                stack.pop()
        elif name not in IGNORED:
            self._build(name, argument)

    def _build(self, name: str, argument: Any) -> None:
        stack = self._stack
        if name == "POP_MARK":
            self._marked()
        elif name == "TUPLE":
            self._tuple(self._marked())
        elif name == "LIST":
            stack.append(self._marked())
        elif name == "DICT":
            stack.append(_filled({}, self._marked()))
        elif name in ("APPEND", "APPENDS"):
            items = self._marked() if name == "APPENDS" else [stack.pop()]
            _of_type(stack[-1], list).extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = self._marked() if name == "SETITEMS" else self._take(len(stack) - 2)
            _filled(_of_type(stack[-1], dict), items)
        elif name == "GLOBAL":
            module, _, attribute = argument.partition(" ")
            stack.append(self._find(module, attribute))
        elif name == "STACK_GLOBAL":
            attribute, module = stack.pop(), stack.pop()
            stack.append(self._find(_of_type(module, str), _of_type(attribute, str)))
        elif name in ("REDUCE", "NEWOBJ"):
            arguments, function = _of_type(stack.pop(), tuple), stack.pop()
            stack.append(_answer(function)(*arguments))
        elif name == "BUILD":
            state, thing = stack.pop(), stack[-1]
            if not hasattr(type(thing), "__setstate__"):
                raise Refused(f"state for a {type(thing).__name__}")
            thing.__setstate__(state)
        elif name in ("INST", "OBJ"):
            raise Refused(f"the global {argument.replace(' ', '.')}" if name == "INST" else "an object")
        else:
            raise Refused(f"a {name.lower().removeprefix('empty_')}")

    def _take(self, start: int) -> list[Any]:
        """The items from ``start`` on, off the stack."""
        if start < (self._marks[-1] if self._marks else 0):
            raise Refused("fewer items than it says")
        items = self._stack[start:]
        del self._stack[start:]
        return items

    def _marked(self) -> list[Any]:
        start = self._marks.pop()
        items = self._stack[start:]
        del self._stack[start:]
        return items

    def _tuple(self, items: list[Any]) -> None:
        made = tuple(items)
        depth = 1 + max((self._depths.get(id(item), 0) for item in items if isinstance(item, tuple)), default=0)
        if depth > MOST_DEPTH:
            raise Refused("tuples that are nested too deep")
        if made:
            self._depths[id(made)] = depth
            self._kept.append(made)
        self._stack.append(made)


def _answer(function: Any) -> Callable[..., Any]:
    if not getattr(type(function), "answers", False):
        raise Refused(f"a call of a {type(function).__name__.strip('_').lower()}")
    found: Callable[..., Any] = function
    return found


def _of_type(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise Refused(f"a {type(value).__name__.strip('_').lower()} where a {kind.__name__} belongs")
    return value


def _filled(table: dict[Any, Any], items: list[Any]) -> dict[Any, Any]:
    """``table`` with keys and values from ``items``; keys are short text or numbers that cannot be made to collide."""
    if len(items) % 2:
        raise Refused("a key without a value")
    for key, value in zip(items[::2], items[1::2], strict=True):
        if not isinstance(key, str | bytes) and not (type(key) is int and abs(key) < 1 << 20):
            raise Refused(f"a table with a key that is a {type(key).__name__.strip('_').lower()}")
        table[key] = value
    return table
