"""docs/operators.md: which operators run for which dtypes, and how. `python -m tests.conformance.matrix` writes
it. With names of operators it writes their lines only.

A sample of each operator is recorded on the device for each dtype, which lowers all operators that it calls. It is
never run.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Collection, Iterable
from pathlib import Path

import torch
import torchtpu  # noqa: F401 (registers the device)

from tests.conformance import dispatcher
from tests.conformance.ahead import TOPOLOGIES
from tests.conformance.cases import COMPILED_DTYPES, Case, subjects
from tests.conformance.exceptions import REFUSALS, expected_failure, listed
from tests.conformance.operators import Operator
from tests.conformance.places import CPU, DEVICE, Trial

PAGE = Path(__file__).parents[2] / "docs" / "operators.md"
COLUMNS = {
    "bool": ("bool",),
    "uint8": ("uint8",),
    "int8 to int64": ("int8", "int16", "int32", "int64"),
    "float16, bfloat16": ("float16", "bfloat16"),
    "float32": ("float32",),
    "float64": ("float64",),
    "complex64": ("complex64",),
    "complex128": ("complex128",),
}
ROW, DECOMPOSITION, NONE, NOTHING = "●", "○", "✕", ""
# The number of samples for each operator and dtype.
SAMPLES = 3

# The reasons of refusals by a TPU's compiler, in the order of the list.
NOTES = [*dict.fromkeys(reason for _, reason in listed(REFUSALS))]
VERSION = torch.__version__.partition("+")[0]

HEAD = f"""# Operators

What PyTorch lists as its operators, and how torchtpu runs each for each dtype that PyTorch's CPU or CUDA has it for.
Written by `make docs`; do not edit.

| | |
|---|---|
| {ROW} | rows of [the table](../crates/aten/src/ops) lower all that it calls |
| {DECOMPOSITION} | PyTorch decomposes it, or some of what it calls, into rows |
| {NONE} | it is refused, with an error that says why |
| | PyTorch does not have it for that dtype |

Torch is {VERSION}. Where a column holds several dtypes and they differ, the worst is shown. Tensors can also be of
uint16, uint32 and uint64, for what PyTorch itself does with them.

How exact the results are is what `make conformance` finds. The cases that differ from the CPU's stand with their
reasons in [expected_failures.toml](../tests/conformance/expected_failures.toml).

## On a TPU

The column TPU says what libtpu's compiler takes of that, forward and backward: {ROW} all that it was asked about, else
all but the dtypes given, for the reason with that number. `make conformance-tpu` asks; so far it was about each
operator and dtype on v5e (of float64 a quarter), and on v6e about each with bfloat16 and half of them with float32,
int64 and bool: libtpu takes minutes for each.
A call of what it does not take raises NotImplementedError with the reason.

A TPU has no 64-bit numbers. Its compiler makes an int64 of two int32, which is exact, and a float64 of two float32,
which has about 48 bits and the range of a float32; so it does with complex128.

{"".join(f"{number}. {reason}{chr(10)}" for number, reason in enumerate(NOTES, 1))}
## The operators

| operator | {" | ".join(COLUMNS)} | TPU |
|---|{"|".join(":-:" for _ in COLUMNS)}|:-:|
"""


def lines(names: Iterable[str]) -> list[str]:
    """The table's lines for these operators."""
    with warnings.catch_warnings(), torch.tpu.set_eager_mode("fused"):
        warnings.simplefilter("ignore")
        return [_line(name) for name in names]


def operators() -> list[str]:
    """The operators on the page, in order."""
    return sorted((name for name, subject in subjects().items() if isinstance(subject, Operator)), key=str.lower)


def stale(names: Iterable[str], columns: Iterable[str]) -> list[str]:
    """The entries of these operators in these columns that differ from the device."""
    written = {name: line.split(" | ") for name, line in _written().items()}
    found = []
    with warnings.catch_warnings(), torch.tpu.set_eager_mode("fused"):
        warnings.simplefilter("ignore")
        for name in names:
            for column in columns:
                cell = _cell(subjects()[name], column)
                on_page = written[name][1 + list(COLUMNS).index(column)].strip() if name in written else "no line"
                if cell != on_page:
                    found.append(f"{name}, {column}: the page says {on_page!r}, the device {cell!r}")
    return found


def page(names: Collection[str] = ()) -> str:
    """The page. With names, all other operators keep the lines that they have."""
    table = _written() if names else {}
    new = [name for name in operators() if name in names or name not in table]
    table.update(zip(new, lines(new), strict=True))
    return HEAD + "\n".join(table[name] for name in operators()) + "\n" + dispatcher.section()


def _written() -> dict[str, str]:
    """The lines of the table as they are on the page, by operator."""
    return {line.split("`")[1]: line for line in PAGE.read_text().splitlines() if line.startswith("| `")}


def _line(name: str) -> str:
    operator = subjects()[name]
    assert isinstance(operator, Operator)
    return f"| `{name}` | {' | '.join(_cell(operator, column) for column in COLUMNS)} | {_on_tpus(operator)} |"


def _cell(operator: Operator, column: str) -> str:
    either = operator.info.supported_dtypes("cpu") | operator.info.supported_dtypes("cuda")
    supported = {str(dtype).removeprefix("torch.") for dtype in either}
    order = [NOTHING, ROW, DECOMPOSITION, NONE]
    dtypes = [dtype for dtype in COLUMNS[column] if dtype in supported]
    return max((_how(operator, dtype) for dtype in dtypes), key=order.index, default=NOTHING)


def _on_tpus(operator: Operator) -> str:
    """The notes on an operator, each with its dtypes."""
    dtypes: dict[str, list[str]] = {}
    for dtype in COMPILED_DTYPES:
        for direction in operator.directions(getattr(torch, dtype)):
            for chip in TOPOLOGIES:
                if (refusal := expected_failure(str(Case(operator.name, dtype, direction, chip)))) is None:
                    continue
                about = dtypes.setdefault(refusal[1], [])
                if dtype not in about:
                    about.append(dtype)
    return "; ".join(f"{', '.join(about)} [{NOTES.index(why) + 1}]" for why, about in dtypes.items()) or ROW


def _how(operator: Operator, dtype: str) -> str:
    """What runs an operator for a dtype."""
    torch.tpu.reset_op_stats()
    try:
        trials = operator.trials(getattr(torch, dtype), "forward", SAMPLES, 0)
    except Exception:
        return NOTHING  # PyTorch's own samples fail
    found = NOTHING
    for trial in trials:
        try:
            trial.program(DEVICE)
        except NotImplementedError:
            if operator.is_for_cuda_only(getattr(torch, dtype)) or _runs_on_cpu(trial):
                return NONE
            continue
        except Exception:
            continue
        found = DECOMPOSITION if torch.tpu.op_stats()["decomposed"] else ROW
    return found


def _runs_on_cpu(trial: Trial) -> bool:
    try:
        trial.program(CPU)
    except Exception:
        return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance.matrix",
        description="Writes docs/operators.md: which operators run for which dtypes, and by what. Takes minutes. Fails "
        "if the page was stale.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="write only the lines of these operators: ten seconds")
    names = parser.parse_args().names
    if unknown := set(names).difference(operators()):
        parser.error(f"PyTorch's lists have no {', '.join(sorted(unknown))}")
    text = page(names)
    is_stale = not PAGE.exists() or PAGE.read_text() != text
    PAGE.write_text(text)
    if is_stale:
        print(f"{PAGE.name} was stale and is written anew: commit it", file=sys.stderr)
    return int(is_stale)


if __name__ == "__main__":
    sys.exit(main())
