"""What the storages that programs read, write and leave alone are for."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from torchtpu.preflight.modules import BACKWARD, OPTIMIZER, ModuleNames, Storage, label


class Makers:
    """Follows the runs of an explanation in order. A storage is what a model's hooks say of it, or else what the call
    that has made it is. An address is never used again."""

    def __init__(self, programs: Sequence[dict[str, Any]], names: ModuleNames) -> None:
        self._programs = programs
        self._names = names
        self._made: dict[int, Storage] = {}
        self._results: dict[int, list[Storage]] = {}

    def follow(self, run: dict[str, Any]) -> None:
        """A run is over."""
        number = run["program"]
        if number not in self._results:
            program = self._programs[number]
            self._results[number] = results_of(program, [self.at(address) for address in program["input_addresses"]])
        self._made.update(zip(run.get("result_addresses", ()), self._results[number], strict=False))

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


def results_of(program: dict[str, Any], inputs: Sequence[Storage]) -> list[Storage]:
    """What each result of a program is, by the call that makes it."""
    main = program["text"].split("func.func private")[0]
    makers: dict[str, Storage] = {}
    calls = re.findall(r"^(?:(%[^=\n]*?) = )?func\.call @\w+\(([^)]*)\)", main, re.MULTILINE)
    for (names, arguments), operator, line, module in zip(
        calls, program["calls"], program["lines"], program["modules"], strict=False
    ):
        read = [inputs[int(number)] for number in re.findall(r"%i(\d+)", arguments) if int(number) < len(inputs)]
        made = Storage(_role(operator, module, read), label(module, operator), line)
        makers.update(dict.fromkeys(names.split(", "), made))
    returned = re.search(r'^"func\.return"\(([^)]*)\)', main, re.MULTILINE)
    return [makers.get(name, Storage("inputs")) for name in (returned[1].split(", ") if returned else ())]


def _role(operator: str, module: str, read: Sequence[Storage]) -> str:
    # FSDP copies the parameters of a module out of what it has gathered.
    if operator.startswith("split_with_sizes_copy") and any(storage.role == "gathered" for storage in read):
        return "gathered"
    return "temporaries" if module == OPTIMIZER or module.endswith(BACKWARD) else "activations"
