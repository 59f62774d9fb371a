"""Numerics as TorchScript: solvers that iterate until they converge, filters, simulations, geometry."""
from typing import List, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpus.record import Example, model, scripted


class ConjugateGradients(nn.Module):
    def forward(self, matrix: Tensor, right: Tensor, tolerance: float) -> Tuple[Tensor, int]:
        x = torch.zeros_like(right)
        r = right - torch.mv(matrix, x)
        p = r.clone()
        square = torch.dot(r, r)
        steps = 0
        while steps < 50 and float(square) > tolerance:
            product = torch.mv(matrix, p)
            alpha = square / torch.dot(p, product)
            x = x + alpha * p
            r = r - alpha * product
            new = torch.dot(r, r)
            p = r + (new / square) * p
            square = new
            steps += 1
        return x, steps


@model(trains=False)
def conjugate_gradients(batch: int) -> Example:
    root = torch.randn(40, 40)
    return scripted(ConjugateGradients(), root @ root.t() / 40 + torch.eye(40), torch.randn(40), 1e-5)


class OdeNetwork(nn.Module):
    """A neural differential equation, by steps of Runge and Kutta."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(17, 64)
        self.second = nn.Linear(64, 16)

    def slope(self, t: float, y: Tensor) -> Tensor:
        time = torch.full((y.size(0), 1), t)
        return self.second(torch.tanh(self.first(torch.cat([y, time], dim=1))))

    def forward(self, y: Tensor, steps: int) -> Tensor:
        h = 1.0 / steps
        for step in range(steps):
            t = step * h
            k1 = self.slope(t, y)
            k2 = self.slope(t + h / 2, y + k1 * (h / 2))
            k3 = self.slope(t + h / 2, y + k2 * (h / 2))
            k4 = self.slope(t + h, y + h * k3)
            y = y + (k1 + 2 * k2 + 2 * k3 + k4) * (h / 6)
        return y


@model()
def neural_ode(batch: int) -> Example:
    return scripted(OdeNetwork(), torch.randn(batch, 16), 8)


class DeepEquilibrium(nn.Module):
    """Repeats a layer until its result no longer changes."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(64, 64)
        self.outer = nn.Linear(32, 64)
        self.norm = nn.LayerNorm(64)
        with torch.no_grad():
            self.inner.weight.mul_(0.5)

    def forward(self, x: Tensor) -> Tensor:
        from_input = self.outer(x)
        z = torch.zeros_like(from_input)
        for _ in range(30):
            new = torch.tanh(self.inner(z) + from_input)
            change = (new - z).norm() / (new.norm() + 1e-6)
            z = new
            if change.item() < 1e-3:
                break
        return self.norm(z)


@model()
def deep_equilibrium(batch: int) -> Example:
    return scripted(DeepEquilibrium(), torch.randn(4 * batch, 32))


class KalmanFilter(nn.Module):
    """Small matrices, many steps."""

    def __init__(self) -> None:
        super().__init__()
        self.motion = nn.Parameter(torch.eye(4) + 0.1 * torch.diag(torch.ones(2), 2))
        self.view = nn.Parameter(torch.eye(2, 4))
        self.log_noise = nn.Parameter(torch.zeros(2))

    def forward(self, seen: Tensor) -> Tuple[Tensor, Tensor]:
        mean = torch.zeros(4, 1)
        covariance = torch.eye(4)
        noise = torch.diag(torch.exp(self.log_noise))
        means: List[Tensor] = []
        loss = torch.zeros(1)
        for t in range(seen.size(0)):
            mean = self.motion @ mean
            covariance = self.motion @ covariance @ self.motion.t() + 0.01 * torch.eye(4)
            innovation = seen[t].unsqueeze(1) - self.view @ mean
            spread = self.view @ covariance @ self.view.t() + noise
            gain = torch.linalg.solve(spread, self.view @ covariance).t()
            mean = mean + gain @ innovation
            covariance = (torch.eye(4) - gain @ self.view) @ covariance
            loss = loss + (innovation * innovation).sum()
            means.append(mean.squeeze(1))
        return torch.stack(means), loss


@model()
def kalman_filter(batch: int) -> Example:
    return scripted(KalmanFilter(), torch.cumsum(torch.randn(20, 2), 0))


class Sinkhorn(nn.Module):
    """Optimal transport in the logarithm, a fixed number of rounds."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 8)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        cost = torch.cdist(self.project(x), y)
        scores = -cost / 0.5
        u = torch.zeros_like(scores[:, :, 0])
        v = torch.zeros_like(scores[:, 0, :])
        for _ in range(12):
            u = -torch.logsumexp(scores + v.unsqueeze(1), dim=2)
            v = -torch.logsumexp(scores + u.unsqueeze(2), dim=1)
        plan = torch.exp(scores + u.unsqueeze(2) + v.unsqueeze(1))
        return (plan * cost).sum((1, 2))


@model()
def sinkhorn(batch: int) -> Example:
    return scripted(Sinkhorn(), torch.randn(batch, 20, 8), torch.randn(batch, 24, 8))


class Springs(nn.Module):
    """A simulation of particles: pairwise forces, integrated in place."""

    def forward(self, position: Tensor, velocity: Tensor, steps: int) -> Tuple[Tensor, Tensor]:
        position = position.clone()
        velocity = velocity.clone()
        for _ in range(steps):
            difference = position.unsqueeze(0) - position.unsqueeze(1)
            distance = difference.pow(2).sum(-1).add(1e-2).sqrt()
            force = (difference * ((distance - 1.0) / distance).unsqueeze(-1)).sum(1)
            velocity += 0.01 * force
            velocity *= 0.99
            position += 0.01 * velocity
            outside = position.abs() > 3.0
            velocity = torch.where(outside, -velocity, velocity)
            position.clamp_(-3.0, 3.0)
        return position, velocity


@model(trains=False)
def springs(batch: int) -> Example:
    return scripted(Springs(), torch.randn(16, 3), torch.zeros(16, 3), 20)


class RayMarcher(nn.Module):
    """A network of positions and directions along rays, composed from front to back."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3 * 2 * 4 + 3, 64)
        self.second = nn.Linear(64, 64)
        self.color = nn.Linear(64, 3)
        self.density = nn.Linear(64, 1)

    def encode(self, x: Tensor) -> Tensor:
        parts = [x]
        for level in range(4):
            parts.append(torch.sin(x * float(2 ** level)))
            parts.append(torch.cos(x * float(2 ** level)))
        return torch.cat(parts, -1)

    def forward(self, origin: Tensor, direction: Tensor) -> Tuple[Tensor, Tensor]:
        direction = F.normalize(direction, dim=-1)
        color = torch.zeros_like(origin)
        light = torch.ones(origin.size(0), 1)
        for step in range(12):
            h = F.relu(self.second(F.relu(self.first(self.encode(origin + direction * (0.25 * step))))))
            alpha = 1.0 - torch.exp(-F.softplus(self.density(h)) * 0.25)
            color = color + light * alpha * torch.sigmoid(self.color(h))
            light = light * (1.0 - alpha + 1e-10)
        return color, light


@model()
def ray_marcher(batch: int) -> Example:
    return scripted(RayMarcher(), torch.randn(16 * batch, 3), torch.randn(16 * batch, 3))


class GradientDescent(nn.Module):
    """Fits a small regression in the model itself, with gradients by hand and momentum."""

    def forward(self, x: Tensor, y: Tensor, rounds: int) -> Tuple[Tensor, List[float]]:
        weight = torch.zeros(x.size(1), 1)
        momentum = torch.zeros_like(weight)
        losses: List[float] = []
        for step in range(rounds):
            error = torch.matmul(x, weight) - y
            losses.append(float(error.square().mean()))
            gradient = 2.0 * torch.matmul(x.t(), error) / x.size(0)
            momentum = 0.9 * momentum + gradient
            weight = weight - 0.05 * momentum
            if step > 3 and abs(losses[-1] - losses[-2]) < 1e-6:
                break
        return weight, losses


@model(trains=False)
def regression_by_hand(batch: int) -> Example:
    x = torch.randn(64, 8)
    return scripted(GradientDescent(), x, x @ torch.randn(8, 1) + 0.1 * torch.randn(64, 1), 25)


class PowerIteration(nn.Module):
    """Leading vectors of a matrix, each after those before were taken out."""

    def forward(self, matrix: Tensor, count: int) -> Tuple[Tensor, List[float]]:
        vectors = torch.jit.annotate(List[Tensor], [])
        values: List[float] = []
        for index in range(count):
            v = torch.ones(matrix.size(0)) + 0.01 * torch.arange(matrix.size(0)) * (index + 1)
            for _ in range(10):
                v = matrix @ v
                for before in vectors:
                    v = v - before * (before @ v)
                v = v / torch.linalg.vector_norm(v)
            vectors.append(v)
            values.append(float(v @ (matrix @ v)))
        return torch.stack(vectors), values


@model(trains=False)
def power_iteration(batch: int) -> Example:
    root = torch.randn(24, 24)
    return scripted(PowerIteration(), root @ root.t(), 3)


class Optics(nn.Module):
    """Optical flow by hand: a correlation volume, warped images, three refinements."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, stride=2), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1))
        self.update = nn.Conv2d(16 + 16 + 2, 2, 3, padding=1)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        a, b = self.features(first), self.features(second)
        rows = torch.linspace(-1.0, 1.0, a.size(2))
        columns = torch.linspace(-1.0, 1.0, a.size(3))
        y, x = torch.meshgrid(rows, columns, indexing="ij")
        grid = torch.stack([x, y], 0).unsqueeze(0)
        flow = torch.zeros(a.size(0), 2, a.size(2), a.size(3))
        for _ in range(3):
            warped = F.grid_sample(b, (grid + flow).permute(0, 2, 3, 1), align_corners=True)
            flow = flow + 0.1 * self.update(torch.cat([a, warped, flow], dim=1))
        return F.interpolate(flow, scale_factor=2.0, mode="bilinear", align_corners=False)


@model()
def optical_flow(batch: int) -> Example:
    return scripted(Optics(), torch.randn(batch, 3, 32, 32), torch.randn(batch, 3, 32, 32))
