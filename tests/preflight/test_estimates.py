"""From texts of programs and of the compiler to figures, changes and pictures."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn import functional as F
from torchtpu.preflight import changes, hlo, pictures
from torchtpu.preflight.chips import find
from torchtpu.preflight.mesh import parse
from torchtpu.preflight.recording import Program, Recording
from torchtpu.preflight.remedies import remedy
from torchtpu.preflight.suggestions import Nomination, nominate
from torchtpu.preflight.timing import Part
from torchtpu.preflight.work import Attention, FilledHeads, Work, products_of_functions, work_of_calls

from tests.preflight.recorded import product

DATA = Path(__file__).parent / "data"


def nominated(text: str) -> list[Nomination]:
    program = Program(text, [("bmm", "train.py:7", "")], [], [], [])
    return nominate(Recording([program], 3, [], []))


def test_work() -> None:
    """float32 is multiplied in six parts, and tiles that are not full are counted whole."""
    assert work_of_calls(product(256, 128, 512)) == {0: Work(2.0 * 256 * 128 * 512, 6 * 2.0 * 256 * 128 * 512)}
    assert work_of_calls(product(256, 64, 512, "bf16")) == {0: Work(2.0 * 256 * 64 * 512, 2.0 * 256 * 128 * 512)}
    # A kernel of splash attention over a batch of heads that were filled up from 64 places.
    heads = "tensor<2x4x256x128xbf16>"
    kernel = f"""func.func private @op0(%v0: {heads}) -> ({heads}) {{
%0 = stablehlo.pad %v0, %c, high = [0, 0, 0, 64] : (tensor<2x4x256x64xbf16>, tensor<bf16>) -> {heads}
%1 = stablehlo.custom_call @tpu_custom_call(%i, %0, %0) {{kernel_name = "splash_mha_fwd"}} : \
(tensor<1x2x2xi8>, {heads}, {heads}) -> ({heads})
}}"""
    whole = 2 * (2.0 * 8 * 256 * 256 * 128)
    filled, attention = products_of_functions(kernel)["op0"]
    assert filled == FilledHeads(width=64)
    assert attention == Attention(whole, whole / 2)
    # A column costs as little as eight.
    assert work_of_calls(product(4096, 128, 1, "bf16")) == {0: Work(2.0 * 4096 * 128, 2.0 * 4096 * 128 * 8)}


def test_nominations() -> None:
    (precise,) = nominated(product(256, 128, 512))
    assert (precise.line, "bfloat16" in precise.what) == ("train.py:7", True)
    changed = precise.applied(Program(product(256, 128, 512), [], [], [], [])).text
    assert "HIGHEST" not in changed
    assert changed.count("precision DEFAULT") == 2
    assert nominated(product(4096, 4096, 50257, "bf16")) == []  # 50304 would gain a thousandth
    (padded,) = nominated(product(4096, 257, 4096, "bf16"))
    assert "256 instead of 257" in padded.what
    changed = padded.applied(Program(product(4096, 257, 4096, "bf16"), [], [], [], [])).text
    assert changed == product(4096, 256, 4096, "bf16")
    (heads,) = nominated(product(1024, 64, 1024, "bf16", batch=16))
    assert heads.change == "head_dim=128"
    assert nominated(product(1024, 128, 1024, "bf16", batch=16)) == []


def test_int64_in_the_place_of_int32() -> None:
    """Types become int32, with constants that it has; attributes stay."""
    lines = (
        '%v1 = "stablehlo.constant"() {value = dense<-9223372036854775808> : tensor<i64>} : () -> tensor<i64>',
        '%v2 = "stablehlo.broadcast_in_dim"(%v1) {dims = array<i64>} : (tensor<i64>) -> tensor<512x512xi64>',
        '%v3 = "stablehlo.pad"(%v0) {low = array<i64: 1>, padding = dense<0> : tensor<2xi64>} : (tensor<512x512xi64>)',
    )
    text = product(8, 8, 8, "i64").replace("8x8", "512x512").replace("%v2 =", "\n".join((*lines, "%v2 =")), 1)
    (narrow,) = nominated(text)
    assert narrow.what.startswith("whole numbers in int32")
    changed = narrow.applied(Program(text, [], [], [], [])).text
    assert "dense<-2147483648> : tensor<i32>} : () -> tensor<i32>" in changed
    assert "array<i64>} : (tensor<i32>) -> tensor<512x512xi32>" in changed
    assert "array<i64: 1>, padding = dense<0> : tensor<2xi64>} : (tensor<512x512xi32>)" in changed
    few = text.replace("func.func private @op0(", "func.func private @op0(%v9: tensor<8192x8192xbf16>, ")
    assert nominated(few) == []


@pytest.mark.parametrize(
    ("why", "words"),
    [
        (
            "add: argument 1 changed from float32[4, 8] to float32[4, 9] at train.py:7",
            "dimension 1 changes from 8 to 9: pad it to few sizes, or say so of the tensor x that it comes from, "
            "where it is dimension d: torch.tpu.mark_dynamic(x, d, max=9)",
        ),
        ("add: argument 2 changed from float32[] to float32[4]", "the number of dimensions changes"),
        ("add: argument 2 changed from float32[4] to bfloat16[4]", "the dtype changes from float32 to bfloat16"),
        ("add: argument 2 changed from float32[4] to float32[4, 4]", "the number of dimensions changes"),
        ("mul: argument 2 changed from 0.5 to 0.25", "a number changes"),
        ("mul: its first call at train.py:7", "for the first time"),
    ],
)
def test_remedies(why: str, words: str) -> None:
    assert words in remedy([why])
    assert remedy(["the same calls in another order"]) == ""
    assert "for the first time" in remedy([why, "mul: its first call at train.py:7"])


def test_pictures() -> None:
    history = [{"parameters": 2**30}, {"parameters": 2**30, "activations": 2**31}]
    drawn = pictures.memory_over_step(history, 2**34)
    assert all(f"<title>{role}</title>" in drawn for role in ("parameters", "activations"))
    parts = [Part("mlp", (0.5, 1.0), 1e14, 10**9, "compute"), Part("norm", (0.1, 0.2), 0.0, 10**9, "memory")]
    assert pictures.roofline(parts, find("v5e")).count("<circle") == 1
    mesh = parse("data=2,fsdp=8", "v5e:4x4")
    assert mesh is not None
    assert (mesh.group_of_first("data"), mesh.group_of_first("fsdp")) == ([0, 8], list(range(8)))
    assert pictures.groups(mesh, ["data", "fsdp"]).count("<rect") == 32


def test_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    attention = F.scaled_dot_product_attention
    monkeypatch.setattr(F, "scaled_dot_product_attention", attention)
    monkeypatch.setattr(torch.utils.data.DataLoader, "__init__", torch.utils.data.DataLoader.__init__)
    taken, check = changes.apply("batch=8", ["--size", "{batch}"])
    assert taken == ["--size", "8"]
    check()
    taken, check = changes.apply("batch=3,head_dim=128", ["--size", "2"])
    with pytest.raises(changes.ChangeError, match="the script makes no DataLoader"):
        check()
    batches = list(torch.utils.data.DataLoader(torch.arange(7), batch_size=2))  # type: ignore[arg-type]
    assert [len(batch) for batch in batches] == [3, 3, 1]
    # Four heads of 64 become two of 128: those of a model whose places are viewed so.
    x = torch.randn(2, 5, 256)
    four, two = (x.view(2, 5, -1, width).transpose(1, 2) for width in (64, 128))
    joined = F.scaled_dot_product_attention(four, four, four, is_causal=True)
    expected = attention(two, two, two, is_causal=True).transpose(1, 2).reshape(x.shape)
    torch.testing.assert_close(joined.transpose(1, 2).reshape(x.shape), expected)
    check()
    with pytest.raises(changes.ChangeError, match="there is no change 'speed=9'"):
        changes.apply("speed=9", [])


def test_schedule() -> None:
    """A fusion of a matrix product, with its weights copied to the chip's own memory before."""
    module = hlo.parse((DATA / "schedule.txt").read_text())
    fusion = module.computations[module.entry][-1]
    assert (module.entry, fusion.opcode, fusion.cycles) == ("main", "fusion", 1829)
    assert module.calls_of(fusion) == {3}
    # The compiler's own copy serves the fusion.
    assert module.call_of("copy-start.1") == 3
    # f32[128,64] is padded to 128 columns; the weights of the fusion lie in the chip's own memory.
    assert (fusion.shapes[0].padded, fusion.shapes[0].dense) == (128 * 128 * 4, 128 * 64 * 4)
    done = module.computations[module.entry][3]
    assert [shape.in_memory for shape in done.shapes] == [False]


def test_traffic() -> None:
    """Of what an instruction slices, and of what it writes in place, the parts count."""
    module = hlo.parse("""
%taking (p0: f32[1024,128], p1: f32[8,128]) -> f32[1024,128] {
  %p0 = f32[1024,128]{1,0:T(8,128)} parameter(0)
  %p1 = f32[8,128]{1,0:T(8,128)} parameter(1)
  %same = f32[1024,128]{1,0:T(8,128)} bitcast(%p0)
  %part = f32[8,128]{1,0:T(8,128)} slice(%same), slice={[0:8], [0:128]}
  %sum = f32[8,128]{1,0:T(8,128)} add(%part, %p1)
  ROOT %whole = f32[1024,128]{1,0:T(8,128)} dynamic-update-slice(%p0, %sum, %at, %at)
}
ENTRY %main (a: f32[1024,128], b: f32[8,128]) -> f32[1024,128] {
  %a = f32[1024,128]{1,0:T(8,128)} parameter(0)
  %b = f32[8,128]{1,0:T(8,128)S(1)} parameter(1)
  %rows = f32[16,128]{1,0:T(8,128)} dynamic-slice(%a, %i, %i), dynamic_slice_sizes={16,128}
  %fusion.1 = f32[1024,128]{1,0:T(8,128)} fusion(%a, %b), kind=kLoop, calls=%taking
  ROOT %negate = f32[1024,128]{1,0:T(8,128)} negate(%fusion.1)
}
""")
    row = 128 * 4
    rows, fusion, negate = module.body[2:]
    assert [module.traffic(each) for each in (rows, fusion, negate)] == [2 * 16 * row, 2 * 8 * row, 2 * 1024 * row]


def test_assignment() -> None:
    blocks = hlo.allocations((DATA / "assignment.txt").read_text())
    assert [(block.kind, block.size) for block in blocks] == [
        ("parameter", 65536),
        ("output", 65536),
        ("temporary", 4096),
    ]
    assert blocks[2].values == [("copy.1", 2048, 0), ("copy.2", 2048, 2048)]
    assert hlo.total_bytes(blocks) == 2 * 65536 + 4096
    ranges = "  InstructionSequence:\n    0:a\n  BufferLiveRange:\n    copy.1{0}:3-7\n    copy.1{1}:1-4\n  Live ranges"
    assert hlo.live_ranges(ranges) == {"copy.1": (1, 7)}
