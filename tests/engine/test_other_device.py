"""A device with memory of its own, of which its plugin tells more than the CPU's does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers import check_python
from tests.plugins import build_plugin_of

# Passes everything on to another plugin, but says that the device has 132 cores, and 256 MiB of memory, of which half
# is in use.
PLUGIN = r"""
#include "plugin.h"

static PJRT_Error* name_of_platform(PJRT_Client_PlatformName_Args* args) {
  args->platform_name = "other";
  args->platform_name_size = 5;
  return NULL;
}

static PJRT_Error* stats_of_memory(PJRT_Device_MemoryStats_Args* args) {
  args->bytes_limit = 256 << 20;
  args->bytes_limit_is_set = true;
  args->bytes_in_use = 128 << 20;
  return NULL;
}

static PJRT_NamedValue attributes[] = {
  {.struct_size = PJRT_NamedValue_STRUCT_SIZE, .name = "core_count", .name_size = 10,
   .type = PJRT_NamedValue_kInt64, .int64_value = 132, .value_size = 1},
  {.struct_size = PJRT_NamedValue_STRUCT_SIZE, .name = "compute_capability", .name_size = 18,
   .type = PJRT_NamedValue_kString, .string_value = "9.0", .value_size = 3},
};

static PJRT_Error* attributes_of_device(PJRT_DeviceDescription_Attributes_Args* args) {
  args->attributes = attributes;
  args->num_attributes = 2;
  return NULL;
}

const PJRT_Api* GetPjrtApi(void) {
  open_real_plugin();
  api.PJRT_Client_PlatformName = name_of_platform;
  api.PJRT_DeviceDescription_Attributes = attributes_of_device;
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
    return build_plugin_of(PLUGIN, tmp_path_factory.mktemp("plugin"))


@pytest.mark.parametrize("mode", ["debug", "strict", "fused"])
def test_what_does_not_fit_is_refused_before_it_runs(plugin: Path, mode: str) -> None:
    """Where the plugin refuses it, all results of the run are lost."""
    code = CODE.format(mode=mode)
    refusal, results = check_python(code, TORCHTPU_PLUGIN=str(plugin)).splitlines()
    assert "tpu out of memory. Tried to allocate 0.20 GiB." in refusal
    assert "tpu:0 has a total capacity of 0.25 GiB of which 0.12 GiB is free" in refusal
    assert results == "[3.0, 4.0, 5.0, 6.0] [12.0, 18.0, 24.0, 30.0] (134217728, 268435456)"


def test_attributes_of_the_device(plugin: Path) -> None:
    code = """
import torch
properties = torch.tpu.get_device_properties()
print(properties.multi_processor_count, properties.attributes["compute_capability"], properties.total_memory)
"""
    assert check_python(code, TORCHTPU_PLUGIN=str(plugin)) == "132 9.0 268435456\n"
