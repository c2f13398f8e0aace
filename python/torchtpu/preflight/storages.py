"""What the storages that programs read, write and leave alone are for."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from torchtpu.preflight.modules import BACKWARD, OPTIMIZER, ModuleNames, Storage, label


class Makers:
    """Follows the runs of an explanation in order. A storage is what a model's hooks say of it, or else what the call
    that has made it is. An address is never used again."""

    def __init__(self, programs: Sequence[dict[str, Any]], names: ModuleNames) -> None:
        self._programs = programs
        self._names = names
        self._made: dict[int, Storage] = {}
        self._forms: dict[int, _Form] = {}

    def follow(self, run: dict[str, Any]) -> None:
        """A run is over."""
        number = run["program"]
        program = self._programs[number]
        if number not in self._forms:
            self._forms[number] = _form_of(program["text"])
        made = _results(self._forms[number], calls_of(program, run), list(map(self.at, run["input_addresses"])))
        self._made.update(zip(run["result_addresses"], made, strict=False))

    def at(self, address: int) -> Storage:
        """The storage that shows an address."""
        made = self._made.get(address, Storage("inputs"))
        known = self._names.storages.get(address)
        return known._replace(line=known.line or made.line) if known else made

    def others(self, found: Sequence[tuple[int, int]]) -> list[tuple[Storage, int]]:
        """Storages with their bytes, from addresses with bytes; those that are for the same count once."""
        sums: Counter[Storage] = Counter()
        for address, size in found:
            sums[self.at(address)] += size
        return list(sums.items())


def calls_of(program: dict[str, Any], run: dict[str, Any]) -> list[tuple[str, str, str]]:
    """The calls of a program as a run of it made them: operator, line and module."""
    lines, modules = (run.get(name) or program[name] for name in ("lines", "modules"))
    return list(zip(program["calls"], lines, modules, strict=True))


class _Form(NamedTuple):
    """What the calls of a program read and make: for each call the names of its results and the numbers of the inputs
    that it takes, and the names of the program's results."""

    calls: list[tuple[list[str], list[int]]]
    results: list[str]


def _form_of(text: str) -> _Form:
    main = text.split("func.func private")[0]
    calls = re.findall(r"^(?:(%[^=\n]*?) = )?func\.call @\w+\(([^)]*)\)", main, re.MULTILINE)
    returned = re.search(r'^"func\.return"\(([^)]*)\)', main, re.MULTILINE)
    return _Form(
        [(names.split(", "), list(map(int, re.findall(r"%i(\d+)", arguments)))) for names, arguments in calls],
        returned[1].split(", ") if returned else [],
    )


def _results(form: _Form, calls: Sequence[tuple[str, str, str]], inputs: Sequence[Storage]) -> list[Storage]:
    """What each result of a program is, by the call that makes it."""
    makers: dict[str, Storage] = {}
    for (names, taken), (operator, line, module) in zip(form.calls, calls, strict=False):
        read = [inputs[number] for number in taken if number < len(inputs)]
        made = Storage(_role(operator, module, read), label(module, operator), line)
        makers.update(dict.fromkeys(names, made))
    return [makers.get(name, Storage("inputs")) for name in form.results]


def _role(operator: str, module: str, read: Sequence[Storage]) -> str:
    # FSDP copies the parameters of a module out of what it has gathered.
    if operator.startswith("split_with_sizes_copy") and any(storage.role == "gathered" for storage in read):
        return "gathered"
    return "temporaries" if module == OPTIMIZER or module.endswith(BACKWARD) else "activations"
