"""Where numbers come from and what type they have: random numbers, autocast, mixed dtypes."""
from typing import List, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recipe import Sample, recipe


class RandomNumbers(nn.Module):
    """Every draw reaches an output: LibTorch deletes the others while it compiles a script."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.drop = nn.Dropout(0.3)

    def forward(self, x: Tensor, draws: int) -> Tuple[Tensor, List[Tensor], int]:
        y = self.drop(self.linear(x)) + torch.randn_like(x)
        if bool(torch.rand(1) < 0.5):
            y = y + torch.rand(x.size(0), 1)
        else:
            y = y * torch.randint(1, 4, [x.size(1)])
        picked: List[Tensor] = []
        for _ in range(draws):
            picked.append(torch.bernoulli(torch.full([3], 0.5)))
        chances = torch.softmax(x, 1)
        picked.append(torch.multinomial(chances, 2, replacement=True))
        picked.append(torch.multinomial(chances[0], 3))
        picked.append(torch.randperm(5))
        picked.append(torch.normal(1.0, 2.0, [4]))
        noise = torch.empty(3, 3)
        picked.append(noise.uniform_(-1.0, 1.0).clone())
        picked.append(noise.normal_(0.0, 0.5).clone())
        picked.append(noise.exponential_(2.0))
        y = F.dropout(F.alpha_dropout(y, 0.2, True), 0.5, training=self.training)
        y = F.rrelu(y, training=self.training) + F.dropout1d(x.unsqueeze(0), 0.5).squeeze(0)
        return y, picked, int(torch.randint(1000, [1]).item())


@recipe
def rng() -> Sample:
    """random numbers of all kinds, training, some of them in loops and branches"""
    return Sample(RandomNumbers(), [(torch.randn(4, 6), 3), (torch.randn(1, 6), 0), (torch.randn(20, 6), 1)],
                  mode="train", seed=1234)


@recipe
def rng_eval() -> Sample:
    """the same module, evaluating: dropout does nothing, the rest still draws"""
    return Sample(RandomNumbers(), [(torch.randn(4, 6), 3), (torch.randn(1, 6), 0), (torch.randn(20, 6), 1)],
                  seed=5)


class AutocastBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)
        self.conv = nn.Conv2d(3, 4, 3, bias=False)  # LibTorch's lowering leaves a bias float32, and then fails
        self.norm = nn.LayerNorm(16)

    def forward(self, x: Tensor, image: Tensor) -> Tuple[List[Tensor], List[Tensor]]:
        outside = self.linear(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            lower = [self.linear(x), torch.mm(x, x.t()), self.conv(image), torch.addmm(x, x, self.linear.weight)]
            attended = F.scaled_dot_product_attention(lower[0], lower[0], lower[0])
            normed = self.norm(x)
            mixed = lower[0] + x
            with torch.autocast("cpu", enabled=False):
                full = torch.mm(x, self.linear.weight)
            again = torch.mm(full, x.t())
            summed = torch.softmax(again.float(), 1).square().sum(1)  # scripts, unlike Python, don't run it in bfloat16
        after = torch.mm(x, x.t())
        return lower + [attended, again], [outside, normed, mixed, full, summed, after]


class AutocastToFloat(nn.Module):
    """The same blocks, with nothing but float32 outside, close enough to what full precision gives."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = AutocastBlock()

    def forward(self, x: Tensor, image: Tensor) -> List[Tensor]:
        lower, upper = self.inner(x, image)
        results: List[Tensor] = []
        for value in lower + upper:
            results.append(value.float())
        return results


def autocast_inputs() -> list[tuple]:
    return [(torch.randn(rows, 16), torch.randn(1, 3, 6, 6)) for rows in (16, 1, 16)]


@recipe
def autocast_block() -> Sample:
    """autocast blocks, one nested and disabled; outputs are bfloat16 as in Python"""
    return Sample(AutocastBlock(), autocast_inputs(), rtol=2e-2, atol=2e-2, optimized=True)


@recipe
def autocast_to_float() -> Sample:
    """the same blocks, outputs float32: within tolerance whether or not the blocks are applied"""
    return Sample(AutocastToFloat(), autocast_inputs(), rtol=2e-2, atol=5e-2)


class MixedDtypes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.precise = nn.Linear(4, 4).double()
        self.coarse = nn.Linear(4, 4).bfloat16()
        self.turn = nn.Parameter(torch.randn(4, dtype=torch.complex64))

    def forward(self, d: Tensor, i: Tensor, b: Tensor, h: Tensor, g: Tensor, c: Tensor
                ) -> Tuple[List[Tensor], List[Tensor], Tensor, Tuple[int, float, bool]]:
        floating = [
            self.precise(d), self.coarse(g), h * 2, h + g, h @ h.t(), g.float() @ h.float().t(), d + h, i / 3,
            torch.where(b, d, torch.zeros_like(d)), i * 0.5, torch.tensor(2.0, dtype=torch.float64) * h,
            b.to(d.dtype) - i, g.sum(), h.mean(), torch.pow(i, 2.0), i.to(torch.float16), d.half().double(),
            torch.exp(g), torch.softmax(g, 1), torch.cat([d.float(), h.float(), g.float()], 1),
        ]
        integral = [
            i + b, i // 3, i % 3, -i, i & 6, i << 1, b & (i > 0), b.sum(), ~b, i.sum(0), i.cumsum(1), d.to(torch.int64),
            i.to(torch.int32) * 2, i.to(torch.uint8), i > d, b.any(1), i.argmax(1), torch.bitwise_xor(i, 5),
        ]
        turned = c * self.turn
        floating += [turned.abs(), torch.view_as_real(turned), torch.real(turned) + turned.imag,
                     torch.view_as_real((c.conj() @ c.t()).resolve_conj())]
        return floating, integral, turned + d, (int(i.sum()), float(d.max()), bool(b.all()))


@recipe
def mixed_dtypes() -> Sample:
    """float64, int64, bool, half, bfloat16 and complex64 side by side"""
    def arguments(count: int) -> tuple:
        return (torch.randn(count, 4).double(), torch.randint(-9, 10, (count, 4)), torch.rand(count, 4) < 0.5,
                torch.randn(count, 4).half(), torch.randn(count, 4).bfloat16(), torch.randn(count, 4) * (1 + 2j))
    return Sample(MixedDtypes(), [arguments(3), arguments(1), arguments(6)], rtol=2e-2, atol=1e-2)
