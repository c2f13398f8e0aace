"""Views, strides and offsets; writing through views; overlapping writes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.helpers import check, check_refused, programs_made

Tensor = torch.Tensor


def base(device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.arange(24, dtype=dtype).reshape(2, 3, 4).clone().to(device)


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "itself": lambda x: x.view(2, 3, 4),
    "slice": lambda x: x[:, 1:, ::2],
    "slice of slice": lambda x: x[:, 1:][:, :, 1:][:, 1],
    "select": lambda x: x[1, 2],
    "element": lambda x: x[1, 2, 3],
    "negative": lambda x: x[-1, ..., -2],
    "new dimension": lambda x: x[:, None, 1:, None],
    "transpose": lambda x: x.transpose(0, 2),
    "transpose of slice": lambda x: x[:, 1:, ::2].transpose(0, 2),
    "slice of transpose": lambda x: x.transpose(0, 2)[1:, ::2],
    "permute of permute": lambda x: x.permute(2, 0, 1).permute(1, 2, 0)[..., 1:],
    "flatten": lambda x: x.flatten(),
    "view after slice": lambda x: x[1:].view(4, 3),
    "view of part": lambda x: x[:, :, :2].view(2, 3, 2, 1),
    "slice after view": lambda x: x.view(6, 4)[::3, 1:3],
    "select of view": lambda x: x.view(-1)[5:][::3],
    "narrow": lambda x: x.narrow(1, 1, 2).narrow(2, 2, 1),
    "squeeze": lambda x: x[:, 1:2].squeeze(1),
    "unsqueeze": lambda x: x.unsqueeze(1).transpose(1, 3),
    "diagonal": lambda x: x.diagonal(dim1=1, dim2=2),
    "diagonal with offset": lambda x: x[1].diagonal(1)[1:],
    "unbind": lambda x: x.unbind(1)[1],
    "split": lambda x: x.split([1, 3], 2)[1],
    "chunk": lambda x: x.chunk(2, 1)[1],
    "unflatten": lambda x: x.unflatten(2, (2, 2))[..., 1],
    "movedim": lambda x: x.movedim(0, 2)[1],
    "matrix transpose": lambda x: x.mT[..., 1],
    "as_strided": lambda x: x.as_strided((3, 2), (5, 2), 4),
    "as_strided of slice": lambda x: x[1].as_strided((2, 2), (4, 1), 13),
    "detach": lambda x: x.detach()[0],
    "data": lambda x: x.data[..., 1],
    "empty": lambda x: x[:, 3:],
    "gap": lambda x: x[::2, ::2, ::3],
    "reversed dimensions": lambda x: x.permute(2, 1, 0)[1:],
}
# Several positions of these are one element, so they can only be read.
OVERLAPPING: dict[str, Callable[[Tensor], Tensor]] = {
    "expand": lambda x: x[:1].expand(3, 3, 4),
    "expand of element": lambda x: x[0, 0, 1].expand(2, 2),
    "expand of new dimension": lambda x: x[0, :, :1].unsqueeze(0).expand(2, 3, 4),
    "unfold": lambda x: x.unfold(2, 3, 1),
    "unfold of transpose": lambda x: x.transpose(0, 2).unfold(0, 2, 1)[1:],
    "windows": lambda x: x.as_strided((4, 3), (2, 1), 1),
}
ALL = VIEWS | OVERLAPPING


@pytest.mark.parametrize("view", ALL.values(), ids=ALL.keys())
def test_read(view: Callable[[Tensor], Tensor], device: torch.device, mode: str) -> None:
    def program(device: torch.device) -> object:
        x = base(device)
        y = view(x)
        assert y.untyped_storage()._cdata == x.untyped_storage()._cdata
        return y, y + 1, y.sum(), y.clone(), y.contiguous(), y.is_contiguous(), view(x * 2)

    check(program, device)


PARTS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "first": lambda x, i: x[:i],
    "last": lambda x, i: x[i:],
    "steps": lambda x, i: x[::i],
    "transposed": lambda x, i: x[:i].t(),
    "column": lambda x, i: x[i:, i],
    "diagonal": lambda x, i: x.diagonal(i),
    "repeated": lambda x, i: x[:i, None].expand(i, 3, 30),
    "bits": lambda x, i: x[:i].view(torch.int32),
    "elements": lambda x, i: x[x > i],
    "positions": lambda x, i: (x > i).nonzero(),
}


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.usefixtures("constant_sizes")
def test_a_read_of_a_part_makes_no_program(name: str, device: torch.device, mode: str) -> None:
    """Parts of other sizes each time. One of another element type has a program for each size."""
    x = torch.arange(900.0).reshape(30, 30) / 27
    on_device = x.to(device)
    torch.tpu.synchronize()
    for number, i in enumerate((3, 7, 11, 20)):
        before = programs_made()
        actual = PARTS[name](on_device, i)
        assert torch.equal(actual.cpu(), PARTS[name](x, i))
        assert name == "bits" or number == 0 or programs_made() == before


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_write_through_view(view: Callable[[Tensor], Tensor], device: torch.device, mode: str) -> None:
    def program(device: torch.device) -> object:
        x = base(device)
        other = x.view(-1)
        y = view(x)
        before = y.clone()
        y.mul_(10)
        second = view(x)
        second += before
        y.copy_(y + 1)
        x[0] = x[0] - 1  # the base changes, and the view must show it
        y.add_(0.5)
        return x, y, other, before, second

    check(program, device)


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.int64, torch.bfloat16, torch.float64, torch.complex64]
)
def test_write_through_view_of_each_dtype(dtype: torch.dtype, device: torch.device) -> None:
    def program(device: torch.device) -> object:
        x = base(device, torch.float32).to(dtype)
        y = x.transpose(0, 2)[1:, ::2]
        y.fill_(1)
        y[0].copy_(torch.zeros(2, 2, dtype=dtype))
        return x, y

    check(program, device)


def test_write_keeps_its_dtype(device: torch.device, mode: str) -> None:
    def program(device: torch.device) -> object:
        x = torch.zeros(2, 3, dtype=torch.int32, device=device)
        x[0] = torch.tensor([1.7, -2.7, 3.2], device=device)
        x[1, 1:] = 7.9
        x[1].add_(torch.tensor(2, dtype=torch.int64))
        return x

    check(program, device)


def test_views_outlive_the_base(device: torch.device, mode: str) -> None:
    x = base(device)
    y, z = x[1], x.view(-1)[14:]
    del x
    y += 100
    assert z.tolist() == [114.0 + i for i in range(10)]
    del y
    assert z[2:].sum().item() == sum(116.0 + i for i in range(8))


def test_many_views_of_one_storage(device: torch.device, mode: str) -> None:
    def program(device: torch.device) -> object:
        x = torch.zeros(6, 6, device=device)
        rows, columns = x.unbind(0), x.unbind(1)
        for i in range(6):
            rows[i].add_(i)
            columns[i].mul_(i)
            x.diagonal().add_(1)
        x[1:4, 2:5][1:].fill_(-1)
        return x, rows, columns

    check(program, device)


def test_a_value_read_before_a_write_stays(device: torch.device, mode: str) -> None:
    x = torch.zeros(4, device=device)
    results = []
    for i in range(5):
        results.append(x * 1)
        x[i % 4] += 1
        x.add_(1)
    assert [y.tolist() for y in results] == [
        [0, 0, 0, 0],
        [2, 1, 1, 1],
        [3, 3, 2, 2],
        [4, 4, 4, 3],
        [5, 5, 5, 5],
    ]
    assert x.tolist() == [7, 6, 6, 6]


def test_views_with_another_dtype(device: torch.device, mode: str) -> None:
    def program(device: torch.device) -> object:
        x = torch.tensor([[1.0, -2.5], [0.0, 3e8]]).to(device)
        bits = x.view(torch.int32)
        bytes_ = x.view(torch.uint8)
        shorts = x.view(torch.int16)
        bits[0, 0] += 1 << 23  # the exponent: doubles the number
        bytes_[1, 3] = 0x40
        wide = x.view(torch.int64)
        return x, bits, bytes_, shorts, wide, x.view(torch.float32)

    check(program, device)


def test_complex_parts(device: torch.device, mode: str) -> None:
    def program(device: torch.device) -> object:
        z = torch.tensor([1 + 2j, -3 + 0.5j, 2j], dtype=torch.complex64).to(device)
        z.real.mul_(2)
        z.imag[1:] = 7
        parts = torch.view_as_real(z)
        parts[0, 1] = -1
        return z, parts, torch.view_as_complex(parts.clone())

    check(program, device)


def test_lazy_conjugation_and_negation(device: torch.device, mode: str) -> None:
    def program(device: torch.device) -> object:
        z = torch.tensor([1 + 2j, -3 + 0.5j], dtype=torch.complex64).to(device)
        conjugate, negative = z.conj(), z.conj().imag
        read = [conjugate + 0, conjugate.clone(), conjugate.tolist(), conjugate[0].item(), conjugate @ z, z @ conjugate]
        read += [negative + 0, negative.clone(), negative.tolist(), negative[1].item(), negative.to(torch.float64)]
        read += [torch.outer(z, z).mH @ torch.outer(z, z), negative @ negative.clone()]
        conjugate.add_(1j)
        negative.mul_(2)
        conjugate[0] = 3 + 4j
        negative.neg_()
        target = torch.zeros(2, device=device)._neg_view()
        target.copy_(torch.tensor([1.0, -2.0]))
        return read, z, conjugate.resolve_conj(), negative.resolve_neg(), target.resolve_neg(), target.sum()

    check(program, device)


def test_lazy_conjugation_and_negation_have_keys_of_their_own(device: torch.device, mode: str) -> None:
    """Tensors that differ in nothing else do not share a program."""

    def program(device: torch.device) -> object:
        z = torch.tensor([1 + 2j, -3 + 0.5j], dtype=torch.complex64).to(device)
        x = torch.tensor([1.0, -2.0]).to(device)
        pairs = [(z, z.conj()), (x, x._neg_view()), (z.imag, z.conj().imag)]
        copies = [(plain.clone(), lazy.clone(), torch.zeros_like(plain).copy_(lazy)) for plain, lazy in pairs]
        return z + 1, z.conj() + 1, x * 3, x._neg_view() * 3, torch.dot(z, z), torch.dot(z.conj(), z), copies

    check(program, device)


def test_arguments_that_share_a_storage_have_keys_of_their_own(device: torch.device, mode: str) -> None:
    """Calls that differ only in which of their arguments share a storage do not share a program."""

    def program(device: torch.device) -> object:
        x, y = torch.tensor([1.0, 2.0]).to(device), torch.tensor([5.0, 7.0]).to(device)
        return [torch.addcmul(*call) for call in ((x, y, x), (x, y, y), (x, x, y), (x, x, x))]

    check(program, device)


def test_in_place_metadata(device: torch.device, mode: str) -> None:
    def program(device: torch.device) -> object:
        x = base(device)
        y = x[1]
        y.t_()
        y.unsqueeze_(0)
        y.squeeze_(0)
        y.add_(1)
        z = x.view(-1)
        z.as_strided_((2, 2), (3, 1), 5)
        z.zero_()
        x.transpose_(0, 1)
        return x, y, z

    check(program, device)


def test_aliases(device: torch.device) -> None:
    def program(device: torch.device) -> object:
        x = base(device)
        y = x[1:]
        same = torch.empty(0, device=device).set_(y)
        apart = x.clone()
        return [
            y._is_view(),
            y._base is x,
            same.is_set_to(y),
            apart.is_set_to(x),
            y.data_ptr() - x.data_ptr(),
            same.data_ptr() == y.data_ptr(),
            apart.data_ptr() == x.data_ptr(),
            x.untyped_storage().nbytes(),
            y._version == x._version,
        ]

    check(program, device)


def test_version_counts_writes_through_views(device: torch.device) -> None:
    x = base(device)
    before = x._version
    x[1].add_(1)
    x.view(-1)[0] = 3
    assert x._version == before + 2


def test_channels_last(device: torch.device, mode: str) -> None:
    def program(device: torch.device) -> object:
        x = torch.arange(48.0).reshape(2, 3, 2, 4).to(device)
        y = x.to(memory_format=torch.channels_last)
        results = [y, y + 1, y * y, y.relu(), y.clone(), y + x, y[:, 1:], y.contiguous(), torch.empty_like(y).fill_(1)]
        results += [
            y.to(torch.bfloat16),
            y.clone(memory_format=torch.contiguous_format),
            y.sum(1),
            torch.where(y > 3, y, x),
        ]
        y.add_(5)
        y[:, 0].zero_()
        module = torch.nn.Conv2d(3, 2, 1).to(memory_format=torch.channels_last)
        with torch.no_grad():
            module.weight.fill_(0.5)
        flags = [y.is_contiguous(memory_format=torch.channels_last), y.is_contiguous()]
        return (
            results,
            y,
            flags,
            module.to(device).weight,
            torch.zeros(1, 2, 1, 2, 2).to(memory_format=torch.channels_last_3d),
        )

    check(program, device)


OVERLAPPING_WRITES = {
    "in place on expanded": lambda x: x[:1].expand(3, 3, 4).add_(1),
    "copy to expanded": lambda x: x[0, 0, :1].expand(4).copy_(x[1, 1]),
    "assignment to expanded": lambda x: x[0, 0, :1].expand(4).__setitem__(slice(None), x[1, 1]),
    "shifted operand": lambda x: x.view(-1)[1:].add_(x.view(-1)[:-1]),
    "shifted copy": lambda x: x.view(-1)[1:].copy_(x.view(-1)[:-1]),
    "transposed operand": lambda x: x.view(-1)[:16].view(4, 4).add_(x.view(-1)[:16].view(4, 4).t()),
    "out overlaps an operand": lambda x: torch.add(x[0, 0, 1:], x[1, 0, 1:], out=x[0, 0, :-1]),
    "out overlaps itself": lambda x: torch.add(x[0, 0], 1, out=x[1, 0, :1].expand(4)),
}


@pytest.mark.parametrize("write", OVERLAPPING_WRITES.values(), ids=OVERLAPPING_WRITES.keys())
def test_overlapping_writes_are_refused(write: Callable[[Tensor], Tensor], device: torch.device, mode: str) -> None:
    error = check_refused(lambda device: write(base(device)), device)
    assert "memory location" in str(error)


def test_allowed_writes_to_overlaps(device: torch.device, mode: str) -> None:
    """PyTorch allows these: each element of the storage gets a single value."""

    def program(device: torch.device) -> object:
        x = base(device)
        x[0, 0, :1].expand(4).fill_(9)
        x[0, 1, :1].expand(2).zero_()
        x[1].add_(x[1])
        x[1].copy_(x[1])
        torch.add(x[0], x[0], out=x[0])
        return x

    check(program, device)


def test_reshape_copies_or_not(device: torch.device) -> None:
    def program(device: torch.device) -> object:
        x = base(device)
        kept, copied = x.reshape(6, 4), x.transpose(0, 2).reshape(6, 4)
        kept[0] = -1
        copied[1] = -2
        return x, kept, copied

    check(program, device)
    check_refused(lambda device: base(device).transpose(0, 2).view(6, 4), device)


def test_offsets_share_programs(device: torch.device) -> None:
    """A loop over rows or batches compiles a few times at first, not for every row."""
    x = torch.zeros(40, 3, device=device)
    for work in (
        lambda i: x[i] + 1,
        lambda i: x[i].add_(1),
        lambda i: x[i, 1].item(),
        lambda i: x[i : i + 4].sum(),
        lambda i: x.__setitem__(i, 2.0),
    ):
        torch.tpu.synchronize()
        torch.tpu.reset_cache_stats()
        for i in range(1, 30):
            work(i)
        torch.tpu.synchronize()
        assert torch.tpu.cache_stats()["compiles"] <= 6
    assert x.tolist() == [[0.0] * 3] + [[2.0] * 3] * 29 + [[0.0] * 3] * 10


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128, torch.int16, torch.uint8], ids=str)
def test_offsets_share_programs_where_memory_has_another_dtype(dtype: torch.dtype, device: torch.device) -> None:
    memory = torch.arange(40 * 3 * 4, dtype=torch.float64 if dtype == torch.complex128 else torch.float32)
    memory = memory.view(40, 3, 4).to(device)

    def shown(memory: torch.Tensor) -> torch.Tensor:
        return torch.view_as_complex(memory.unflatten(-1, (2, 2))) if dtype.is_complex else memory.view(dtype)

    x, expected = shown(memory), shown(memory.cpu())
    for work in (
        lambda x, i: x[i] + 1,
        lambda x, i: x[i].mul_(3),
        lambda x, i: x[i, 1, 1].item(),
        lambda x, i: x[i : i + 4, 1].sum(),
        lambda x, i: x[i, 2, :1].fill_(2),
    ):
        torch.tpu.synchronize()
        before = programs_made()
        for i in range(1, 30):
            result = torch.as_tensor(work(x, i)).cpu()
            torch.testing.assert_close(result, torch.as_tensor(work(expected, i)))
        assert programs_made() - before <= 12
    torch.testing.assert_close(x.cpu(), expected)


@pytest.mark.usefixtures("changing_sizes")
def test_batches_of_flat_data_share_programs(device: torch.device, mode: str) -> None:
    """A loop that reads and writes parts of a long vector, each shown as a matrix, settles."""
    data = torch.arange(900.0)
    mine = data.to(device)

    def step(data: Tensor, i: int) -> Tensor:
        start = 13 * i + 7
        batch, columns = data[start : start + 12].view(3, 4), data.view(30, 30)[2:6, i : i + 3]
        batch.add_(columns.sum())
        columns.mul_(0.5)
        return batch.mT @ batch + data[start + 1 : start + 17].view(4, 4).t()

    made = []
    for i in range(16):
        before = programs_made()
        torch.testing.assert_close(step(mine, i).cpu(), step(data, i))
        made.append(programs_made() - before)
    torch.testing.assert_close(mine.cpu(), data)
    assert sum(made[8:]) == 0, made


@pytest.mark.usefixtures("changing_sizes")
def test_copies_of_parts_have_constant_offsets_where_that_is_faster(device: torch.device) -> None:
    """A copy of a block takes its offset as an input from the first call on. The heads of attention in a combined
    projection have gaps, which such a program would read too: the first few offsets have programs of their own."""
    rows, projection = torch.randn(3, 7, 5, device=device), torch.randn(2 * 11, 3 * 4 * 3, device=device)
    heads = projection.view(2, 11, 3, 4, 3).permute(2, 0, 3, 1, 4)
    with torch.tpu.set_eager_mode("strict"):
        for parts, programs in ((rows, 1), (heads, 3)):
            torch.tpu.synchronize()
            before = programs_made()
            copies = [part.clone() for part in parts]
            torch.tpu.synchronize()
            assert programs_made() - before == programs
            assert all(torch.equal(copy.cpu(), part) for copy, part in zip(copies, parts.cpu(), strict=True))


def test_products_of_merged_batches(device: torch.device, mode: str) -> None:
    """Matrices whose batches a reshape merged, in the same way on both sides or not, transposed or not."""

    def program(device: torch.device) -> object:
        def batches(*dims: int) -> Tensor:
            return torch.randn(dims, generator=torch.Generator().manual_seed(sum(dims))).to(device).requires_grad_()

        x, y, z = batches(2, 5, 3, 4), batches(2, 3, 4, 6), batches(3, 2, 5, 4)
        heads, same, other = (
            x.transpose(1, 2).reshape(6, 5, 4),
            y.reshape(6, 4, 6),
            z.reshape(6, 5, 4).transpose(1, 2),
        )
        ones = torch.ones(6, 5, 6, device=device)
        products = (
            torch.bmm(heads, same),
            torch.bmm(heads, other),
            torch.baddbmm(ones, heads, same, beta=0.5, alpha=2),
            x.transpose(1, 2) @ y,
            heads @ heads.mT,
            x[:1].transpose(1, 2).expand(2, 3, 5, 4) @ y[:, :, :, :1],
            torch.einsum("bqhd,bhdk->bhqk", x, y),
        )
        gradients = torch.autograd.grad(sum(each.square().sum() for each in products), (x, y, z))
        return products, gradients

    check(program, device)
