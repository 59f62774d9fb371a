"""Models that are programs: routing, recursion over trees, stacks, early exits, containers of every kind."""
from typing import Dict, List, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpus.record import Example, model, scripted

SIZE = 64


class Expert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(SIZE, 2 * SIZE)
        self.narrow = nn.Linear(2 * SIZE, SIZE)

    def forward(self, x: Tensor) -> Tensor:
        return self.narrow(F.silu(self.wide(x)))


class MixtureByMask(nn.Module):
    """Each expert gets the rows that chose it, found by nonzero, and adds its results in place."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(SIZE, 4)
        self.experts = nn.ModuleList([Expert() for _ in range(4)])

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = torch.topk(F.softmax(self.router(x), dim=-1), 2, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            rows, slot = torch.where(chosen == index)
            if rows.numel() > 0:
                out.index_add_(0, rows, expert(x[rows]) * weights[rows, slot].unsqueeze(1))
        return out


@model()
def mixture_by_mask(batch: int) -> Example:
    return scripted(MixtureByMask(), torch.randn(16 * batch, SIZE))


class MixtureOfAll(nn.Module):
    """All experts compute; their results are stacked and weighted."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(SIZE, 4)
        self.experts = nn.ModuleList([Expert() for _ in range(4)])

    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor]:
        gates = torch.softmax(self.router(x), dim=1)
        results = torch.jit.annotate(List[Tensor], [])
        for expert in self.experts:
            results.append(expert(x))
        mixed = (torch.stack(results, dim=1) * gates.unsqueeze(-1)).sum(dim=1)
        balance = (gates.mean(0) * gates.mean(0)).sum() * 4
        return mixed, balance


@model()
def mixture_of_all(batch: int) -> Example:
    return scripted(MixtureOfAll(), torch.randn(16 * batch, SIZE))


class EarlyExit(nn.Module):
    """Leaves the stack of layers once a classifier is sure."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(SIZE, SIZE), nn.LayerNorm(SIZE), nn.ReLU()) for _ in range(6)])
        self.exits = nn.ModuleList([nn.Linear(SIZE, 10) for _ in range(6)])

    def forward(self, x: Tensor, confidence: float) -> Tuple[Tensor, int]:
        result = torch.zeros(x.size(0), 10)
        used = 0
        done = False
        for layer, leave in zip(self.layers, self.exits):
            if not done:
                x = x + layer(x)
                result = F.softmax(leave(x), dim=-1)
                used += 1
                if float(result.max(1)[0].min()) > confidence:
                    done = True
        return result, used


@model()
def early_exit(batch: int) -> Example:
    return scripted(EarlyExit(), torch.randn(batch, SIZE), 0.3)


class AdaptiveComputation(nn.Module):
    """A cell repeats until every row's halting probability is used up."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(SIZE, SIZE)
        self.halt = nn.Linear(SIZE, 1)

    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor]:
        state = torch.zeros_like(x)
        total = torch.zeros(x.size(0), 1)
        mean = torch.zeros_like(x)
        steps = torch.zeros(x.size(0), 1)
        count = 0
        while bool((total < 0.99).any()) and count < 12:
            state = self.cell(x, state)
            p = torch.sigmoid(self.halt(state)) * 0.4
            running = (total < 0.99).to(x.dtype)
            p = torch.minimum(p, 1.0 - total) * running
            mean = mean + p * state
            total = total + p
            steps = steps + running
            count += 1
        return mean, steps


@model()
def adaptive_computation(batch: int) -> Example:
    return scripted(AdaptiveComputation(), torch.randn(batch, SIZE))


class TreeLstm(nn.Module):
    """A tree in postorder: leaves are words, inner nodes join the two states on top of a stack."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(100, SIZE)
        self.leaf = nn.Linear(SIZE, 2 * SIZE)
        self.join = nn.Linear(2 * SIZE, 5 * SIZE)
        self.out = nn.Linear(SIZE, 5)

    def forward(self, program: List[int]) -> Tensor:
        stack: List[Tuple[Tensor, Tensor]] = []
        for word in program:
            if word >= 0:
                h, c = self.leaf(self.words(torch.tensor([word]))).chunk(2, 1)
                stack.append((torch.tanh(h), c))
            else:
                right_h, right_c = stack.pop()
                left_h, left_c = stack.pop()
                i, f1, f2, g, o = self.join(torch.cat([left_h, right_h], 1)).chunk(5, 1)
                c = torch.sigmoid(i) * torch.tanh(g) + torch.sigmoid(f1) * left_c + torch.sigmoid(f2) * right_c
                stack.append((torch.sigmoid(o) * torch.tanh(c), c))
        return self.out(stack[-1][0])


@model()
def tree_lstm_stack(batch: int) -> Example:
    return scripted(TreeLstm(), [3, 7, -1, 12, 40, -1, -1, 9, 5, -1, 8, -1, -1])


class StackMachine(nn.Module):
    """Instructions choose operations on tensors of a stack and of named registers."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(SIZE, SIZE)

    def forward(self, x: Tensor, program: List[str]) -> Tensor:
        registers: Dict[str, Tensor] = {"x": x}
        stack = [x]
        for instruction in program:
            if instruction == "mix":
                stack.append(torch.tanh(self.mix(stack.pop())))
            elif instruction == "add":
                stack.append(stack.pop() + stack.pop())
            elif instruction == "mul":
                stack.append(stack.pop() * stack.pop())
            elif instruction == "dup":
                stack.append(stack[-1])
            elif instruction.startswith("store_"):
                registers[instruction[6:]] = stack[-1]
            elif instruction.startswith("load_"):
                stack.append(registers[instruction[5:]])
            else:
                raise ValueError("unknown instruction")
        return stack[-1]


@model()
def stack_machine(batch: int) -> Example:
    program = ["dup", "mix", "add", "store_a", "mix", "load_x", "mul", "load_a", "add", "mix", "dup", "mul", "load_a", "add"]
    return scripted(StackMachine(), torch.randn(batch, SIZE), program)


class Instance(NamedTuple):
    box: Tensor
    score: float
    label: int


class Suppression(nn.Module):
    """Boxes to instances: a loop that drops overlaps, in plain TorchScript."""

    def forward(self, boxes: Tensor, scores: Tensor, limit: float) -> List[Instance]:
        order = torch.argsort(scores, descending=True)
        areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        found: List[Instance] = []
        while order.numel() > 0 and len(found) < 10:
            first = int(order[0])
            found.append(Instance(boxes[first], float(scores[first]), first % 3))
            rest = order[1:]
            corner = torch.maximum(boxes[first, :2], boxes[rest, :2])
            other = torch.minimum(boxes[first, 2:], boxes[rest, 2:])
            size = (other - corner).clamp(min=0)
            overlap = size[:, 0] * size[:, 1]
            order = rest[overlap / (areas[first] + areas[rest] - overlap) < limit]
        return found


@model(trains=False)
def suppression_loop(batch: int) -> Example:
    corner = torch.rand(40, 2) * 8
    return scripted(Suppression(), torch.cat([corner, corner + 1 + torch.rand(40, 2) * 4], 1), torch.rand(40), 0.4)


class StreamState(NamedTuple):
    h: Tensor
    past: List[Tensor]
    counts: Dict[str, int]


class Stream(nn.Module):
    """Frames in chunks; the state is optional at first and holds tensors, a list and counters."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(20, SIZE, 3)
        self.cell = nn.GRUCell(SIZE, SIZE)
        self.out = nn.Linear(SIZE, 8)

    def step(self, chunk: Tensor, state: Optional[StreamState]) -> Tuple[Tensor, StreamState]:
        if state is None:
            state = StreamState(torch.zeros(chunk.size(0), 64), [torch.zeros(chunk.size(0), 20, 2)], {"chunks": 0})
        joined = torch.cat([state.past[-1], chunk], 2)
        features = F.relu(self.conv(joined))
        h = state.h
        for t in range(features.size(2)):
            h = self.cell(features[:, :, t], h)
        counts = state.counts
        counts["chunks"] = counts["chunks"] + 1
        return self.out(h), StreamState(h, state.past[-1:] + [joined[:, :, -2:]], counts)

    def forward(self, frames: Tensor) -> Tuple[Tensor, int]:
        state: Optional[StreamState] = None
        outputs: List[Tensor] = []
        for start in range(0, frames.size(2), 8):
            out, new = self.step(frames[:, :, start:start + 8], state)
            state = new
            outputs.append(out)
        assert state is not None
        return torch.stack(outputs, 1), state.counts["chunks"]


@model()
def chunked_stream(batch: int) -> Example:
    return scripted(Stream(), torch.randn(batch, 20, 40))


class FeatureBuilder(nn.Module):
    """Features of several kinds from dicts, some of which may be missing."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleDict({name: nn.Embedding(50, 16) for name in ("city", "device", "hour")})
        self.numbers = nn.Linear(4, 16)
        self.missing = nn.Parameter(torch.zeros(16))
        self.head = nn.Linear(64, 1)

    def forward(self, categories: Dict[str, Tensor], numbers: Optional[Tensor]) -> Tensor:
        parts: List[Tensor] = []
        size = 1
        for name, table in self.tables.items():
            if name in categories:
                found = table(categories[name])
                size = found.size(0)
                parts.append(found)
            else:
                parts.append(self.missing.unsqueeze(0).expand(size, 16))
        if numbers is not None:
            parts.append(torch.log1p(torch.relu(self.numbers(numbers))))
        else:
            parts.append(torch.zeros(size, 16))
        return torch.sigmoid(self.head(torch.cat(parts, dim=1)))


@model()
def optional_features(batch: int) -> Example:
    categories = {"city": torch.randint(0, 50, (batch,)), "hour": torch.randint(0, 24, (batch,))}
    return scripted(FeatureBuilder(), categories, torch.rand(batch, 4))


class PointerMemory(nn.Module):
    """An addressable memory that is read and written in every step, as in a neural Turing machine."""

    def __init__(self) -> None:
        super().__init__()
        self.controller = nn.LSTMCell(16 + 16, SIZE)
        self.key = nn.Linear(SIZE, 16)
        self.erase = nn.Linear(SIZE, 16)
        self.write = nn.Linear(SIZE, 16)
        self.sharpness = nn.Linear(SIZE, 1)

    def forward(self, x: Tensor) -> Tensor:
        batch = x.size(0)
        memory = torch.full((batch, 20, 16), 1e-3)
        read = torch.zeros(batch, 16)
        h = torch.zeros(batch, 64)
        c = torch.zeros(batch, 64)
        outputs: List[Tensor] = []
        for t in range(x.size(1)):
            h, c = self.controller(torch.cat([x[:, t], read], 1), (h, c))
            likeness = F.cosine_similarity(memory, self.key(h).unsqueeze(1), dim=2)
            address = F.softmax(likeness * F.softplus(self.sharpness(h)), dim=1).unsqueeze(2)
            erased = memory * (1 - address * torch.sigmoid(self.erase(h)).unsqueeze(1))
            memory = erased + address * self.write(h).unsqueeze(1)
            read = (address * memory).sum(1)
            outputs.append(read)
        return torch.stack(outputs, 1)


@model()
def pointer_memory(batch: int) -> Example:
    return scripted(PointerMemory(), torch.randn(batch, 12, 16))
