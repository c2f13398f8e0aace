"""Collectives of the processes that share a model, as functions: a trace records them."""

from __future__ import annotations

import torch
from torch import Tensor
from vllm.distributed.device_communicators.base_device_communicator import DeviceCommunicatorBase


class Communicator(DeviceCommunicatorBase):
    def all_reduce(self, input_: Tensor) -> Tensor:
        """The sum over the group, of the input's shape."""
        operators = torch.ops._c10d_functional
        summed: Tensor = operators.wait_tensor(operators.all_reduce(input_, "sum", self.device_group.group_name))
        return summed

    def all_gather(self, input_: Tensor, dim: int = -1) -> Tensor:
        """The group's tensors side by side: dimension `dim` is as many times as large."""
        operators, dim = torch.ops._c10d_functional, dim % input_.dim()
        one = operators.all_gather_into_tensor(input_.contiguous(), self.world_size, self.device_group.group_name)
        parts: Tensor = operators.wait_tensor(one).unflatten(0, (self.world_size, -1))
        return parts.movedim(0, dim).flatten(dim, dim + 1)
