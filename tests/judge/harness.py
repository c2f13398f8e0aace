"""A plugin of pytest: what the tests need of PyTorch's harness, where the installed one is newer than the tests.

Names that it had in PyTorch 2.6 exist, and tests that it offers to the CPU and to CUDA by name are offered to "tpu".
"""

from __future__ import annotations

import os
from typing import Any

from tests.judge.imports import when_imported

HARNESS = "torch.testing._internal"


def _is_never() -> bool:
    return False


def _names_of_cuda(module: Any) -> None:
    vars(module).setdefault("tf32_is_not_fp32", _is_never)


def _names_of_mkldnn(module: Any) -> None:
    vars(module).setdefault("bf32_on_and_off", module.reduced_f32_on_and_off)


def _names_of_modules(module: Any) -> None:
    vars(module).setdefault("new_module_tests", [])


def _names_of_inductor(module: Any) -> None:
    vars(module).setdefault("HAS_CUDA", False)


def _names_of_flex_attention(module: Any) -> None:
    vars(module).setdefault("create_nested_block_mask", None)


def _names_of_control_flow(module: Any) -> None:
    vars(module).setdefault("UnsupportedAliasMutationException", RuntimeError)


def _lists_of_functorch(module: Any) -> None:
    """Tests name operators that the installed torch has no longer."""
    skip_operators, override_tolerances = module.skipOps, module.opsToleranceOverride
    infos = (*module.op_db, *module.additional_op_db, *module.autograd_function_db, *module.custom_op_db)
    skippable = {(info.name, info.variant_test_name) for info in infos}
    overridable = {(info.name, info.variant_test_name) for info in (*module.op_db, *module.additional_op_db)}

    def skip_known_operators(test_class: str, test: str, skipped: Any) -> Any:
        return skip_operators(
            test_class, test, {each for each in skipped if (each.op_name, each.variant_name) in skippable}
        )

    def override_known_operators(test_class: str, test: str, overrides: Any) -> Any:
        return override_tolerances(test_class, test, [each for each in overrides if each[:2] in overridable])

    module.skipOps = skip_known_operators
    module.opsToleranceOverride = override_known_operators


def _names_of_operators(module: Any) -> None:
    from torch.testing._internal import common_device_type

    def skip_operators(test_class: str, test: str, skipped: Any) -> Any:
        return common_device_type.skipOps(skipped)

    vars(module).setdefault("binary_ufuncs_and_refs", module.binary_ufuncs)
    vars(module).setdefault("skip", common_device_type.skip)
    vars(module).setdefault("xfail", common_device_type.xfail)
    vars(module).setdefault("skipOps", skip_operators)


def _names_of_utilities(module: Any) -> None:
    from torch.utils._dtype_abbrs import dtype_abbrs

    vars(module).setdefault("dtype_abbrs", dtype_abbrs)


def _setup_of_instances(module: Any) -> None:
    """`super(self.__class__, self).setUp()`, in a class that is a base of its instances now, would call itself."""
    instantiate = module.instantiate_device_type_tests

    def without_the_original(test_class: Any, *arguments: Any, **more: Any) -> None:
        instantiate(test_class, *arguments, **more)
        for name in ("setUp", "tearDown"):
            function = vars(test_class).get(name)
            if function is not None and "__class__" in function.__code__.co_names:
                delattr(test_class, name)

    module.instantiate_device_type_tests = without_the_original


def _device_types(module: Any) -> None:
    _setup_of_instances(module)
    _offered_devices(module)


def _offered_devices(module: Any) -> None:
    if os.environ.get("PYTORCH_TESTING_DEVICE_ONLY_FOR") != "privateuse1":
        return
    filter_types = module.filter_desired_device_types

    def wider(bases: Any, except_for: Any = None, only_for: Any = None) -> Any:
        if only_for is not None and not isinstance(only_for, str) and {"cpu", "cuda"} <= set(only_for):
            only_for = [*only_for, "privateuse1"]
        return filter_types(bases, except_for, only_for)

    module.filter_desired_device_types = wider


when_imported(
    {
        f"{HARNESS}.common_cuda": _names_of_cuda,
        f"{HARNESS}.common_mkldnn": _names_of_mkldnn,
        f"{HARNESS}.common_nn": _names_of_modules,
        f"{HARNESS}.inductor_utils": _names_of_inductor,
        f"{HARNESS}.common_methods_invocations": _names_of_operators,
        f"{HARNESS}.common_utils": _names_of_utilities,
        f"{HARNESS}.common_device_type": _device_types,
        "torch.nn.attention.flex_attention": _names_of_flex_attention,
        "functorch.experimental.control_flow": _names_of_control_flow,
        "common_utils": _lists_of_functorch,
    }
)
