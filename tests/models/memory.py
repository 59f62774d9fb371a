"""Writes into memory that others see: views, slices, inputs, outputs that alias."""
import math
from typing import List, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recipe import Sample, recipe


class InplaceViews(nn.Module):
    """x is contiguous; y may be laid out in any way. Both are written, and most outputs are views of them."""

    def forward(self, x: Tensor, y: Tensor) -> Tuple[Tensor, Tensor, List[Tensor]]:
        before = x.sum()
        x[:, 1] += 2.0
        x[0] = y[0]
        x.t().mul_(0.5)
        x.select(0, -1).sub_(y.mean())
        x[:, ::2].abs_()
        x.diagonal().fill_(0.25)

        low, high = y.chunk(2, 1)
        low.add_(high)
        for part in y.split(2, 0):
            part[0] *= 1.5
        rows = list(x.unbind(0))
        rows[0].zero_()
        rows.pop().copy_(y[-1])
        y[y < 0] *= -1.0
        y.masked_fill_(y > 2.0, 2.0)

        flat = x.view(-1)
        flat[::3] = -1.0
        middle = x.narrow(1, 1, 1).squeeze(1)
        middle.unsqueeze(0).expand(1, -1)[0].add_(y.select(1, 0))

        result = torch.empty_like(x)
        torch.add(x, y, alpha=2.0, out=result)
        torch.mul(result, 0.5, out=result)
        torch.tanh(x[:, 0], out=result[:, 0])

        same = F.dropout(x, 0.5, False)  # x itself, though no schema says so
        same.add_(1.0)
        moved = x.to(x.dtype).contiguous()  # x itself, too
        moved[0, 0] = 9.0
        return before, x, [x, y, x.t(), x[0], y.narrow(1, 0, 1), flat, low, result, same, moved, middle]


@recipe
def inplace_views() -> Sample:
    """in-place operators on views of the inputs; outputs are the inputs, their views, and each other"""
    return Sample(InplaceViews(), [
        (torch.randn(4, 6), torch.randn(4, 6)),
        (torch.randn(6, 4), torch.randn(4, 6).t()),
        (torch.randn(2, 2), torch.randn(2, 2)),
        (torch.randn(4, 6), torch.randn(4, 12)[:, ::2]),
    ])


class InplaceLoop(nn.Module):
    """Views taken in one iteration are written in the next, and the branch decides what a name is a view of."""

    def forward(self, x: Tensor, steps: int, columns: bool) -> Tuple[Tensor, Tensor, Tensor]:
        window = x[0]
        history = torch.zeros(steps + 1, x.size(1))
        for i in range(steps):
            window.add_(1.0)
            history[i] = window
            window = x[i % x.size(0)]
        target = x[:, 0] if columns else x[0]
        target.mul_(10.0)
        copied = target.clone()
        target[0] = 0.0
        pieces: List[Tensor] = []
        for row in x.split(1):
            pieces.append(row.squeeze(0))
        pieces[-1].neg_()
        return x, history, copied


@recipe
def inplace_loop() -> Sample:
    """in-place operators in loops and branches, through names that are rebound to other views"""
    return Sample(InplaceLoop(), [(torch.randn(3, 4), 5, True), (torch.randn(3, 4), 5, False),
                                  (torch.randn(1, 3), 0, True), (torch.randn(2, 6), 1, False)])


class AliasedInputs(nn.Module):
    def forward(self, x: Tensor, y: Tensor, others: List[Tensor]) -> Tuple[Tensor, Tensor, Tensor]:
        first = x * 2.0
        x.add_(1.0)
        second = y * 2.0
        y.mul_(3.0)
        for other in others:
            other.sub_(1.0)
        return first + second, x, y


@recipe
def aliased_inputs() -> Sample:
    """two inputs that are written; in some cases both are the same tensor"""
    def apart() -> tuple:
        return torch.randn(2, 3), torch.randn(2, 3), [torch.randn(3)]

    def same() -> tuple:
        x = torch.randn(2, 3)
        return x, x, [x, x]
    return Sample(AliasedInputs(), [apart(), same(), apart(), same()])


class InplaceAutograd(nn.Module):
    """In-place operators that autograd follows, on results, on their views, and on a tensor that needed no grad."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 6)
        self.scale = nn.Parameter(torch.randn(6))
        self.shift = nn.Parameter(torch.randn(3))
        self.register_buffer("largest", torch.zeros(6))

    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
        y = self.linear(x)
        y[:, 1] += 2.0
        y[0].mul_(0.5)
        y.t()[2:5].add_(self.shift.unsqueeze(1))
        y.narrow(1, 0, 2).mul_(0.1)
        with torch.no_grad():
            self.largest.copy_(y.amax(0))

        grows = torch.zeros(y.size(0), y.size(1))
        for i in range(y.size(0)):
            grows[i] = y[i] * self.scale * (i + 1)
        grows.select(1, 3).copy_(y[:, 0])

        late = x.clone()
        late.add_(y[:, :5])
        late[:, 0].zero_()

        activated = F.relu(y * self.scale, inplace=True)
        masked = y.masked_fill(y > 0.5, 0.0).sigmoid_()
        return y, grows, late, activated + masked


@recipe
def inplace_autograd() -> Sample:
    """in-place operators under autograd, on views of results that require grad"""
    return Sample(InplaceAutograd(), [(torch.randn(4, 5),), (torch.randn(1, 5),), (torch.randn(2, 5),)])


class ViewOutputs(nn.Module):
    """No operator here makes new memory, except one that the layout of x decides about."""

    def forward(self, x: Tensor) -> Tuple[Tensor, List[Tensor], Tuple[Tensor, Tensor]]:
        y = x.unsqueeze(0).transpose(1, 2)
        return (y, [x, x.detach(), x.flatten(), x.reshape(-1, x.size(1)), x.expand(2, -1, -1), x[1:], x[:, -1]],
                (x.as_strided([2], [1]), x.permute(1, 0).movedim(0, 1)))


@recipe
def view_outputs() -> Sample:
    """only views of the input come out"""
    return Sample(ViewOutputs(), [(torch.randn(3, 4),), (torch.randn(4, 3).t(),), (torch.randn(2, 2),)])


class OptimizerSteps(nn.Module):
    """Adam, then SGD with momentum and weight decay, as torch.optim computes them for one tensor after another."""

    def adam(self, p: Tensor, g: Tensor, m: Tensor, v: Tensor, step: int, rate: float) -> None:
        m.lerp_(g, 1 - 0.9)
        v.mul_(0.999).addcmul_(g, g, value=1 - 0.999)
        step_size = rate / (1 - 0.9**step)
        root = math.sqrt(1 - 0.999**step)
        denom = (v.sqrt() / root).add_(1e-8)
        p.addcdiv_(m, denom, value=-step_size)

    def sgd(self, p: Tensor, g: Tensor, velocity: Tensor, rate: float) -> None:
        g = g.add(p, alpha=0.01)
        velocity.mul_(0.9).add_(g, alpha=1 - 0.1)
        p.add_(g.add(velocity, alpha=0.9), alpha=-rate)

    def forward(self, params: List[Tensor], grads: List[Tensor], moments: List[Tensor], squares: List[Tensor], steps: int,
                rate: float) -> Tuple[List[Tensor], List[Tensor], List[Tensor]]:
        for step in range(1, steps + 1):
            for p, g, m, v in zip(params, grads, moments, squares):
                self.adam(p, g, m, v, step, rate)
                self.sgd(p, g, m, rate)
        return params, moments, squares


@recipe
def optimizer_steps() -> Sample:
    """two optimizers on tensors and their state, written in place; in some cases two tensors are one"""
    def apart(*shapes: tuple) -> tuple:
        return ([torch.randn(shape) for shape in shapes], [torch.randn(shape) for shape in shapes],
                [torch.randn(shape) for shape in shapes], [torch.rand(shape) for shape in shapes], 3, 0.01)

    def tied() -> tuple:
        params, grads, moments, squares, steps, rate = apart((4, 3), (4, 3))
        return [params[0], params[0]], grads, [moments[0], moments[0].view(4, 3)], squares, steps, rate

    def transposed() -> tuple:
        params, grads, moments, squares, steps, rate = apart((6, 4), (5, ))
        return ([params[0].t().contiguous().t(), params[1]], grads, [moments[0][:4].repeat(2, 1)[:6], moments[1]], squares,
                steps, rate)

    return Sample(OptimizerSteps(), [apart((4, 3), (3, ), ()), apart((4, 3), (3, ), ()), tied(), transposed(),
                                     apart((64, 64)), apart((0, 4))])
