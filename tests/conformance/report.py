"""The summary of a run, as text, as JSON and as one page."""

from __future__ import annotations

import dataclasses
import html
import json
from collections import Counter, defaultdict
from pathlib import Path

from tests.conformance.cases import COMPILED_DTYPES, DIRECTIONS, Case
from tests.conformance.exceptions import expected_failure
from tests.conformance.judge import Verdict

STATUSES = ("pass", "fail", "crash", "hang", "skip")


@dataclasses.dataclass
class Summary:
    by_group: dict[str, Counter[str]]
    """Counts of statuses by "dtype direction mode"."""
    unexpected: list[Verdict]
    stale: list[str]
    """Patterns of expected failures whose cases all pass."""

    @property
    def total(self) -> Counter[str]:
        return sum(self.by_group.values(), Counter())

    @property
    def is_good(self) -> bool:
        return not self.unexpected and not self.stale

    def text(self) -> str:
        lines = [f"{group:34} {_counts(counts)}" for group, counts in (*self.by_group.items(), ("all", self.total))]
        lines += [f"expected to fail, but passes: {name}" for name in self.stale]
        return "\n".join([*lines, f"{len(self.unexpected)} failures that are not listed"])


def _counts(counts: Counter[str]) -> str:
    judged = sum(counts[status] for status in STATUSES if status != "skip")
    share = f"{100 * counts['pass'] / judged:6.2f} %" if judged else "     none"
    return f"{share} of {judged:5}  " + "  ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status])


def summarize(verdicts: list[Verdict], is_optimized: bool) -> Summary:
    by_group: dict[str, Counter[str]] = defaultdict(Counter)
    by_pattern: dict[str, Counter[bool]] = defaultdict(Counter)
    unexpected = []
    for verdict in verdicts:
        by_group[" ".join(Case.parse(verdict.case)[1:])][verdict.status] += 1
        if listed := expected_failure(verdict.case):
            by_pattern[listed[0]][verdict.status != "pass"] += 1
        elif verdict.is_failure:
            unexpected.append(verdict)
    order = {name: place for place, name in enumerate((*COMPILED_DTYPES, *DIRECTIONS))}
    return Summary(
        dict(sorted(by_group.items(), key=lambda group: [order.get(part, 99) for part in group[0].split()])),
        unexpected,
        # Without optimizations a result may be more precise than with them.
        [pattern for pattern, counts in by_pattern.items() if is_optimized and not counts[True]],
    )


def write_report(folder: Path, summary: Summary, verdicts: list[Verdict]) -> None:
    """summary.json and index.html."""
    content = {
        "total": summary.total,
        "groups": summary.by_group,
        "unexpected": [dataclasses.asdict(verdict) for verdict in summary.unexpected],
        "stale": summary.stale,
    }
    (folder / "summary.json").write_text(json.dumps(content, indent=1) + "\n")
    (folder / "index.html").write_text(_page(summary, verdicts))


STYLE = """
body { font: 14px system-ui, sans-serif; margin: 2em; color: #222 }
table { border-collapse: collapse } th { text-align: left; font-weight: 500 }
thead th { position: sticky; top: 0; background: #fff; font-size: 11px; vertical-align: bottom; padding: 2px 4px }
td { border: 1px solid #fff; min-width: 3.2em; height: 1.5em; text-align: center; font-size: 11px }
.pass { background: #cdeccd } .fail { background: #f4b9b0 } .crash, .hang { background: #c33; color: #fff }
.skip { background: #eee } .expected { background: #f6e3a8 } tbody th { padding-right: 1em }
details { margin: .3em 0 } pre { white-space: pre-wrap; margin: .2em 0 1em 1.5em } input { font: inherit; width: 24em }
"""
SCRIPT = """
const find = document.getElementById('find'), only = document.getElementById('only');
function show() {
  for (const row of document.querySelectorAll('tbody tr, details'))
    row.hidden = !row.dataset.name.includes(find.value) || (only.checked && row.dataset.bad === '0');
}
find.oninput = only.onchange = show;
"""


def _page(summary: Summary, verdicts: list[Verdict]) -> str:
    by_subject: dict[str, dict[tuple[str, str], list[Verdict]]] = defaultdict(lambda: defaultdict(list))
    for verdict in verdicts:
        subject, dtype, direction, _ = Case.parse(verdict.case)
        by_subject[subject][direction, dtype].append(verdict)
    used = {cell for cells in by_subject.values() for cell in cells}
    columns = [
        (direction, dtype) for direction in DIRECTIONS for dtype in COMPILED_DTYPES if (direction, dtype) in used
    ]
    head = "".join(f"<th>{direction}<br>{dtype}" for direction, dtype in columns)
    rows = "".join(
        _row(subject, [cells.get(column, []) for column in columns]) for subject, cells in by_subject.items()
    )
    failures = "".join(_failure(verdict) for verdict in verdicts if verdict.is_failure)
    return (
        "<!doctype html><meta charset=utf-8><title>Conformance of torchtpu</title>"
        f"<style>{STYLE}</style><h1>Conformance of torchtpu</h1>"
        "<p>What PyTorch tests of its operators, modules and optimizers, on <code>tpu</code> against the CPU. "
        "A cell holds all modes; point at it for the reason.</p>"
        f"<pre>{html.escape(summary.text())}</pre>"
        "<p><input id=find placeholder='part of a name'> <label><input type=checkbox id=only style='width:auto'>"
        f"failures only</label><table><thead><tr><th>{head}<tbody>{rows}</table>"
        f"<h2>Failures</h2>{failures or 'None.'}<script>{SCRIPT}</script>\n"
    )


def _row(subject: str, cells: list[list[Verdict]]) -> str:
    is_bad = any(verdict.is_failure for cell in cells for verdict in cell)
    name = html.escape(subject)
    return f"<tr data-name='{name}' data-bad={is_bad:d}><th>{name}" + "".join(_cell(cell) for cell in cells)


def _cell(verdicts: list[Verdict]) -> str:
    if not verdicts:
        return "<td>"
    worst = max(verdicts, key=lambda verdict: (verdict.is_failure, STATUSES.index(verdict.status), verdict.failed))
    kind = "expected" if worst.is_failure and expected_failure(worst.case) else worst.status
    count = f"{worst.passed}/{worst.passed + worst.failed}" if worst.status != "skip" else ""
    why = html.escape(f"{worst.case}: {worst.why}" if worst.why else worst.case, quote=True)
    return f'<td class={kind} title="{why}">{count}'


def _failure(verdict: Verdict) -> str:
    listed = expected_failure(verdict.case)
    reason = f"\nexpected: {listed[1]}" if listed else ""
    text = html.escape(f"on {verdict.inputs}\n{verdict.why}{reason}")
    name = html.escape(verdict.case)
    return (
        f"<details data-name='{name}' data-bad=1><summary>{verdict.status} {name}</summary><pre>{text}</pre></details>"
    )
