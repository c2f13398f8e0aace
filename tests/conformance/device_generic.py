"""PyTorch's device-generic testing on this device: its test base for PrivateUse1 devices, the decorators that draw
tests from its lists, and its checks for autocast, custom operators and composite operators.

This covers the part that the installed torch contains; most of PyTorch's tests are not part of it.
`test_device_generic.py` runs these classes. `python -m pytest tests/conformance/device_generic.py -k NAME` runs
some.
"""

from __future__ import annotations

import copy
import itertools
from typing import Any

import torch
from torch.testing import make_tensor
from torch.testing._internal import composite_compliance
from torch.testing._internal.autocast_test_lists import AutocastTestLists, TestAutocast
from torch.testing._internal.autograd_function_db import autograd_function_db
from torch.testing._internal.common_device_type import (
    PrivateUse1TestBase,
    deviceCountAtLeast,
    dtypes,
    expectedFailure,
    instantiate_device_type_tests,
    onlyAccelerator,
    onlyCPU,
    onlyPRIVATEUSE1,
    ops,
    skipPRIVATEUSE1,
)
from torch.testing._internal.common_dtype import all_types_and_complex_and
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db, modules
from torch.testing._internal.common_optimizers import optim_db, optims
from torch.testing._internal.common_utils import TestCase
from torch.testing._internal.custom_op_db import custom_op_db
from torch.testing._internal.optests import opcheck

from tests.conformance.places import CPU, Place, tensors_of

ALL_DTYPES = all_types_and_complex_and(torch.bool, torch.half, torch.bfloat16)
# The sweep runs all of them; a few here show that the decorators work.
DTYPES = (torch.float32, torch.int64)
SOME_OPERATORS = ("add", "cat", "gather", "matmul", "nn.functional.linear", "softmax", "where")
SOME_MODULES = ("nn.BatchNorm2d", "nn.Embedding", "nn.GRUCell", "nn.Linear")
SOME_OPTIMIZERS = ("AdamW", "RMSprop", "SGD")
# Compositions of other operators, including views and writes.
SOME_COMPOSITIONS = ("nn.functional.linear", "masked_fill", "unflatten")
# They change a tensor through numpy, which has a copy of it here.
WRITE_THROUGH_NUMPY = ("NumpyExpMarkDirtyAutogradFunction",)
NOT_OF_THIS_DEVICE = {
    "cudnn_convolution": "cuDNN's",
    "cudnn_convolution_transpose": "cuDNN's",
    "einsum": "TestAutocast casts the equation, too",
    "equal": "the CPU refuses to compare dtypes that differ, and so does this device",
}


def some(entries: Any, names: tuple[str, ...]) -> list[Any]:
    chosen = [entry for entry in entries if entry.name in names]
    assert {entry.name for entry in chosen} == set(names)
    return chosen


class TestBase(TestCase):
    """The arguments of tests, and which tests there are."""

    def test_device(self, device: str) -> None:
        assert isinstance(self, PrivateUse1TestBase)
        self.assertEqual(device, "tpu:0")
        self.assertEqual(self.get_primary_device(), device)
        self.assertEqual(self.get_all_devices(), [f"tpu:{index}" for index in range(torch.tpu.device_count())])

    @deviceCountAtLeast(1)
    def test_devices(self, devices: list[str]) -> None:
        self.assertEqual(devices, self.get_all_devices())

    @onlyPRIVATEUSE1
    @onlyAccelerator
    def test_it_is_an_accelerator(self, device: str) -> None:
        self.assertEqual(torch.accelerator.current_accelerator().type, torch.device(device).type)

    @onlyCPU
    def test_of_another_device(self, device: str) -> None:
        self.fail("it must be skipped")

    @skipPRIVATEUSE1
    def test_that_is_skipped(self, device: str) -> None:
        self.fail("it must be skipped")

    @expectedFailure("tpu")
    def test_that_fails(self, device: str) -> None:
        self.assertEqual(torch.ones(2, device=device), torch.zeros(2, device=device))

    @dtypes(*ALL_DTYPES)
    def test_make_tensor(self, device: str, dtype: torch.dtype) -> None:
        for shape in ((), (0,), (3,), (2, 3, 4)):
            made = make_tensor(shape, device=device, dtype=dtype)
            self.assertEqual((str(made.device), made.dtype, tuple(made.shape)), (device, dtype, shape))
            self.assertEqual(made, made.cpu(), exact_device=False)
        self.assertFalse(make_tensor((4, 6), device=device, dtype=dtype, noncontiguous=True).is_contiguous())
        bounded = make_tensor((50,), device=device, dtype=dtype, low=1, high=2, exclude_zero=True)
        self.assertFalse((bounded == 0).any().item())
        if dtype.is_floating_point or dtype.is_complex:
            self.assertTrue(make_tensor((3,), device=device, dtype=dtype, requires_grad=True).requires_grad)

    def test_differences_are_found(self, device: str) -> None:
        ones = torch.ones(2, device=device)
        torch.testing.assert_close(ones, ones.clone())
        for other in (ones + 1e-3, ones[:1], ones.double(), ones.cpu()):
            with self.assertRaises(AssertionError):
                torch.testing.assert_close(ones, other)


class TestLists(TestCase):
    """Tests that PyTorch's decorators draw from its lists."""

    def _compare(self, place: Place, run: Any) -> None:
        actual, expected = list(tensors_of(run(place))), list(tensors_of(run(CPU)))
        self.assertEqual([str(each.device) for each in actual], [place.device] * len(expected))
        self.assertEqual(actual, expected, exact_device=False)

    @ops(some(op_db, SOME_OPERATORS), allowed_dtypes=DTYPES)
    def test_operators(self, device: str, dtype: torch.dtype, op: Any) -> None:
        for sample in itertools.islice(op.sample_inputs("cpu", dtype), 3):

            def run(place: Place, sample: Any = sample) -> Any:
                input, args, kwargs = place.put((sample.input, sample.args, sample.kwargs))
                return op(input, *args, **kwargs)

            self._compare(Place(device), run)

    @ops(some(op_db, SOME_OPERATORS), allowed_dtypes=DTYPES)
    def test_samples_are_made_on_the_device(self, device: str, dtype: torch.dtype, op: Any) -> None:
        for sample in itertools.islice(op.sample_inputs(device, dtype), 3):
            for tensor in tensors_of((sample.input, sample.args, sample.kwargs)):
                self.assertEqual(str(tensor.device), device)
            for tensor in tensors_of(op(sample.input, *sample.args, **sample.kwargs)):
                self.assertEqual(str(tensor.device), device)

    @ops([op for op in autograd_function_db if op.name not in WRITE_THROUGH_NUMPY], allowed_dtypes=(torch.float32,))
    def test_custom_functions(self, device: str, dtype: torch.dtype, op: Any) -> None:
        for sample in op.sample_inputs("cpu", dtype, requires_grad=True):

            def run(place: Place, sample: Any = sample) -> Any:
                input, args, kwargs = place.put((sample.input, sample.args, sample.kwargs))
                results = [*tensors_of(op(input, *args, **kwargs))]
                leaves = [each for each in tensors_of((input, args, kwargs)) if each.requires_grad]
                total = sum(each.sum() for each in results if each.requires_grad)
                return results, torch.autograd.grad(total, leaves, allow_unused=True)

            self._compare(Place(device), run)

    @modules(some(module_db, SOME_MODULES), allowed_dtypes=(torch.float32,))
    def test_modules(self, device: str, dtype: torch.dtype, module_info: Any, training: bool) -> None:
        if not training and not module_info.train_and_eval_differ:
            return
        given = module_info.module_inputs_func(
            module_info, device=device, dtype=dtype, requires_grad=True, training=training
        )
        for each in given:
            constructor, forward = each.constructor_input, each.forward_input
            module = module_info.module_cls(*constructor.args, **constructor.kwargs).to(device, dtype)
            results = [*tensors_of(module.train(training)(*forward.args, **forward.kwargs))]
            sum(result.sum() for result in results if result.requires_grad).backward()
            gradients = [parameter.grad for parameter in module.parameters()]
            for tensor in (*results, *tensors_of(gradients)):
                self.assertEqual(str(tensor.device), device)

    @optims([info for info in optim_db if info.optim_cls.__name__ in SOME_OPTIMIZERS], dtypes=[torch.float32])
    def test_optimizers(self, device: str, dtype: torch.dtype, optim_info: Any) -> None:
        for given in optim_info.optim_inputs_func(device=device, dtype=dtype):

            def run(place: Place, given: Any = given) -> list[torch.Tensor]:
                generator = torch.Generator().manual_seed(0)
                drawn = [torch.randn(4, 3, generator=generator, dtype=dtype) for _ in range(2)]
                parameters = [torch.nn.Parameter(each) for each in place.put(drawn)]
                optimizer = optim_info.optim_cls(parameters, **place.put(copy.deepcopy(given.kwargs)))

                def closure() -> torch.Tensor:
                    optimizer.zero_grad()
                    loss = sum(each.square().mean() for each in parameters)
                    loss.backward()
                    return loss

                for _ in range(2):
                    optimizer.step(closure)
                return [each.detach() for each in parameters]

            self._compare(Place(device), run)


class TestCarriedChecks(TestAutocast):
    """Checks that torch contains, run on this device."""

    def test_autocast(self, device: str) -> None:
        kind = torch.device(device).type
        lists = AutocastTestLists(torch.device(device))
        lower, plain = torch.bfloat16, torch.float32
        for entries, run_as, module in (
            (lists.torch_fp16, lower, torch),
            (lists.torch_fp32, plain, torch),
            (lists.nn_fp16, lower, torch._C._nn),
            (lists.nn_fp32, plain, torch._C._nn),
            (lists.linalg_fp16, lower, torch._C._linalg),
            (lists.methods_fp16, lower, None),
            (lists.methods_fp32, plain, None),
        ):
            for name, args, *rest in entries:
                # The last element, if there is one, is keyword arguments or a note about cuDNN on ROCm.
                kwargs = rest[0] if rest and isinstance(rest[0], dict) else {}
                with self.subTest(name=name):
                    if name in NOT_OF_THIS_DEVICE:
                        self.skipTest(NOT_OF_THIS_DEVICE[name])
                    self._run_autocast_outofplace(name, args, run_as, device=kind, module=module, add_kwargs=kwargs)
        for entries in (lists.torch_need_autocast_promote, lists.torch_expect_builtin_promote):
            for name, args, *rest in entries:
                with self.subTest(name=name):
                    if name in NOT_OF_THIS_DEVICE:
                        self.skipTest(NOT_OF_THIS_DEVICE[name])
                    promoted = rest[0] if rest else plain
                    self._run_autocast_outofplace(
                        name, args, plain, device=kind, out_type=promoted, amp_dtype=torch.float16
                    )

    @ops(custom_op_db, allowed_dtypes=(torch.float32,))
    def test_custom_operators(self, device: str, dtype: torch.dtype, op: Any) -> None:
        for sample in op.sample_inputs(device, dtype, requires_grad=op.supports_autograd):
            # PyTorch has test_autograd_registration only for the CPU, CUDA and XPU.
            opcheck(
                op.op,
                (sample.input, *sample.args),
                sample.kwargs,
                test_utils=("test_schema", "test_faketensor", "test_aot_dispatch_dynamic"),
            )

    @ops(some(op_db, SOME_COMPOSITIONS), allowed_dtypes=(torch.float32,))
    def test_compositions(self, device: str, dtype: torch.dtype, op: Any) -> None:
        for sample in itertools.islice(op.sample_inputs(device, dtype, requires_grad=op.supports_autograd), 3):
            args, kwargs = (sample.input, *sample.args), sample.kwargs
            composite_compliance.check_with_mode(op, args, kwargs, self.assertEqual)
            composite_compliance.check_all_permutations(op, args, kwargs, self.assertEqual)
            composite_compliance.check_backward_formula(
                op.get_op(), args, kwargs, sample.output_process_fn_grad, op.gradcheck_wrapper, self.assertEqual
            )


for template in (TestBase, TestLists, TestCarriedChecks):
    instantiate_device_type_tests(template, globals(), only_for=("privateuse1",))
