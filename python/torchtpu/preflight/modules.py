"""Which part of a model each operator belongs to, and what each storage is to the model."""

from __future__ import annotations

import bisect
import functools
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules import module as module_hooks
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from torchtpu import _C

OPTIMIZER = "optimizer"
BACKWARD = " (backward)"


class Storage(NamedTuple):
    """What a storage is for: its role in the step, the name of the parameter or of what has made it, and the line."""

    role: str
    name: str = ""
    line: str = ""


def label(module: str, what: str) -> str:
    """The name of what an operator of a module makes."""
    return f"{module}: {what}" if module else what


class ModuleNames:
    """Follows the modules of models through PyTorch's global hooks, while it is entered.

    An operator belongs to the innermost module whose `forward` calls it. An operator of the backward pass belongs to
    the module whose `forward` made its autograd node: nodes carry numbers that grow, so the numbers at which modules
    begin and end say whose each one is. `optimizer.step()` counts as a module named "optimizer".

    A step ends with `optimizer.step()`. In a script that has made no optimizer, a step begins when a module that no
    other module calls is called for the first time, and again each time that it is called once more.
    """

    def __init__(self, on_step: Callable[[int], None]) -> None:
        self.steps = 0
        # When the steps ended, by `time.monotonic`.
        self.step_ends: list[float] = []
        # By the address that a storage shows.
        self.storages: dict[int, Storage] = {}
        # How many inputs the models took in the steps, by unit: "tokens", "images" or "samples".
        self.taken: Counter[str] = Counter()
        # The most examples that a model took in one call: the first dimension of its first tensor.
        self.rows = 0
        self._taking: Counter[str] = Counter()
        self._is_counted = True
        self._has_optimizer = False
        # How often each module was called by no other one.
        self._passes: Counter[int] = Counter()
        self._on_step = on_step
        self._names: dict[int, str] = {}
        self._stack = threading.local()
        self._first_numbers: list[int] = [0]
        self._owners: list[str] = [""]
        self._hooks: list[Any] = []

    def __enter__(self) -> ModuleNames:
        self._hooks = [
            module_hooks.register_module_forward_pre_hook(self._begin),
            module_hooks.register_module_forward_hook(self._end, always_call=True),
            register_optimizer_step_pre_hook(self._begin_step),
            register_optimizer_step_post_hook(self._end_step),
        ]
        self._make_optimizer = Optimizer.__init__
        Optimizer.__init__ = self._noting(Optimizer.__init__)  # type: ignore[method-assign]
        _C.name_modules(self.current)
        return self

    def __exit__(self, *_: object) -> None:
        _C.name_modules(None)
        Optimizer.__init__ = self._make_optimizer  # type: ignore[method-assign]
        if self._passes and not self._has_optimizer and not self.steps:
            self._end_of_step()
        for hook in self._hooks:
            hook.remove()

    def current(self) -> str | None:
        """The module that the thread's next operator belongs to."""
        path = self._path()
        if path:
            return path[-1]
        node = torch._C._current_autograd_node()
        if node is None:
            return None
        owner = self._owners[bisect.bisect_right(self._first_numbers, node._sequence_nr()) - 1]
        return owner + BACKWARD if owner else None

    def _path(self) -> list[str]:
        if not hasattr(self._stack, "path"):
            self._stack.path = []
        return self._stack.path

    def _begin(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        path = self._path()
        if not path:
            is_recomputed = torch._C._current_autograd_node() is not None
            if not self._has_optimizer and not is_recomputed:
                self._begin_pass(module)
            # Beside an optimizer, a forward pass without gradients trains nothing. A loss has no parameters.
            is_evaluated = self._has_optimizer and not torch.is_grad_enabled()
            self._is_counted = is_evaluated or is_recomputed or next(module.parameters(), None) is None
        if not self._is_counted:
            # A model's first tensor may be one of the arguments by name, which hooks do not see: then a module within
            # it is the first to take a tensor.
            first = next((each for each in arguments if isinstance(each, Tensor) and each.dim()), None)
            if first is not None:
                self._taking.update(_taken(first))
                self.rows = max(self.rows, first.shape[0])
                self._is_counted = True
        if not path or id(module) not in self._names:
            self._learn(module, path[-1] if path else "")
        path.append(self._names[id(module)])
        self._note(path[-1])

    def _begin_pass(self, module: nn.Module) -> None:
        self._passes[id(module)] += 1
        if self._passes[id(module)] > self.steps + 1:
            self._end_of_step()
            self._on_step(self.steps)

    def _noting(self, make: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(make)
        def method(optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:
            if not self._has_optimizer:
                # The forward passes before were no steps.
                self.steps, self._has_optimizer = 0, True
                self.step_ends.clear()
                self.taken.clear()
                self.rows = 0
                self._taking.clear()
            make(optimizer, *args, **kwargs)

        return method

    def _end(self, *_: Any) -> None:
        path = self._path()
        if path:
            path.pop()
        self._note(path[-1] if path else "")

    def _note(self, owner: str) -> None:
        """From here on, autograd nodes belong to another module."""
        number = torch._C._autograd._get_sequence_nr()
        if number == self._first_numbers[-1]:
            self._owners[-1] = owner
        elif number > self._first_numbers[-1]:
            self._first_numbers.append(number)
            self._owners.append(owner)

    def _learn(self, root: nn.Module, prefix: str) -> None:
        top = prefix or type(root).__name__
        for name, module in root.named_modules():
            self._names.setdefault(id(module), f"{prefix}.{name}".strip(".") if name else top)
        for role, tensors in (("parameters", root.named_parameters()), ("buffers", root.named_buffers())):
            for name, tensor in tensors:
                self._add(tensor, role, name)

    def _add(self, tensor: Any, role: str, name: str) -> None:
        if isinstance(tensor, Tensor) and tensor.device.type == "tpu":
            self.storages.setdefault(_address(tensor), Storage(role, name))

    def name_of(self, tensor: Tensor) -> str:
        """The name of a parameter, if a model with it was called."""
        return self.storages.get(_address(tensor), Storage("parameters", "a parameter")).name

    def add_gathered(self, tensors: Any, what: str, line: str) -> None:
        """Names what a collective writes the parts of all ranks to."""
        if isinstance(tensors, Tensor):
            self.storages[_address(tensors)] = Storage("gathered", label(self.current() or "", what), line)
        elif isinstance(tensors, list | tuple):
            for each in tensors:
                self.add_gathered(each, what, line)

    def _begin_step(self, optimizer: Optimizer, *_: Any) -> None:
        self._on_step(self.steps)
        self._path().append(OPTIMIZER)
        for parameter in _parameters(optimizer):
            if parameter.device.type == "tpu":
                self._add(parameter, "parameters", "a parameter")
                self._add(parameter.grad, "gradients", self.name_of(parameter))

    def _end_step(self, optimizer: Optimizer, *_: Any) -> None:
        self._path().pop()
        self._end_of_step()
        for parameter in _parameters(optimizer):
            for state, tensor in optimizer.state.get(parameter, {}).items():
                if parameter.device.type == "tpu":
                    self._add(tensor, "optimizer_state", f"{state} of {self.name_of(parameter)}")

    def _end_of_step(self) -> None:
        self.steps += 1
        self.step_ends.append(time.monotonic())
        self.taken.update(self._taking)
        self._taking.clear()


def _taken(tensor: Tensor) -> dict[str, int]:
    """What a batch consists of: tokens of texts, images, or other samples."""
    if tensor.is_floating_point():
        return {"images" if tensor.dim() == 4 else "samples": tensor.shape[0]}
    return {"tokens": tensor.numel()} if tensor.dim() == 2 else {"samples": tensor.shape[0]}


def _address(tensor: Tensor) -> int:
    """The address of a tensor's storage; of a DTensor, of this rank's part."""
    local: Tensor = getattr(tensor, "_local_tensor", tensor)
    return local.untyped_storage().data_ptr()


def _parameters(optimizer: Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
