"""Writes the model that train_cpp trains, or tells how good a trained one is.

  python3 model.py spirals.pt
  python3 model.py --evaluate trained.pt
"""
import math
import sys

import torch


class Spirals(torch.nn.Module):
    """Tells from a point of the plane which of two spirals it lies on."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(2, 64)
        self.second = torch.nn.Linear(64, 64)
        self.third = torch.nn.Linear(64, 2)

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.first(points))
        hidden = torch.tanh(self.second(hidden))
        return self.third(hidden)


def points_of(spiral: int, count: int) -> torch.Tensor:
    radius = torch.linspace(0.05, 1, count)
    angle = 3 * math.pi * radius + math.pi * spiral
    return torch.stack([radius * angle.cos(), radius * angle.sin()], 1)


def evaluate(path: str) -> float:
    model = torch.jit.load(path)
    with torch.no_grad():
        right = [(model(points_of(spiral, 1000)).argmax(1) == spiral).float().mean() for spiral in (0, 1)]
    return float(sum(right) / 2)


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--evaluate":
        print(f"{100 * evaluate(sys.argv[2]):.1f} % of the points are classified correctly")
    elif len(sys.argv) == 2:
        torch.manual_seed(0)
        torch.jit.script(Spirals()).save(sys.argv[1])
    else:
        sys.exit(__doc__)
