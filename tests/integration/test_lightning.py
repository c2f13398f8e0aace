"""torchtpu.integrations.lightning. `make test-libraries` installs Lightning."""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

pl = pytest.importorskip("lightning.pytorch", reason="lightning is not installed: make test-libraries")

from torchtpu.integrations.lightning import TpuAccelerator, TpuStrategy  # noqa: E402
from torchtpu.integrations.lightning.precision import on_tpu  # noqa: E402

from tests.distributed.launch import torchrun  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


class Classifier(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.BatchNorm1d(16), nn.Linear(16, 3))
        self.losses: list[Tensor] = []
        self.seen: set[tuple[str, torch.dtype]] = set()

    def training_step(self, batch: Any, index: int) -> Tensor:
        x, y = batch
        logits = self.layers(x)
        self.seen.add((logits.device.type, logits.dtype))
        loss = nn.functional.cross_entropy(logits, y)
        self.log("loss", loss, prog_bar=False)
        self.losses.append(loss.detach())
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        x, y = batch
        self.log("accuracy", (self.layers(x).argmax(1) == y).float().mean())

    def predict_step(self, batch: Any, index: int) -> Tensor:
        return self.layers(batch[0])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), 0.01)


def _data() -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(64, 8, generator=generator)
    return DataLoader(TensorDataset(x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long()), batch_size=16)


def _trainer(folder: Path, **kwargs: Any) -> Any:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return pl.Trainer(**quiet, default_root_dir=folder, max_epochs=2, **kwargs)


def _fit(folder: Path, **kwargs: Any) -> tuple[Classifier, Any]:
    torch.manual_seed(2)
    model, trainer = Classifier(), _trainer(folder, **kwargs)
    trainer.fit(model, _data(), _data())
    return model, trainer


NAMED = {"accelerator": "torchtpu", "strategy": "torchtpu", "devices": 1}


def test_losses_are_those_of_the_cpu(device: torch.device, tmp_path: Path) -> None:
    model, trainer = _fit(tmp_path, **NAMED)
    on_cpu, cpu = _fit(tmp_path, accelerator="cpu")
    assert model.seen == {("tpu", torch.float32)}
    torch.testing.assert_close(torch.stack(model.losses).cpu(), torch.stack(on_cpu.losses), rtol=1e-4, atol=1e-5)
    assert trainer.callback_metrics["accuracy"].item() == pytest.approx(cpu.callback_metrics["accuracy"].item())
    assert isinstance(trainer.accelerator, TpuAccelerator)


@pytest.mark.parametrize(("precision", "dtype"), [("bf16-mixed", torch.bfloat16), ("16-mixed", torch.float16)])
def test_mixed_precision(precision: str, dtype: torch.dtype, device: torch.device, tmp_path: Path) -> None:
    model, trainer = _fit(tmp_path, precision=precision, gradient_clip_val=1.0, **NAMED)
    assert model.seen == {("tpu", dtype)}
    assert next(model.parameters()).dtype == torch.float32
    assert trainer.precision_plugin.device == "tpu"
    assert model.losses[-1] < model.losses[0]


def test_a_strategy_alone(device: torch.device, tmp_path: Path) -> None:
    model, trainer = _fit(tmp_path, strategy=TpuStrategy("tpu:0"), precision="bf16-true")
    assert model.seen == {("tpu", torch.bfloat16)}
    assert trainer.strategy.root_device == torch.device("tpu:0")


def test_checkpoints_and_predictions(device: torch.device, tmp_path: Path) -> None:
    model, trainer = _fit(tmp_path, **NAMED)
    path = tmp_path / "model.ckpt"
    trainer.save_checkpoint(path)
    again = Classifier.load_from_checkpoint(path, map_location="cpu")
    expected = torch.cat(trainer.predict(model, _data()))
    found = torch.cat(_trainer(tmp_path, accelerator="cpu").predict(again, _data()))
    torch.testing.assert_close(found, expected.cpu(), rtol=1e-4, atol=1e-5)
    resumed = _trainer(tmp_path, **NAMED)
    resumed.fit_loop.max_epochs = 3
    resumed.fit(Classifier(), _data(), ckpt_path=str(path))
    assert resumed.current_epoch == 3


def test_compiled_modules(device: torch.device, tmp_path: Path) -> None:
    torch.manual_seed(2)
    model, trainer = Classifier(), _trainer(tmp_path, **NAMED)
    model.layers.compile(backend="inductor")
    trainer.fit(model, _data())
    assert model.losses[-1] < model.losses[0]
    torch._dynamo.reset()


def test_what_is_left_out_is_said(device: torch.device, tmp_path: Path) -> None:
    from lightning.fabric.utilities.exceptions import MisconfigurationException

    with pytest.raises(MisconfigurationException, match="strategy='torchtpu'"):
        _fit(tmp_path, accelerator="torchtpu", devices=1)
    with pytest.raises(MisconfigurationException, match="accelerator='torchtpu'"):
        _trainer(tmp_path, strategy="torchtpu", accelerator="cpu")
    with pytest.raises(MisconfigurationException, match="torchrun"):
        _trainer(tmp_path, accelerator="torchtpu", strategy="torchtpu", devices=torch.tpu.device_count() + 1)


def _of_ranks(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    folder.mkdir()
    finished = torchrun([str(Path(__file__).with_name("lightning_ranks.py")), *arguments, str(folder)])
    assert finished.returncode == 0, finished.stderr
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(2)]


@pytest.fixture(scope="module")
def of_the_cpu(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("cpu")
    return {front: _of_ranks(folder / front, front, "cpu", "ddp", "32-true") for front in ("trainer", "fabric")}


@pytest.mark.parametrize("strategy", ["torchtpu_ddp", "torchtpu_fsdp", "torchtpu_model_parallel"])
@pytest.mark.parametrize("front", ["trainer", "fabric"])
def test_two_processes(front: str, strategy: str, of_the_cpu: dict[str, list[dict[str, Any]]], tmp_path: Path) -> None:
    on_tpu, on_cpu = _of_ranks(tmp_path / "tpu", front, "torchtpu", strategy, "32-true"), of_the_cpu[front]
    assert [str(rank["device"]) for rank in on_tpu] == ["tpu:0", "tpu:1"]
    assert on_tpu[0]["losses"] != on_tpu[1]["losses"]  # each rank has batches of its own
    for found, expected in zip(on_tpu, on_cpu, strict=True):
        torch.testing.assert_close(found["losses"], expected["losses"], rtol=1e-4, atol=1e-5)
    weights = on_tpu[0].get("weights", {})
    assert bool(weights) == (front == "trainer")
    for name, weight in weights.items():
        torch.testing.assert_close(weight, on_cpu[0]["weights"][name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("front", ["trainer", "fabric"])
@pytest.mark.parametrize("strategy", ["torchtpu_fsdp", "torchtpu_model_parallel"])
def test_mixed_precision_of_shards(
    strategy: str, front: str, of_the_cpu: dict[str, list[dict[str, Any]]], tmp_path: Path
) -> None:
    found, exact = _of_ranks(tmp_path / "tpu", front, "torchtpu", strategy, "bf16-mixed")[0], of_the_cpu[front][0]
    torch.testing.assert_close(found["losses"], exact["losses"], rtol=0.03, atol=0.01)
    assert found["losses"] != exact["losses"]
    assert found.get("dtypes", {torch.bfloat16}) == {torch.bfloat16}
    assert found.get("has_autocast", True)


@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed", "32-true"])
@pytest.mark.parametrize("front", ["lightning.pytorch", "lightning.fabric"])
def test_the_precision_of_shards_is_the_devices(front: str, precision: str, device: torch.device) -> None:
    theirs = importlib.import_module(f"{front}.plugins.precision").FSDPPrecision(precision)
    ours = on_tpu(theirs)
    assert isinstance(ours, type(theirs))
    with ours.forward_context():
        assert torch.is_autocast_enabled("tpu") == ("mixed" in precision)
    assert (ours.scaler is not None) == (precision == "16-mixed")
    assert ours.scaler is None or ours.scaler._device == "tpu"
    assert on_tpu(ours) is ours


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "bf16-true"])
def test_fabric(precision: str, device: torch.device) -> None:
    from lightning.fabric import Fabric

    def losses(**how: Any) -> list[float]:
        torch.manual_seed(3)
        fabric = Fabric(devices=1, precision=precision, **how)
        model = Classifier().layers
        model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters(), 0.01))
        found = []
        for x, y in fabric.setup_dataloaders(_data()):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            fabric.backward(loss)
            fabric.clip_gradients(model, optimizer, max_norm=1.0)
            optimizer.step()
            assert loss.device.type == how["accelerator"].replace("torch", "")
            found.append(loss.item())
        return found

    close = {"rtol": 1e-4, "atol": 1e-5} if precision == "32-true" else {"rtol": 0.03, "atol": 0.01}
    found = losses(accelerator="torchtpu", strategy="torchtpu")
    torch.testing.assert_close(found, losses(accelerator="cpu"), **close)


def test_memory_is_among_the_statistics(device: torch.device) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert TpuAccelerator().get_device_stats(device)
