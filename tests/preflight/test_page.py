"""The report as a page."""

from __future__ import annotations

import itertools
import re
from html.parser import HTMLParser

import pytest
from torchtpu.preflight.analysis import Analysis, Owner
from torchtpu.preflight.chips import find
from torchtpu.preflight.mesh import Sent, parse
from torchtpu.preflight.pictures import WIDTH, flame, roofline
from torchtpu.preflight.recording import Program, Recording
from torchtpu.preflight.run import Report
from torchtpu.preflight.suggestions import Suggestion
from torchtpu.preflight.timing import Part

NAME = 'blocks.a<b>&"c"'
LINE = "/home/me/a<img src=x>&.py:7"
# Elements without an end tag.
VOID = {"meta", "br", "img", "link"}


class Page(HTMLParser):
    """What a browser sees: elements, their attributes and the text. Each element must be closed in its turn."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.data: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.data.append(data)


def report() -> Report:
    """A report with all that a page can show, for 16 ranks; names and lines have the characters of HTML."""
    sent = [Sent("data", 1e9, 2, LINE, step) for step in range(3)]
    program = Program("", [("mm", LINE, NAME)], [], [], [])
    recompiles = [(LINE, ["x<y & z"])]
    recording = Recording([program], 3, [(LINE, 3)], recompiles, failure="ValueError: <b> & <i>", sent=sent)
    sizes = {"parameters": 2**30, "activations": 2**31}
    parts = [
        Part(NAME, (0.5, 1.0), 1e13, 10**9, "compute", LINE),
        Part("norm", (0.1, 0.2), 0.0, 10**9, "memory", LINE),
    ]
    analysis = Analysis(
        total_bytes=sum(sizes.values()),
        bytes=sizes,
        owners=[Owner(2**30, "parameters", NAME, LINE)],
        parts=parts,
        seconds=(0.6, 1.2),
        flops=1e13,
        flops_seconds=0.05,
        padding=[],
        out_of_memory="",
        rematerialized=0,
        history=[sizes, sizes],
    )
    made = Report(find("v5e:4x4"), "v5e:4x4", recording, [(program, analysis)], mesh=parse("data=2,fsdp=8", "v5e:4x4"))
    made.suggestions = [Suggestion("a < b", LINE, 0.1, (0.5, 1.0))]
    return made


def test_the_page() -> None:
    """It loads nothing, its elements are closed, and what the user wrote is text."""
    made = report()
    page = Page(made.html())
    assert not {"script", "link", "img", "iframe", "b>"} & set(page.tags)
    assert not {"src", "href", "onload"} & {name for name, _ in page.attributes}
    assert not any(
        "url(" in text or "http" in text for text in [*page.data, *(value or "" for _, value in page.attributes)]
    )
    for text in (NAME, LINE, "The script failed: ValueError: <b> & <i>", "a < b", "x<y & z"):
        assert text in page.data, text
    # Memory by role, memory over the program, the flame, time by module, the roofline, and the ranks of the mesh.
    assert page.tags.count("svg") == 6
    assert ("name", "viewport") in page.attributes
    # Each table and picture scrolls by itself.
    assert page.attributes.count(("class", "wide")) == page.tags.count("svg") + page.tags.count("table")


def test_a_step_that_was_judged_in_part() -> None:
    made = report()
    made.recording.programs.append(Program("", [], [], [], []))
    made.problems = ["the compiler refuses the program: <bad>"]
    assert made.fits is None
    data = Page(made.html()).data
    assert "Not judged: the compiler refuses the program: <bad>" in data
    assert "not all of it was judged" in data
    assert "  what was judged of a step takes 3.00 GiB of 15.75 GiB (19%)" in str(made).splitlines()
    made.judged[0][1].total_bytes = 2**36
    assert made.fits is False


def rectangles(svg: str) -> list[tuple[float, float, float, str]]:
    """Left edge, top, width and title of each rectangle of a picture."""
    pattern = r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)".*?<title>(.*?)</title>'
    return [(float(x), float(y), float(width), title) for x, y, width, title in re.findall(pattern, svg)]


def test_the_flame_has_modules_below_those_that_have_them() -> None:
    parts = [
        Part("layers.0.mlp", (0.3, 0.6), bound="compute"),
        Part("layers.0.mlp (backward)", (0.3, 0.6), bound="memory"),
        Part("layers.1", (0.2, 0.4), bound="memory"),
        Part("optimizer", (0.2, 0.4), bound="interconnect"),
        Part("nothing", (0.0, 0.0), bound="memory"),
    ]
    found = rectangles(flame(parts))
    names = [title.partition(":")[0] for *_, title in found]
    assert names == ["a step", "layers", "layers.0", "layers.0.mlp", "layers.1", "optimizer"]
    left, top, width = ({name: each[i] for name, each in zip(names, found, strict=True)} for i in range(3))
    assert top["a step"] < top["layers"] == top["optimizer"] < top["layers.0"] == top["layers.1"] < top["layers.0.mlp"]
    assert width["layers.0.mlp"] == width["layers.0"] == pytest.approx(0.6 * WIDTH, abs=1)
    assert width["layers"] == pytest.approx(0.8 * WIDTH, abs=1)
    assert left["layers.1"] == pytest.approx(0.6 * WIDTH, abs=1)
    assert found[-1][3] == "optimizer: 200 ms, 20.0%, most of it bound by the network"


def test_names_on_the_roofline_are_apart() -> None:
    parts = [Part(f"layer {i}", (0.1, 0.2), 1e12, 10**9, "memory") for i in range(8)]
    svg = roofline(parts, find("v5e"))
    heights = sorted(float(y) for y in re.findall(r'<text x="[\d.]+" y="([\d.]+)">layer', svg))
    assert len(heights) == 5
    assert all(below - above >= 14.9 for above, below in itertools.pairwise(heights))


def test_a_module_that_the_network_bounds() -> None:
    made = report()
    made.recording.sent = [Sent("data", 1e12, 2, LINE, step, "norm") for step in range(3)]
    bounds = {part.name: part.bound for part in made.parts}
    assert bounds == {NAME: "compute", "norm": "interconnect"}
    assert all(each["network_seconds"] >= 0 for each in made.as_dict()["modules"])
