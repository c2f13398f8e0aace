"""The programs of the cases of modules, from PyTorch's module_db, and of optimizers, from its optim_db."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.testing._internal.common_modules import ModuleInfo, ModuleInput, module_db
from torch.testing._internal.common_optimizers import OptimizerInfo, OptimizerInput, optim_db

from tests.conformance.operators import evenly, gradients, tolerance
from tests.conformance.places import Place, Trial, describe, tensors_of
from tests.seeds import seed_everything

# Each runs with all settings that PyTorch tests, so there are more trials than samples of an operator.
STEPS = 5
IMPLEMENTATIONS = ("forloop", "foreach", "fused")


def modules() -> Iterator[Module]:
    return (Module(info) for info in module_db)


def optimizers() -> Iterator[Optimizer]:
    for info in optim_db:
        for implementation in IMPLEMENTATIONS:
            if implementation == "forloop" or implementation in info.supported_impls:
                yield Optimizer(info, implementation)


class Module:
    """An entry of module_db, in training and in evaluation."""

    def __init__(self, info: ModuleInfo) -> None:
        self.info = info
        self.name = info.name

    def directions(self, dtype: torch.dtype) -> tuple[str, ...]:
        if dtype not in self.info.supported_dtypes("cpu"):
            return ()
        return ("forward", "backward") if dtype == torch.float32 else ("forward",)

    def is_for_cuda_only(self, dtype: torch.dtype) -> bool:
        return False

    def tolerance(self, dtype: torch.dtype) -> tuple[float, float] | None:
        return tolerance(self.info.decorators, dtype)

    def trials(self, dtype: torch.dtype, direction: str, count: int, seed: int) -> list[Trial]:
        seed_everything(seed)
        made = []
        for is_training in (True, False) if self.info.train_and_eval_differ else (True,):
            inputs = self.info.module_inputs_func(
                self.info, device="cpu", dtype=dtype, requires_grad=direction == "backward", training=is_training
            )
            made += [(each, is_training) for each in inputs if each.forward_input is not None]
        make = {"forward": self._forward, "backward": self._backward}[direction]
        return [
            Trial(_describe(each, is_training), make(each, is_training, dtype, seed))
            for each, is_training in evenly(made, count)
        ]

    def _run(self, given: ModuleInput, is_training: bool, dtype: torch.dtype, seed: int, place: Place) -> Any:
        seed_everything(seed)
        module = self.info.module_cls(*given.constructor_input.args, **given.constructor_input.kwargs)
        module = copy.deepcopy(module).to(dtype).train(is_training)
        if isinstance(module, LazyModuleMixin):
            # Its initial weights are random too. They are the same on each device if they are drawn on the CPU.
            module._infer_parameters(module, given.forward_input.args, given.forward_input.kwargs)
        module = place.put_module(module)
        args, kwargs = place.put((given.forward_input.args, given.forward_input.kwargs))
        return module, (args, kwargs), place.prepared(module)(*args, **kwargs)

    def _forward(self, *given: Any) -> Callable[[Place], Any]:
        # PyTorch's transformer layers have other forwards for evaluation without gradients.
        _, is_training, *_ = given

        def program(place: Place) -> Any:
            with torch.set_grad_enabled(is_training):
                module, _, results = self._run(*given, place)
            return results, dict(module.named_buffers())

        return program

    def _backward(self, *given: Any) -> Callable[[Place], Any]:
        def program(place: Place) -> Any:
            module, inputs, results = self._run(*given, place)
            leaves = [tensor for tensor in (*module.parameters(), *tensors_of(inputs)) if tensor.requires_grad]
            return gradients([each for each in tensors_of(results) if each.requires_grad], leaves, place)

        return program


class Optimizer:
    """An entry of optim_db, in one of its implementations."""

    def __init__(self, info: OptimizerInfo, implementation: str) -> None:
        self.info = info
        self.implementation = implementation
        self.name = f"optim.{info.optim_cls.__name__}.{implementation}"

    def directions(self, dtype: torch.dtype) -> tuple[str, ...]:
        return ("step",) if dtype in (torch.float32, torch.float64, torch.bfloat16) else ()

    def is_for_cuda_only(self, dtype: torch.dtype) -> bool:
        return False

    def tolerance(self, dtype: torch.dtype) -> tuple[float, float] | None:
        return tolerance(self.info.decorators, dtype)

    def trials(self, dtype: torch.dtype, direction: str, count: int, seed: int) -> list[Trial]:
        seed_everything(seed)
        return [
            Trial(given.desc or describe(given.kwargs), self._step(given, dtype, seed))
            for given in evenly(self.info.optim_inputs_func("cpu", dtype), 4 * count)
        ]

    def _step(self, given: OptimizerInput, dtype: torch.dtype, seed: int) -> Callable[[Place], Any]:
        def program(place: Place) -> Any:
            generator = torch.Generator().manual_seed(seed)
            shapes = ((4, 3), (3, 5)) if self.info.optim_cls.__name__ == "Muon" else ((4, 3), (5,), (2, 2, 3))
            drawn = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
            parameters = [nn.Parameter(each) for each in place.put(drawn)]
            targets = [place.random_like(each, seed + 1) for each in parameters]
            options = place.put(copy.deepcopy(given.kwargs))
            if self.implementation != "forloop":
                options[self.implementation] = True
            elif "foreach" in self.info.supported_impls:
                options["foreach"] = False
            # PyTorch itself breaks the graph at a step.
            step = place.prepared(self.info.optim_cls(parameters, **options).step, is_whole=False)

            def closure() -> torch.Tensor:
                # The gradients of half the squared distance, computed without operators that are under test.
                for parameter, target in zip(parameters, targets, strict=True):
                    gradient = (parameter - target).detach()
                    parameter.grad = gradient.to_sparse() if self.info.only_supports_sparse_grads else gradient
                return sum((p.detach() - t).square().sum() for p, t in zip(parameters, targets, strict=True)) / 2

            for _ in range(STEPS):
                if self.info.step_requires_closure:
                    step(closure)
                else:
                    closure()
                    step()
            return [parameter.detach() for parameter in parameters]

        return program


def _describe(given: ModuleInput, is_training: bool) -> str:
    constructor, forward = given.constructor_input, given.forward_input
    parts = [*constructor.args, *([constructor.kwargs] if constructor.kwargs else [])]
    called = [*forward.args, *([forward.kwargs] if forward.kwargs else [])]
    return f"({describe(parts)[1:-1]}), {'training' if is_training else 'evaluation'}, on {describe(called)[1:-1]}"
