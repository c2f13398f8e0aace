"""A device with memory of its own: what does not fit is refused before it runs, so that nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers import check_python
from tests.plugins import build_plugin

# Passes everything on to another plugin, but says that it has 256 MiB of memory and that half of it is in use.
PLUGIN = r"""
#include "plugin.h"

static PJRT_Error* name_of_platform(PJRT_Client_PlatformName_Args* args) {
  args->platform_name = "full";
  args->platform_name_size = 4;
  return NULL;
}

static PJRT_Error* stats_of_memory(PJRT_Device_MemoryStats_Args* args) {
  args->bytes_limit = 256 << 20;
  args->bytes_limit_is_set = true;
  args->bytes_in_use = 128 << 20;
  return NULL;
}

const PJRT_Api* GetPjrtApi(void) {
  open_real_plugin();
  api.PJRT_Client_PlatformName = name_of_platform;
  api.PJRT_Device_MemoryStats = stats_of_memory;
  return &api;
}
"""

CODE = """
import torch

torch.tpu.eager_mode = {mode!r}
weight = torch.arange(4.0, device="tpu", requires_grad=True)
for step in range(3):
    weight.data.add_(1)
    loss = (weight * weight).sum()
    try:
        rows = torch.ones(200 if step == 1 else 100, 1, device="tpu") * loss
        # A MiB in each row, of which only one element is read.
        torch.ones(1 << 18, device="tpu").mul(rows)[0, 0].item()
    except torch.OutOfMemoryError as error:
        print(error)
    loss.backward()
print(weight.tolist(), weight.grad.tolist(), torch.tpu.mem_get_info())
"""


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plugin")
    source = folder / "plugin.c"
    source.write_text(PLUGIN)
    return build_plugin(source, folder)


@pytest.mark.parametrize("mode", ["debug", "strict", "fused"])
def test_what_does_not_fit_is_refused_before_it_runs(plugin: Path, mode: str) -> None:
    code = CODE.format(mode=mode)
    refusal, results = check_python(code, TORCHTPU_PLUGIN=str(plugin)).splitlines()
    assert "tried to allocate 0.20 GiB. tpu:0 has a total capacity of 0.25 GiB of which 0.12 GiB is free" in refusal
    assert results == "[3.0, 4.0, 5.0, 6.0] [12.0, 18.0, 24.0, 30.0] (134217728, 268435456)"
