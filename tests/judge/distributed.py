"""PyTorch's tests of torch.distributed: the files, and a plugin of the pytest that runs them."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing import context
from typing import Any

from tests.judge.imports import when_imported

# Files whose tests ask the harness for the device instead of naming CUDA.
FILES = (
    "_tensor/debug/test_comm_mode.py",
    "_tensor/debug/test_comm_mode_features.py",
    "_tensor/debug/test_op_coverage.py",
    "_tensor/experimental/test_local_map.py",
    "_tensor/experimental/test_register_sharding.py",
    "_tensor/experimental/test_tp_transform.py",
    "_tensor/test_api.py",
    "_tensor/test_common_rules.py",
    "_tensor/test_convolution_ops.py",
    "_tensor/test_dtensor.py",
    "_tensor/test_dtensor_compile.py",
    "_tensor/test_embedding_ops.py",
    "_tensor/test_experimental_ops.py",
    "_tensor/test_init.py",
    "_tensor/test_math_ops.py",
    "_tensor/test_matrix_ops.py",
    "_tensor/test_op_strategy.py",
    "_tensor/test_optimizers.py",
    "_tensor/test_pointwise_ops.py",
    "_tensor/test_random_ops.py",
    "_tensor/test_redistribute.py",
    "_tensor/test_tensor_ops.py",
    "_tensor/test_utils.py",
    "_tensor/test_view_ops.py",
    "_composable/fsdp/test_fully_shard_init.py",
    "_composable/fsdp/test_fully_shard_state_dict.py",
    "_composable/fsdp/test_fully_shard_training.py",
    "_composable/test_checkpoint.py",
    "_composable/test_contract.py",
    "_composable/test_replicate.py",
    "_composable/test_replicate_with_compiler.py",
    "algorithms/test_join.py",
    "checkpoint/e2e/test_e2e_save_and_load.py",
    "checkpoint/e2e/test_fine_tuning.py",
    "checkpoint/test_checkpoint.py",
    "checkpoint/test_dedup_tensors.py",
    "checkpoint/test_dtensor_checkpoint.py",
    "checkpoint/test_dtensor_resharding.py",
    "checkpoint/test_file_system_checkpoint_cpu.py",
    "checkpoint/test_format_utils.py",
    "checkpoint/test_nested_dict.py",
    "checkpoint/test_planner.py",
    "checkpoint/test_save_load_api.py",
    "checkpoint/test_state_dict.py",
    "checkpoint/test_state_dict_utils.py",
    "checkpoint/test_tp_checkpoint.py",
    "checkpoint/test_traverse.py",
    "checkpoint/test_utils.py",
    "fsdp/test_checkpoint_wrapper.py",
    "optim/test_apply_optimizer_in_backward.py",
    "optim/test_named_optimizer.py",
    "pipelining/test_backward.py",
    "pipelining/test_microbatch.py",
    "pipelining/test_pipe.py",
    "pipelining/test_schedule.py",
    "pipelining/test_stage.py",
    "pipelining/test_transformer.py",
    "pipelining/test_unflatten.py",
    "tensor/parallel/test_parallelize_api.py",
    "tensor/parallel/test_tp_examples.py",
    "tensor/parallel/test_tp_random_state.py",
    "tensor/parallel/test_tp_style.py",
    "test_c10d_common.py",
    "test_c10d_object_collectives.py",
    "test_collective_utils.py",
    "test_device_mesh.py",
    "test_functional_api.py",
)
# The harness asks whether there are as many devices as ranks.
TPU = {"TORCHTPU_NUM_DEVICES": "4"}


def _backend_in_full(module: Any) -> None:
    """The tests of DTensor ask for this device's backend by its name in full: of other backends the harness only knows
    some by name."""
    module.DTensorTestBase.backend = property(
        lambda test: "gloo" if test.device_type == "cpu" else f"cpu:gloo,{test.device_type}:tpu"
    )


if "TORCHTPU_NUM_DEVICES" in os.environ and "PYTORCH_TESTING_DEVICE_ONLY_FOR" in os.environ:
    when_imported({"torch.testing._internal.distributed._tensor.common_dtensor": _backend_in_full})


def pytest_configure() -> None:
    """The tests start each rank as a process that imports torch anew. Here they are forks of one that has imported it,
    which takes a tenth of the time."""
    multiprocessing.set_forkserver_preload(
        [__name__, "torch", "torch.distributed.tensor", "torch.distributed.fsdp", "numpy"]
    )
    context.SpawnProcess._Popen = staticmethod(context.ForkServerProcess._Popen)  # type: ignore[attr-defined]
