"""The programs of a server whose TPU is elsewhere: `python -m torchtpu cache build --serve`."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from vllm.config import set_current_vllm_config
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.model_executor.model_loader.utils import initialize_model, process_weights_after_loading
from vllm.usage.usage_lib import UsageContext
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.utils.torch_utils import set_default_torch_dtype
from vllm.v1.engine.core import EngineCore
from vllm.v1.executor import Executor
from vllm.v1.worker.worker_base import CompilationTimes

from torchtpu import _C
from torchtpu.vllm import worker


class Worker(worker.Worker):
    """A worker whose weights have shapes only. Its device computes nothing."""

    def _loaded(self) -> nn.Module:
        nowhere = torch.device("meta")
        with set_default_torch_dtype(self.model_config.dtype):
            with nowhere:
                model = initialize_model(self.vllm_config, model_config=self.model_config)
            process_weights_after_loading(model, self.model_config, nowhere)
        return model.eval()

    def _uploaded(self, tensor: Tensor) -> Tensor:
        # Memory of the host that nothing writes to takes no room, and this device does not read it. What is made on
        # the device would be a part of programs instead of an input.
        return torch.empty(tensor.shape, dtype=tensor.dtype).to(self.device)

    def compile_or_warm_up_model(self) -> CompilationTimes:
        """As a server does, and the tighter programs with them: there is no background here."""
        times = super().compile_or_warm_up_model()
        self.runner.run_tighter()
        return times


def write_programs(arguments: list[str], folder: Path) -> None:
    """Writes the programs of `vllm serve` with these arguments, a model and options, into a folder.

    Runs in a process of its own with `TORCHTPU_DRY` and `TORCHTPU_VLLM=1`. The model's folder needs no weights.
    """
    parser = FlexibleArgumentParser(prog="vllm serve")
    parser.add_argument("model_tag", metavar="MODEL")
    options = AsyncEngineArgs.add_cli_args(parser).parse_args(arguments)
    options.model = options.model_tag
    config = AsyncEngineArgs.from_cli_args(options).create_engine_config(UsageContext.OPENAI_API_SERVER)
    if config.parallel_config.world_size > 1:
        raise ValueError("torchtpu: cache build --serve: programs of several processes are not supported")
    config.parallel_config.worker_cls = f"{__name__}.{Worker.__name__}"
    _C.dump_programs(str(folder))
    with set_current_vllm_config(config):
        EngineCore(config, Executor.get_class(config), log_stats=False).shutdown()
    _C.dump_programs(None)
