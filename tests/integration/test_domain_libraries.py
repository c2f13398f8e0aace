"""Libraries of single fields: language models, graphs, Gaussian processes, probabilistic programs, images, and
reinforcement learning.

They train on the device and on the CPU from the same weights, and the losses are compared. `make test-libraries`
installs them. Nothing is downloaded.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.integration.test_libraries import library

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

MODES = ["strict", "fused"]


def losses_of(model: nn.Module, loss: Callable[[], Tensor], steps: int = 5, rate: float = 0.02) -> list[float]:
    optimizer = torch.optim.Adam(model.parameters(), rate)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
        losses.append(value.detach())
    return [value.item() for value in losses]


# ---- language models ----------------------------------------------------------------------------------------------


def titan_model() -> nn.Module:
    """torchtitan's Llama 3 for debugging, with its attention of packed documents."""
    specification = library("torchtitan.models.llama3").model_registry("debugmodel", attn_backend="varlen")
    model = specification.model.build()
    model.init_states(buffer_device=torch.device("cpu"))
    return model


def attend(query: Tensor, key: Tensor, value: Tensor, **_: Any) -> Tensor:
    """Causal attention of whole rows. PyTorch has no attention of packed documents on the CPU."""
    heads = [each.transpose(1, 2) for each in (query, key, value)]
    attention = nn.functional.scaled_dot_product_attention(*heads, is_causal=True, enable_gqa=True)
    return attention.transpose(1, 2)


@pytest.mark.parametrize("way", [*MODES, "compiled"])
def test_a_model_of_torchtitan(way: str, device: torch.device, fresh_dynamo: None) -> None:
    model: Any = titan_model()
    tokens = torch.randint(0, 2000, (2, 64))
    positions = torch.arange(64).expand(2, 64)

    def train(model: Any, run: Any, place: str | torch.device) -> list[float]:
        inputs, at = tokens.to(place), positions.to(place)

        def loss() -> Tensor:
            logits = run(inputs, at, model.get_attention_masks(at))
            return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), inputs[:, 1:].flatten())

        return losses_of(model, loss, rate=8e-4)

    moved = copy.deepcopy(model).to(device)
    with torch.tpu.set_eager_mode(way if way in MODES else "strict"):
        actual = train(moved, torch.compile(moved) if way == "compiled" else moved, device)
    for layer in model.layers.values():
        layer.attention.inner_attention.forward = attend
    assert actual == pytest.approx(train(model, model, "cpu"), rel=1e-3)


# ---- graphs ------------------------------------------------------------------------------------------------------


def graph() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features, edges, the graph of each node, and labels."""
    return torch.randn(20, 8), torch.randint(0, 20, (2, 60)), torch.arange(20) // 5, torch.randint(0, 3, (4,))


class GraphClassifier(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        convolutions = library("torch_geometric.nn")
        make = getattr(convolutions, kind)
        if kind == "GINConv":
            self.first, self.second = make(nn.Linear(8, 16)), make(nn.Linear(16, 16))
        else:
            self.first, self.second = make(8, 16), make(16, 16)
        self.pool = convolutions.global_max_pool if kind == "GATConv" else convolutions.global_mean_pool
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor, edges: Tensor, graphs: Tensor) -> Tensor:
        x = torch.relu(self.first(x, edges))
        return self.head(self.pool(self.second(x, edges), graphs))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["GCNConv", "GATConv", "SAGEConv", "GINConv", "TransformerConv"])
def test_graph_convolutions(kind: str, mode: str, device: torch.device) -> None:
    model = GraphClassifier(kind)
    x, edges, graphs, labels = graph()

    def train(model: nn.Module, place: str | torch.device) -> list[float]:
        inputs = [each.to(place) for each in (x, edges, graphs)]
        targets = labels.to(place)
        return losses_of(model, lambda: nn.functional.cross_entropy(model(*inputs), targets))

    moved = copy.deepcopy(model).to(device)
    with torch.tpu.set_eager_mode(mode):
        assert train(moved, device) == pytest.approx(train(model, "cpu"), rel=1e-3)


# ---- Gaussian processes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_an_exact_gaussian_process(mode: str, device: torch.device) -> None:
    gpytorch = library("gpytorch")

    class Process(gpytorch.models.ExactGP):
        def __init__(self, x: Tensor, y: Tensor, likelihood: Any) -> None:
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x: Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    def train(place: str | torch.device) -> tuple[list[float], Tensor]:
        x = torch.linspace(0, 1, 30).to(place)
        y = torch.sin(x * 6)
        likelihood = gpytorch.likelihoods.GaussianLikelihood()
        model = Process(x, y, likelihood).to(place)
        marginal = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        losses = losses_of(model, lambda: -marginal(model(x), y))
        model.eval()
        with torch.no_grad():
            return losses, likelihood(model(x + 0.01)).mean.cpu()

    with torch.tpu.set_eager_mode(mode):
        losses, predicted = train(device)
    expected, expected_predicted = train("cpu")
    assert losses == pytest.approx(expected, rel=1e-3)
    torch.testing.assert_close(predicted, expected_predicted, rtol=1e-2, atol=1e-2)


# ---- probabilistic programs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_variational_inference(mode: str, device: torch.device) -> None:
    """A guide that draws nothing, so that the losses are those of the CPU."""
    pyro = library("pyro")
    data = torch.randn(40) + 3

    def train(place: str | torch.device) -> list[float]:
        pyro.clear_param_store()
        values = data.to(place)

        def model() -> None:
            scale = pyro.sample("scale", pyro.distributions.LogNormal(torch.zeros((), device=place), 1.0))
            mean = pyro.sample("mean", pyro.distributions.Normal(torch.zeros((), device=place), 10.0))
            with pyro.plate("data", len(values)):
                pyro.sample("value", pyro.distributions.Normal(mean, scale), obs=values)

        start = pyro.infer.autoguide.init_to_value(
            values={"scale": torch.ones((), device=place), "mean": torch.zeros((), device=place)}
        )
        guide = pyro.infer.autoguide.AutoDelta(model, init_loc_fn=start)
        inference = pyro.infer.SVI(model, guide, pyro.optim.Adam({"lr": 0.1}), pyro.infer.Trace_ELBO())
        return [inference.step() for _ in range(6)]

    with torch.tpu.set_eager_mode(mode):
        actual = train(device)
    assert actual == pytest.approx(train("cpu"), rel=1e-3)


def test_a_guide_that_draws(device: torch.device) -> None:
    pyro = library("pyro")
    pyro.clear_param_store()
    values = (torch.randn(200) * 0.5 + 3).to(device)

    def model() -> None:
        mean = pyro.sample("mean", pyro.distributions.Normal(torch.zeros((), device=device), 10.0))
        with pyro.plate("data", len(values)):
            pyro.sample("value", pyro.distributions.Normal(mean, 0.5), obs=values)

    guide = pyro.infer.autoguide.AutoNormal(model)
    inference = pyro.infer.SVI(model, guide, pyro.optim.Adam({"lr": 0.1}), pyro.infer.Trace_ELBO())
    for _ in range(100):
        inference.step()
    assert guide.median()["mean"].item() == pytest.approx(values.mean().item(), abs=0.3)


# ---- images ------------------------------------------------------------------------------------------------------

IMAGES: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "canny": lambda kornia, x: kornia.filters.canny(x)[0],
    "crop": lambda kornia, x: kornia.geometry.center_crop(x, (10, 12)),
    "equalize": lambda kornia, x: kornia.enhance.equalize(x),
    "gaussian_blur": lambda kornia, x: kornia.filters.gaussian_blur2d(x, (5, 5), (1.5, 1.5)),
    "harris": lambda kornia, x: kornia.feature.harris_response(x),
    "hsv": lambda kornia, x: kornia.color.rgb_to_hsv(x),
    "lab": lambda kornia, x: kornia.color.rgb_to_lab(x),
    "median_blur": lambda kornia, x: kornia.filters.median_blur(x, (3, 3)),
    "morphology": lambda kornia, x: kornia.morphology.opening(x, torch.ones(3, 3).to(x.device)),
    "rotate": lambda kornia, x: kornia.geometry.rotate(x, torch.tensor([30.0, 10.0]).to(x.device)),
    "sobel": lambda kornia, x: kornia.filters.sobel(x),
    "warp": lambda kornia, x: kornia.geometry.warp_perspective(
        x, torch.tensor([[1, 0.1, 2], [0.05, 1, 1], [0.001, 0, 1]]).expand(2, 3, 3).to(x.device), (16, 16)
    ),
}


@pytest.mark.parametrize("name", IMAGES)
def test_image_functions(name: str, device: torch.device) -> None:
    kornia = library("kornia")
    images = torch.rand(2, 3, 16, 20)
    actual, expected = IMAGES[name](kornia, images.to(device)), IMAGES[name](kornia, images)
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("mode", MODES)
def test_an_image_loss(mode: str, device: torch.device) -> None:
    kornia = library("kornia")
    model = nn.Conv2d(3, 3, 3, padding=1)
    images = torch.rand(2, 3, 16, 16)

    def train(model: nn.Module, x: Tensor) -> list[float]:
        return losses_of(model, lambda: kornia.losses.ssim_loss(model(x), x, 5))

    moved = copy.deepcopy(model).to(device)
    with torch.tpu.set_eager_mode(mode):
        assert train(moved, images.to(device)) == pytest.approx(train(model, images), rel=1e-3)


# ---- reinforcement learning ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_policy_optimization(mode: str, device: torch.device) -> None:
    """Both train on the experience of the CPU, because the device draws other actions."""
    baselines = library("stable_baselines3")
    options = {"n_steps": 64, "batch_size": 32, "n_epochs": 2, "seed": 0}
    model = baselines.PPO("MlpPolicy", "CartPole-v1", device="cpu", **options)
    moved = baselines.PPO("MlpPolicy", "CartPole-v1", device=str(device), **options)
    moved.policy.load_state_dict(model.policy.state_dict())
    model.set_logger(baselines.common.logger.configure(None, []))
    moved.set_logger(model.logger)
    _, callback = model._setup_learn(64)
    model.collect_rollouts(model.env, callback, model.rollout_buffer, 64)
    moved.rollout_buffer = copy.deepcopy(model.rollout_buffer)
    moved.rollout_buffer.device = moved.device
    with torch.tpu.set_eager_mode(mode):
        for one in (model, moved):
            np.random.seed(0)
            one.train()
        for one, other in zip(model.policy.parameters(), moved.policy.parameters(), strict=True):
            torch.testing.assert_close(other.detach().cpu(), one.detach(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["PPO", "A2C", "DQN"])
def test_learning_in_an_environment(name: str, device: torch.device) -> None:
    options = {"PPO": {"n_steps": 64}, "A2C": {}, "DQN": {"learning_starts": 20}}[name]
    model = getattr(library("stable_baselines3"), name)("MlpPolicy", "CartPole-v1", device=str(device), **options)
    model.learn(128)
    assert next(model.policy.parameters()).device.type == device.type
    assert all(torch.isfinite(each).all() for each in model.policy.parameters())
