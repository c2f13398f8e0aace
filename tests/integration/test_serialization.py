"""Saving, loading, pickling, exchanging storages, DLPack."""

from __future__ import annotations

import contextlib
import io
import pickle
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from tests.helpers import DTYPES, check, check_python, check_refused


def saved_and_loaded(value: Any, **options: Any) -> Any:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, **options)


# ---- torch.save and pickle -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=[str(dtype).removeprefix("torch.") for dtype in DTYPES])
def test_save_and_load(dtype: torch.dtype, device: torch.device) -> None:
    x = torch.tensor([[0, 1, 3], [2, 0, 5]]).to(dtype)
    loaded = saved_and_loaded(x.to(device))
    assert (loaded.device, loaded.dtype, loaded.stride()) == (torch.device("tpu:0"), dtype, x.stride())
    assert torch.equal(loaded.cpu(), x)


def test_map_location_both_ways(device: torch.device) -> None:
    x = torch.arange(3.0)
    for location in ("cpu", torch.device("cpu"), {"tpu:0": "cpu"}, lambda storage, location: storage.cpu()):
        assert saved_and_loaded(x.to(device), map_location=location).device.type == "cpu"
    for location in ("tpu", "tpu:0", device, {"cpu": "tpu:0"}):
        loaded = saved_and_loaded(x, map_location=location)
        assert loaded.device == torch.device("tpu:0")
        assert loaded.tolist() == [0, 1, 2]


def test_load_without_the_device(device: torch.device, tmp_path: Path) -> None:
    """A file from the device can be read without torchtpu."""
    path = tmp_path / "model.pt"
    torch.save({"weight": torch.ones(2, device=device)}, path)
    code = f"import torch; print(torch.load({str(path)!r}, map_location='cpu')['weight'].tolist())"
    assert check_python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0") == "[1.0, 1.0]\n"


def test_views_share_storage_after_loading(device: torch.device, mode: str) -> None:
    x = torch.arange(6.0, device=device).reshape(2, 3)
    loaded = saved_and_loaded([x, x[1], x.t()[1:], x * 2])
    loaded[0].add_(10)
    assert loaded[1].tolist() == [13, 14, 15]
    assert loaded[2].tolist() == [[11, 14], [12, 15]]
    assert loaded[3].tolist() == [[0, 2, 4], [6, 8, 10]]
    assert loaded[1].untyped_storage().data_ptr() == loaded[0].untyped_storage().data_ptr()


def test_training_state(device: torch.device, tmp_path: Path) -> None:
    def make() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).to(device)
        return model, torch.optim.AdamW(model.parameters(), lr=0.1)

    def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> float:
        optimizer.zero_grad()
        loss = model(torch.arange(6.0, device=device).reshape(2, 3)).square().sum()
        loss.backward()
        optimizer.step()
        return loss.item()

    model, optimizer = make()
    step(model, optimizer)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "state.pt")
    expected = [step(model, optimizer) for _ in range(2)]
    for location in (None, "cpu", "tpu"):
        state = torch.load(tmp_path / "state.pt", map_location=location)
        model, optimizer = make()
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        assert [step(model, optimizer) for _ in range(2)] == pytest.approx(expected)
    assert next(model.parameters()).is_tpu


def test_pickle(device: torch.device, mode: str) -> None:
    x = torch.arange(6.0, device=device).reshape(2, 3)
    leaf = torch.nn.Parameter(torch.ones(2, device=device))
    loaded, part, parameter, where = pickle.loads(pickle.dumps((x, x.t()[1:], leaf, x.device)))
    assert loaded.device == x.device == where
    assert torch.equal(loaded.cpu(), x.cpu())
    assert torch.equal(part.cpu(), x.t()[1:].cpu())
    assert isinstance(parameter, torch.nn.Parameter)
    assert parameter.requires_grad
    assert parameter.is_tpu


def test_save_of_a_view_of_bytes(device: torch.device) -> None:
    x = torch.tensor([1.0, 2.0], device=device)
    bits = x.view(torch.int32)
    loaded = saved_and_loaded(bits)
    assert loaded.tolist() == [0x3F800000, 0x40000000]
    x.view(torch.int32)[0] = 0x40400000
    assert saved_and_loaded(x).tolist() == [3, 2]


def test_save_of_an_unwritten_tensor(device: torch.device) -> None:
    assert saved_and_loaded(torch.empty(2, 3, device=device)).shape == (2, 3)
    assert saved_and_loaded(torch.empty(0, device=device)).shape == (0,)


# ---- storages --------------------------------------------------------------------------------------------------


def test_set(device: torch.device, mode: str) -> None:
    def program(device: torch.device) -> object:
        x = torch.arange(6.0, device=device)
        y = torch.empty(0, device=device).set_(x.untyped_storage(), 1, (2, 2), (2, 1))
        y.mul_(10)
        z = torch.zeros(3, device=device)
        z.set_(x)
        z[0] = -1
        nothing = torch.ones(2, device=device)
        nothing.set_()
        return x, y, z, nothing

    check(program, device)


def test_data_assignment(device: torch.device, mode: str) -> None:
    parameter = torch.nn.Parameter(torch.zeros(2, device=device))
    parameter.data = torch.arange(3.0, device=device)
    assert parameter.tolist() == [0, 1, 2]
    parameter.data.add_(1)
    (parameter * 2).sum().backward()
    assert parameter.grad is not None
    assert parameter.grad.tolist() == [2, 2, 2]
    on_host = torch.nn.Parameter(torch.ones(2))
    on_host.data = torch.ones(2, device=device)
    assert on_host.is_tpu
    (on_host + parameter[:2]).sum().backward()
    assert on_host.grad is not None
    assert on_host.grad.is_tpu
    module = torch.nn.Linear(2, 1).to(device)  # .to() assigns .data, or swaps
    assert module.weight.is_leaf


def test_resize(device: torch.device, mode: str) -> None:
    def program(device: torch.device) -> object:
        x = torch.arange(6.0, device=device)
        y = x[1:3]
        x.resize_(2, 2)
        y.add_(10)
        results = [x.clone(), y.clone()]
        x.resize_(3, 3)  # grows: the old elements are kept
        x.view(-1)[6:] = -1
        results += [x.clone(), y.clone()]
        x.resize_(0)
        results.append(x)
        fresh = torch.empty(0, device=device).resize_(2, 3).fill_(1)
        like = torch.ones(4, device=device).resize_as_(fresh).fill_(2)
        last = torch.empty(0, device=device).resize_(1, 2, 2, 2, memory_format=torch.channels_last).fill_(1)
        return [*results, fresh, like, last]

    check(program, device)
    check_refused(lambda d: torch.ones(2, requires_grad=True, device=d).resize_(3), device)


def test_storage_resize(device: torch.device, mode: str) -> None:
    def program(device: torch.device) -> object:
        x = torch.arange(4.0, device=device)
        storage = x.untyped_storage()
        storage.resize_(0)
        freed = storage.nbytes()
        storage.resize_(16)
        x.copy_(torch.arange(4.0) + 1)
        storage.resize_(32)
        wide = torch.empty(0, device=device).set_(storage, 0, (8,), (1,))
        wide[4:] = 9
        return freed, storage.nbytes(), x, wide, storage.size(), storage.device.type == device.type

    check(program, device)


def test_memory_of_a_resized_storage(device: torch.device) -> None:
    before = torch.tpu.memory_allocated()
    x = torch.ones(1024, device=device)
    x.untyped_storage().resize_(0)
    assert torch.tpu.memory_allocated() == before
    x.untyped_storage().resize_(4096)
    assert torch.tpu.memory_allocated() == before + 4096


def test_use_beyond_the_storage_is_refused(device: torch.device) -> None:
    x = torch.arange(4.0, device=device)
    x.untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match="storage"):  # the CPU crashes here
        x + 1
    check_refused(lambda d: torch.ones(3, device=d).as_strided((4,), (1,)), device)
    check_refused(lambda d: torch.ones(3, device=d).as_strided((2,), (1,), 2), device)
    check_refused(lambda d: torch.ones(3, device=d).as_strided((2,), (-1,)), device)


def test_storage_copies(device: torch.device) -> None:
    x = torch.arange(3, dtype=torch.int32, device=device)
    storage = x.untyped_storage()
    assert storage.cpu().tolist() == [0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0]
    assert storage.clone().device == torch.device("tpu:0")
    assert x.cpu().untyped_storage().to(device=device).device == torch.device("tpu:0")
    twin = torch.empty(0, dtype=torch.int32, device=device).set_(storage.clone(), 0, (3,), (1,))
    twin.add_(1)
    assert (x.tolist(), twin.tolist()) == ([0, 1, 2], [1, 2, 3])
    target = torch.zeros(3, dtype=torch.int32, device=device)
    target.untyped_storage().copy_(storage)
    assert target.tolist() == [0, 1, 2]
    target.untyped_storage().copy_(torch.tensor([7, 8, 9], dtype=torch.int32).untyped_storage())
    assert target.tolist() == [7, 8, 9]
    assert storage.is_tpu


# ---- exchange with others --------------------------------------------------------------------------------------


def test_dlpack_import_from_the_cpu(device: torch.device) -> None:
    """Host memory of another library becomes a CPU tensor, which can be moved."""
    numpy = pytest.importorskip("numpy")
    array = numpy.arange(3.0)
    assert torch.from_dlpack(array).to(device).tolist() == [0, 1, 2]
    assert torch.as_tensor(array, device=device).tolist() == [0, 1, 2]
    assert torch.tensor(array, device=device).tolist() == [0, 1, 2]


def test_dlpack_of_another_library_becomes_a_tpu_tensor(device: torch.device) -> None:
    numpy = pytest.importorskip("numpy")
    array = numpy.arange(6.0).reshape(2, 3).T
    x = torch.from_dlpack(array, device="tpu")
    assert x.is_tpu
    assert x.tolist() == array.tolist()
    with pytest.raises(ValueError, match="without copying"):
        torch.from_dlpack(array, device=device, copy=False)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dlpack_shares_memory_between_tpu_tensors(dtype: torch.dtype, device: torch.device) -> None:
    x = torch.tensor([[0, 1, 0], [1, 0, 1]], device=device).to(dtype)
    y = torch.from_dlpack(x.t()[1:])
    assert y.is_tpu
    assert (y.dtype, y.shape, y.stride()) == (dtype, (2, 2), (1, 3))
    torch.testing.assert_close(y.cpu(), x.cpu().t()[1:])
    y.zero_()
    torch.testing.assert_close(x.cpu(), torch.tensor([[0, 0, 0], [1, 0, 0]]).to(dtype))
    del x
    torch.testing.assert_close(y.cpu(), torch.zeros(2, 2).to(dtype))


def test_dlpack_of_values_that_are_replaced(mode: str, device: torch.device) -> None:
    """A shared tensor sees later writes, also where programs reuse the old memory. A copy for the CPU does not."""
    x = torch.ones(64, 64, device=device)
    shared, copied = torch.from_dlpack(x), torch.from_dlpack(x, copy=True)
    on_cpu = torch.from_dlpack(x, device="cpu")
    for _ in range(3):
        x.mul_(2)
        shared.add_(1)
    assert x[0, 0].item() == shared[0, 0].item() == 15
    assert copied.is_tpu
    assert copied[0, 0].item() == on_cpu[0, 0].item() == 1


def test_dlpack_device(device: torch.device) -> None:
    kinds = torch.utils.dlpack.DLDeviceType
    assert torch.ones(1, device=device).__dlpack_device__() == (kinds.kDLExtDev, 0)
    assert torch.nn.Parameter(torch.ones(1, device=device)).__dlpack_device__() == (kinds.kDLExtDev, 0)
    assert torch.ones(1).__dlpack_device__() == (kinds.kDLCPU, 0)
    with pytest.raises(ValueError, match="Unknown device type meta"):
        torch.ones(1, device="meta").__dlpack_device__()


def test_dlpack_names_the_device_of_several() -> None:
    check_python(
        """
import torch
x = torch.arange(3.0, device="tpu:1")
assert x.__dlpack_device__() == (12, 1)
assert torch.from_dlpack(x).device == torch.device("tpu:1")
assert torch.from_dlpack(x, device="tpu:0").device == torch.device("tpu:0")
""",
        TORCHTPU_NUM_DEVICES="2",
    )


def test_dlpack_keeps_the_overrides_of_subclasses(device: torch.device) -> None:
    """PyTorch's method passes itself to `__torch_function__`, and so does the one for tpu tensors."""

    class Counting(torch.Tensor):
        seen: ClassVar[list[Any]] = []

        @classmethod
        def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            cls.seen.append(function)
            return super().__torch_function__(function, types, args, kwargs or {})

    for each in (torch.ones(2), torch.ones(2, device=device)):
        Counting.seen.clear()
        assert each.as_subclass(Counting).__dlpack_device__() == each.__dlpack_device__()
        assert torch.Tensor.__dlpack_device__ in Counting.seen
    if hasattr(torch.utils.dlpack, "ReadOnlyTensorWrapper"):
        for each in (torch.ones(2), torch.ones(2, device=device)):
            assert torch.from_dlpack(torch.utils.dlpack.ReadOnlyTensorWrapper(each)).tolist() == [1, 1]


def test_dlpack_for_numpy_is_a_copy(device: torch.device) -> None:
    """NumPy reads host memory only: it refuses the device, and takes a copy if it asks for the CPU."""
    numpy = pytest.importorskip("numpy")
    x = torch.arange(6.0, device=device).reshape(2, 3).t()
    with pytest.raises((RuntimeError, BufferError), match="device"):
        numpy.from_dlpack(x)
    array = numpy.from_dlpack(x, device="cpu")
    x.add_(1)
    assert array.tolist() == [[0, 3], [1, 4], [2, 5]]
    with pytest.raises(ValueError, match="without copying"):
        numpy.from_dlpack(x, device="cpu", copy=False)


def test_dlpack_for_jax_goes_through_the_cpu(device: torch.device) -> None:
    jax = pytest.importorskip("jax")
    x = torch.arange(3.0, device=device)
    with pytest.raises(TypeError, match="unsupported device"):
        jax.dlpack.from_dlpack(x)
    assert jax.dlpack.from_dlpack(torch.from_dlpack(x, device="cpu")).tolist() == [0, 1, 2]
    assert torch.from_dlpack(jax.numpy.arange(3), device=device).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("kind", "message"), [("gradient", "gradient"), ("conjugate", "conjugate bit"), ("sparse", "layout")]
)
def test_dlpack_refuses_what_a_capsule_cannot_hold(kind: str, message: str, device: torch.device) -> None:
    x = torch.ones(2, device=device)
    tensors = {"gradient": x.clone().requires_grad_(), "conjugate": (x * 1j).conj(), "sparse": x.to_sparse()}
    with pytest.raises(BufferError, match=message):
        torch.from_dlpack(tensors[kind])


def test_share_memory_is_harmless(device: torch.device) -> None:
    x = torch.ones(2, device=device)
    with contextlib.suppress(RuntimeError, NotImplementedError):  # for CUDA it does nothing
        x.share_memory_()
    assert x.tolist() == [1, 1]


@pytest.mark.parametrize(
    "imports", ["import safetensors, torch", "import torch, safetensors", "import safetensors.torch"]
)
def test_safetensors_reads_onto_the_device(imports: str, tmp_path: Path) -> None:
    """In each order of the imports, and after a library has only looked for the package."""
    printed = check_python(
        f"""
import importlib.util
importlib.util.find_spec("safetensors")
{imports}
import torch
from safetensors import safe_open
from safetensors.torch import load_file, load_model, save_file

path = {str(tmp_path / "model.safetensors")!r}
save_file({{"weight": torch.arange(4.0).view(2, 2)}}, path)
for device in ("tpu", "tpu:0", 0, "cpu"):
    weight = load_file(path, device=device)["weight"]
    print(weight.device, weight.tolist())
with safe_open(path, "pt", device="tpu") as file:
    part = file.get_slice("weight")[1:]
    print(part.device, part.tolist())
model = torch.nn.Linear(2, 2, bias=False, device="tpu")
print(load_model(model, path, device="tpu"), model.weight.tolist())
save_file({{"weight": model.weight.detach() + 1}}, path)
print(load_file(path)["weight"].tolist())
for device in ("tpu:7", "gpu"):
    try:
        load_file(path, device=device)
    except Exception as error:
        print(error)
"""
    )
    assert printed.splitlines() == [
        "tpu:0 [[0.0, 1.0], [2.0, 3.0]]",
        "tpu:0 [[0.0, 1.0], [2.0, 3.0]]",
        "tpu:0 [[0.0, 1.0], [2.0, 3.0]]",
        "cpu [[0.0, 1.0], [2.0, 3.0]]",
        "tpu:0 [[2.0, 3.0]]",
        "(set(), []) [[0.0, 1.0], [2.0, 3.0]]",
        "[[1.0, 2.0], [3.0, 4.0]]",
        "Invalid device index 7: there is 1 tpu device",
        "device gpu is invalid",
    ]
