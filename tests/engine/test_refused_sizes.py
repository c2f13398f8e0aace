"""A compiler that refuses programs with sizes as inputs: the operators run on exact values instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers import check_python
from tests.plugins import build_plugin_of

# Passes everything on to another plugin, but breaks programs over tensors whose first dimension has 16 elements: the
# least capacity of a dimension that changes.
PLUGIN = r"""
#define _GNU_SOURCE
#include "plugin.h"

static PJRT_Error* compile_unless_padded(PJRT_Client_Compile_Args* args) {
  const PJRT_Program* given = args->program;
  if (memmem(given->code, given->code_size, "tensor<16x", 10) == NULL) return real.PJRT_Client_Compile(args);
  PJRT_Program broken = *given;
  broken.code_size = 7;
  args->program = &broken;
  PJRT_Error* error = real.PJRT_Client_Compile(args);
  args->program = given;
  return error;
}

const PJRT_Api* GetPjrtApi(void) {
  open_real_plugin();
  api.PJRT_Client_Compile = compile_unless_padded;
  return &api;
}
"""

CODE = """
import torch

torch.tpu.set_eager_mode({mode!r})
for length in (5, 9, 13, 7, 11):
    x = torch.randn(length, 3)
    with torch.tpu.explain() as explanation:
        y = x.to("tpu").relu() * 2
        y[1:].add_(1)
        total = y.t() @ y
    expected = x.relu() * 2
    expected[1:].add_(1)
    torch.testing.assert_close(y.cpu(), expected)
    torch.testing.assert_close(total.cpu(), expected.t() @ expected)
print(explanation)
"""


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_plugin_of(PLUGIN, tmp_path_factory.mktemp("plugin"))


@pytest.mark.parametrize("mode", ["debug", "strict", "fused"])
def test_operators_run_on_exact_values(plugin: Path, mode: str) -> None:
    printed = check_python(CODE.format(mode=mode), TORCHTPU_PLUGIN=str(plugin), TORCHTPU_SIZES="dynamic")
    assert "the compiler refuses its program with sizes as inputs" in printed
