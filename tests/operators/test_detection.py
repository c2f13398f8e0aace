"""torchvision's operators for object detection, and models that call them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.helpers import programs_made

# `make test` installs it. torchtpu does not need it.
torchvision = pytest.importorskip("torchvision", reason="torchvision is not installed: pip install torchvision")
ops = torchvision.ops


def random_boxes(count: int, size: float, dtype: torch.dtype = torch.float32) -> Tensor:
    corners = torch.rand(count, 2, dtype=dtype) * size
    return torch.cat([corners, corners + torch.rand(count, 2, dtype=dtype) * size / 2], 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [0, 1, 7, 200])
def test_nms(count: int, dtype: torch.dtype, device: torch.device) -> None:
    boxes, scores = random_boxes(count, 10, dtype), torch.rand(count, dtype=dtype)
    scores[count // 2 :] = scores[: count - count // 2].clone()  # ties keep their order
    for threshold in (0.0, 0.3, 0.5, 0.9):
        expected = ops.nms(boxes, scores, threshold)
        assert torch.equal(ops.nms(boxes.to(device), scores.to(device), threshold).cpu(), expected)


@pytest.mark.usefixtures("changing_sizes")
@pytest.mark.parametrize("mode", ["strict", "fused"])
def test_nms_of_numbers_that_change(device: torch.device, mode: str) -> None:
    torch.tpu.set_eager_mode(mode)
    made = []
    for count in (50, 37, 61, 44, 58, 39, 64, 5, 33):
        boxes, scores = random_boxes(count, 10), torch.rand(count)
        scores[: count // 3] = -torch.inf
        scores[count // 2] = torch.nan
        boxes_on_device, scores_on_device = boxes.to(device), scores.to(device)
        before = programs_made()
        kept = ops.nms(boxes_on_device, scores_on_device, 0.3).cpu()
        made.append(programs_made() - before)
        assert torch.equal(kept, ops.nms(boxes, scores, 0.3))
    assert sum(made[3:]) == 0, made


def test_nms_at_the_threshold(device: torch.device) -> None:
    """The overlap is exactly 0.7 in float32, which is less than 0.7."""
    boxes = torch.tensor([[0.0, 0.0, 10.0, 1.0], [0.0, 0.0, 7.0, 1.0], [0.0, 0.0, 5.0, 1.0]])
    scores = torch.tensor([0.9, 0.8, 0.7])
    for threshold in (0.7, 0.5):
        expected = ops.nms(boxes, scores, threshold)
        assert torch.equal(ops.nms(boxes.to(device), scores.to(device), threshold).cpu(), expected)


def test_batched_nms(device: torch.device) -> None:
    boxes, scores, labels = random_boxes(60, 10), torch.rand(60), torch.randint(0, 3, (60,))
    expected = ops.batched_nms(boxes, scores, labels, 0.4)
    assert torch.equal(ops.batched_nms(boxes.to(device), scores.to(device), labels.to(device), 0.4).cpu(), expected)


def test_nms_refuses_other_shapes(device: torch.device) -> None:
    for boxes, scores in (
        (torch.rand(3, 5), torch.rand(3)),
        (torch.rand(4), torch.rand(4)),
        (torch.rand(3, 4), torch.rand(2)),
    ):
        with pytest.raises(RuntimeError) as expected:
            ops.nms(boxes, scores, 0.5)
        with pytest.raises(RuntimeError) as actual:
            ops.nms(boxes.to(device), scores.to(device), 0.5)
        assert str(actual.value).splitlines()[0] in str(expected.value)


def test_what_has_no_row_says_so(device: torch.device) -> None:
    """There are rows for what torchvision's CUDA kernels have, but for one new operator."""
    boxes = torch.tensor([[2.0, 2.0, 4.0, 4.0, 30.0]], device=device)
    with pytest.raises(NotImplementedError, match="torchvision::box_iou_rotated"):
        torch.ops.torchvision.box_iou_rotated(boxes, boxes)


@pytest.mark.slow
def test_a_detector(device: torch.device) -> None:
    torch.manual_seed(0)
    make = torchvision.models.detection.fasterrcnn_mobilenet_v3_large_320_fpn
    model = make(weights=None, weights_backbone=None, num_classes=3, box_score_thresh=0.0).eval()
    image = torch.rand(3, 64, 96)
    targets = [{"boxes": torch.tensor([[4.0, 4.0, 40.0, 50.0]]), "labels": torch.tensor([1])}]
    with torch.no_grad():
        expected = model([image])[0]
        actual = model.to(device)([image.to(device)])[0]
    for name in expected:
        torch.testing.assert_close(actual[name].cpu(), expected[name], rtol=1e-3, atol=1e-3)
    losses = model.train()([image.to(device)], [{name: each.to(device) for name, each in targets[0].items()}])
    sum(losses.values()).backward()
    assert all(each.isfinite() for each in losses.values())
    assert all(each.grad is None or each.grad.isfinite().all() for each in model.parameters())
