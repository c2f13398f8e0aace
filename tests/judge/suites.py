"""What is judged: the files of PyTorch's test folder, and the environment in which each device runs them."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from tests.judge import distributed
from tests.settings import with_quick_compiles

ROOT = Path(__file__).parents[2]
# Files of PyTorch 2.6 leave flags of CUDA changed, for which newer ones fail a test.
COMMON = {
    "OMP_NUM_THREADS": "1",
    "PYTORCH_DISABLE_FP32_PRECISION_LEAK_CHECK": "1",
    "PYTORCH_PRINT_REPRO_ON_FAILURE": "0",
}
# Without torchtpu: PyTorch alone says what passes.
CPU = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PYTORCH_TESTING_DEVICE_ONLY_FOR": "cpu"}
TPU = {"PYTORCH_TESTING_DEVICE_ONLY_FOR": "privateuse1"}

DEVICE_FILES = (
    "test_indexing.py",
    "test_view_ops.py",
    "test_type_promotion.py",
    "test_tensor_creation_ops.py",
    "test_dlpack.py",
    "test_autocast.py",
    "test_complex.py",
    "test_shape_ops.py",
    "test_scatter_gather_ops.py",
    "test_segment_reductions.py",
    "test_sort_and_select.py",
    "test_numpy_interop.py",
    "test_serialization.py",
    "test_dataloader.py",
    "test_masked.py",
    "test_maskedtensor.py",
    "test_subclass.py",
    "test_testing.py",
    "test_native_mha.py",
    "test_type_info.py",
    "test_namedtensor.py",
    "test_expanded_weights.py",
    "test_prims.py",
    "test_native_functions.py",
    "distributions/test_constraints.py",
    "distributions/test_distributions.py",
    "distributions/test_transforms.py",
    "nn/test_convolution.py",
    "nn/test_dropout.py",
    "nn/test_embedding.py",
    "nn/test_init.py",
    "nn/test_lazy_modules.py",
    "nn/test_load_state_dict.py",
    "nn/test_module_hooks.py",
    "nn/test_multihead_attention.py",
    "nn/test_packed_sequence.py",
    "nn/test_parametrization.py",
    "nn/test_pooling.py",
    "nn/test_pruning.py",
    "test_torch.py",
    "test_nn.py",
    "test_optim.py",
    "optim/test_lrscheduler.py",
    "optim/test_swa_utils.py",
    "test_reductions.py",
    "test_binary_ufuncs.py",
    "test_unary_ufuncs.py",
    "test_spectral_ops.py",
    "test_linalg.py",
    "test_autograd.py",
    "autograd/test_complex.py",
    "autograd/test_functional.py",
    "autograd/test_logging.py",
    "test_foreach.py",
    "test_modules.py",
    "test_transformers.py",
    "test_nestedtensor.py",
    "test_sparse.py",
    "test_sparse_csr.py",
    "test_sparse_semi_structured.py",
    "test_fake_tensor.py",
    "test_proxy_tensor.py",
    "test_functionalization.py",
    "test_legacy_vmap.py",
    "test_decomp.py",
    "test_meta.py",
    "functorch/test_ac.py",
    "functorch/test_aotdispatch.py",
    "functorch/test_control_flow.py",
    "functorch/test_dims.py",
    "functorch/test_eager_transforms.py",
    "functorch/test_vmap.py",
    "functorch/test_ops.py",
    "test_schema_check.py",
    "test_custom_ops.py",
    "test_content_store.py",
    "test_stateless.py",
    "test_flop_counter.py",
    "test_out_dtype_op.py",
    "inductor/test_unbacked_symints.py",
    "quantization/core/experimental/test_float8.py",
    "profiler/test_memory_profiler.py",
    "test_ops_fwd_gradients.py",
    "test_ops_gradients.py",
    "test_ops_jit.py",
    "test_ops.py",
)


@dataclasses.dataclass(frozen=True)
class Suite:
    """A list of files, and how a device runs them."""

    name: str
    files: tuple[str, ...]
    within: str = ""
    """The folder of the files in PyTorch's test folder."""
    plugins: tuple[str, ...] = ()
    """Modules that are plugins of pytest in the children."""
    tpu: dict[str, str] = dataclasses.field(default_factory=dict)
    """More variables of the children that run on "tpu"."""
    imports: tuple[str, ...] = ()
    """Folders in PyTorch's test folder whose modules its tests import."""

    def environment(self, folder: Path, mode: str, cache: Path, is_optimized: bool) -> dict[str, str]:
        """The variables of a child that runs in a mode; the mode "cpu" is the CPU without torchtpu."""
        paths = [str(folder), *(str(folder / each) for each in self.imports), str(ROOT), os.environ.get("PYTHONPATH")]
        path = os.pathsep.join(filter(None, paths))
        environment = {**os.environ, **COMMON, "PYTHONPATH": path}
        if mode == "cpu":
            return {**environment, **CPU}
        if not is_optimized:
            environment["XLA_FLAGS"] = with_quick_compiles(os.environ.get("XLA_FLAGS", ""))
            # In Fused, programs of several operators are to be tested.
            environment["TORCHTPU_COMPILE"] = "wait"
        return {**environment, **TPU, **self.tpu, "TORCHTPU_EAGER_MODE": mode, "TORCHTPU_CACHE_DIR": str(cache)}


DEVICE = Suite("device", DEVICE_FILES, plugins=("tests.judge.harness",))
# The CPU's ranks use Gloo.
DISTRIBUTED = Suite(
    "distributed",
    distributed.FILES,
    "distributed",
    (distributed.__name__,),
    distributed.TPU,
    imports=("distributed/pipelining",),
)
SUITES = {suite.name: suite for suite in (DEVICE, DISTRIBUTED)}
