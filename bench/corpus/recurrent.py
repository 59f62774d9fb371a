"""Recurrent cells and layers written as TorchScript loops, in the styles that projects publish.

The sizes are those of a small speech or language model: 32 steps of 128 numbers.
"""
import math
from typing import Callable, List, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpus.record import Example, add, model, scripted

STEPS, SIZE = 32, 128


def uniform(*sizes: int) -> nn.Parameter:
    bound = 1 / math.sqrt(SIZE)
    return nn.Parameter(torch.empty(*sizes).uniform_(-bound, bound))


# ---- cells ----------------------------------------------------------------------------------------------------------

class LstmCell(nn.Module):
    """Four gates from two products with two biases."""

    def __init__(self, inputs: int = SIZE, size: int = SIZE) -> None:
        super().__init__()
        self.input_weight = uniform(4 * size, inputs)
        self.hidden_weight = uniform(4 * size, size)
        self.input_bias = uniform(4 * size)
        self.hidden_bias = uniform(4 * size)

    def forward(self, x: Tensor, state: Tuple[Tensor, Tensor]) -> Tuple[Tensor, Tuple[Tensor, Tensor]]:
        hx, cx = state
        gates = (torch.mm(x, self.input_weight.t()) + self.input_bias +
                 torch.mm(hx, self.hidden_weight.t()) + self.hidden_bias)
        in_gate, forget_gate, cell_gate, out_gate = gates.chunk(4, 1)
        cy = torch.sigmoid(forget_gate) * cx + torch.sigmoid(in_gate) * torch.tanh(cell_gate)
        hy = torch.sigmoid(out_gate) * torch.tanh(cy)
        return hy, (hy, cy)


class NormLstmCell(nn.Module):
    """Layer norms over the products and over the cell."""

    def __init__(self, inputs: int = SIZE, size: int = SIZE) -> None:
        super().__init__()
        self.input_weight = uniform(4 * size, inputs)
        self.hidden_weight = uniform(4 * size, size)
        self.of_input = nn.LayerNorm(4 * size)
        self.of_hidden = nn.LayerNorm(4 * size)
        self.of_cell = nn.LayerNorm(size)

    def forward(self, x: Tensor, state: Tuple[Tensor, Tensor]) -> Tuple[Tensor, Tuple[Tensor, Tensor]]:
        hx, cx = state
        gates = self.of_input(torch.mm(x, self.input_weight.t())) + self.of_hidden(torch.mm(hx, self.hidden_weight.t()))
        in_gate, forget_gate, cell_gate, out_gate = gates.chunk(4, 1)
        cy = self.of_cell(forget_gate.sigmoid() * cx + in_gate.sigmoid() * cell_gate.tanh())
        hy = out_gate.sigmoid() * cy.tanh()
        return hy, (hy, cy)


class PeepholeLstmCell(nn.Module):
    """Gates that see the cell, by a linear layer over the joined input and state."""

    def __init__(self, inputs: int = SIZE, size: int = SIZE) -> None:
        super().__init__()
        self.gates = nn.Linear(inputs + size, 4 * size)
        self.peep = uniform(3, size)

    def forward(self, x: Tensor, state: Tuple[Tensor, Tensor]) -> Tuple[Tensor, Tuple[Tensor, Tensor]]:
        h, c = state
        i, f, g, o = torch.split(self.gates(torch.cat([x, h], dim=1)), h.size(1), dim=1)
        i = torch.sigmoid(i + self.peep[0] * c)
        f = torch.sigmoid(f + self.peep[1] * c + 1.0)
        c = f * c + i * torch.tanh(g)
        h = torch.sigmoid(o + self.peep[2] * c) * torch.tanh(c)
        return h, (h, c)


class CoupledLstmCell(nn.Module):
    """The forget gate is what the input gate leaves; one parameter per gate."""

    def __init__(self, inputs: int = SIZE, size: int = SIZE) -> None:
        super().__init__()
        self.input_gate = nn.Linear(inputs + size, size)
        self.candidate = nn.Linear(inputs + size, size)
        self.output_gate = nn.Linear(inputs + size, size)

    def forward(self, x: Tensor, state: Tuple[Tensor, Tensor]) -> Tuple[Tensor, Tuple[Tensor, Tensor]]:
        joined = torch.cat((x, state[0]), -1)
        i = torch.sigmoid(self.input_gate(joined))
        c = (1 - i) * state[1] + i * torch.tanh(self.candidate(joined))
        h = torch.sigmoid(self.output_gate(joined)) * torch.tanh(c)
        return h, (h, c)


class Lstm(nn.Module):
    """A layer: a loop over the unbound steps."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor, state: Tuple[Tensor, Tensor]) -> Tuple[Tensor, Tuple[Tensor, Tensor]]:
        outputs: List[Tensor] = []
        for step in x.unbind(0):
            out, state = self.cell(step, state)
            outputs += [out]
        return torch.stack(outputs), state


def lstm_of(cell: type) -> Callable[[int], Example]:
    def build(batch: int) -> Example:
        state = (torch.randn(batch, SIZE), torch.randn(batch, SIZE))
        return scripted(Lstm(cell()), torch.randn(STEPS, batch, SIZE), state)
    return build


for name, cell in {"lstm": LstmCell, "layer_norm_lstm": NormLstmCell, "peephole_lstm": PeepholeLstmCell,
                   "coupled_lstm": CoupledLstmCell}.items():
    add(name, lstm_of(cell))


# ---- whole networks --------------------------------------------------------------------------------------------------

class State(NamedTuple):
    h: Tensor
    c: Tensor


class ReverseLstm(nn.Module):
    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.cell = LstmCell(inputs)

    def forward(self, x: Tensor, state: State) -> Tuple[Tensor, State]:
        outputs: List[Tensor] = []
        h, c = state.h, state.c
        for index in range(x.size(0) - 1, -1, -1):
            out, (h, c) = self.cell(x[index], (h, c))
            outputs.append(out)
        outputs.reverse()
        return torch.stack(outputs), State(h, c)


class ForwardLstm(nn.Module):
    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.cell = LstmCell(inputs)

    def forward(self, x: Tensor, state: State) -> Tuple[Tensor, State]:
        outputs: List[Tensor] = []
        h, c = state.h, state.c
        for index in range(x.size(0)):
            out, (h, c) = self.cell(x[index], (h, c))
            outputs.append(out)
        return torch.stack(outputs), State(h, c)


class BidirectionalLstm(nn.Module):
    """Two stacked layers of two directions; the states are NamedTuples in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead = nn.ModuleList([ForwardLstm(SIZE), ForwardLstm(2 * SIZE)])
        self.back = nn.ModuleList([ReverseLstm(SIZE), ReverseLstm(2 * SIZE)])
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tuple[Tensor, List[State]]:
        zeros = torch.zeros(x.size(1), 128, dtype=x.dtype, device=x.device)
        states: List[State] = []
        for ahead, back in zip(self.ahead, self.back):
            one, first = ahead(x, State(zeros, zeros))
            two, second = back(x, State(zeros, zeros))
            states.extend([first, second])
            x = self.dropout(torch.cat([one, two], -1))
        return x, states


@model()
def bidirectional_lstm(batch: int) -> Example:
    return scripted(BidirectionalLstm(), torch.randn(STEPS, batch, SIZE))


class GruLoop(nn.Module):
    """The three gates are chunks; the result is written into a tensor made before."""

    def __init__(self) -> None:
        super().__init__()
        self.of_input = nn.Linear(SIZE, 3 * SIZE)
        self.of_state = nn.Linear(SIZE, 3 * SIZE)

    def forward(self, x: Tensor, h: Optional[Tensor] = None) -> Tensor:
        if h is None:
            h = torch.zeros(x.size(1), 128)
        from_input = self.of_input(x)
        outputs: List[Tensor] = []
        for t in range(x.size(0)):
            xr, xz, xn = from_input[t].chunk(3, 1)
            hr, hz, hn = self.of_state(h).chunk(3, 1)
            r = torch.sigmoid(xr + hr)
            z = torch.sigmoid(xz + hz)
            n = torch.tanh(xn + r * hn)
            h = n + z * (h - n)
            outputs.append(h)
        return torch.stack(outputs, 0)


@model()
def gru_loop_premultiplied(batch: int) -> Example:
    return scripted(GruLoop(), torch.randn(STEPS, batch, SIZE))


class CellStack(nn.Module):
    """nn.LSTMCell and nn.GRUCell, one step of both after the other, with residual connections."""

    def __init__(self) -> None:
        super().__init__()
        self.lower = nn.LSTMCell(SIZE, SIZE)
        self.upper = nn.GRUCell(SIZE, SIZE)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.zeros(x.size(1), x.size(2))
        c = torch.zeros_like(h)
        top = torch.zeros_like(h)
        outputs = torch.jit.annotate(List[Tensor], [])
        for t in range(x.size(0)):
            h, c = self.lower(x[t], (h, c))
            top = self.upper(h + x[t], top)
            outputs.append(top + h)
        return torch.stack(outputs)


@model()
def cell_stack(batch: int) -> Example:
    return scripted(CellStack(), torch.randn(STEPS, batch, SIZE))


class MinimalGatedUnit(nn.Module):
    """Two gates and masks for sequences of unequal lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(2 * SIZE, SIZE)
        self.candidate = nn.Linear(2 * SIZE, SIZE)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        h = x.new_zeros(x.size(0), x.size(2))
        for t in range(x.size(1)):
            f = torch.sigmoid(self.gate(torch.cat([x[:, t], h], 1)))
            new = (1 - f) * h + f * torch.tanh(self.candidate(torch.cat([x[:, t], f * h], 1)))
            h = torch.where((lengths > t).unsqueeze(1), new, h)
        return h


@model()
def minimal_gated_unit(batch: int) -> Example:
    return scripted(MinimalGatedUnit(), torch.randn(batch, STEPS, SIZE), torch.arange(batch) + STEPS // 2)


class SimpleRecurrentUnit(nn.Module):
    """All products come before the loop, which is pointwise alone."""

    def __init__(self) -> None:
        super().__init__()
        self.products = nn.Linear(SIZE, 3 * SIZE, bias=False)
        self.bias = uniform(2, SIZE)

    def forward(self, x: Tensor) -> Tensor:
        wx, wf, wr = self.products(x).chunk(3, -1)
        c = torch.zeros_like(x[0])
        outputs: List[Tensor] = []
        for t in range(x.size(0)):
            f = torch.sigmoid(wf[t] + self.bias[0])
            r = torch.sigmoid(wr[t] + self.bias[1])
            c = f * c + (1.0 - f) * wx[t]
            outputs.append(r * torch.tanh(c) + (1.0 - r) * x[t])
        return torch.stack(outputs)


@model()
def simple_recurrent_unit(batch: int) -> Example:
    return scripted(SimpleRecurrentUnit(), torch.randn(STEPS, batch, SIZE))


class RecurrentHighway(nn.Module):
    """Depth within a step: the state passes several small layers before the next input."""

    def __init__(self) -> None:
        super().__init__()
        self.of_input = nn.Linear(SIZE, 2 * SIZE)
        self.of_state = nn.ModuleList([nn.Linear(SIZE, 2 * SIZE) for _ in range(3)])

    def forward(self, x: Tensor) -> Tensor:
        s = torch.zeros(x.size(1), x.size(2))
        for t in range(x.size(0)):
            for depth, layer in enumerate(self.of_state):
                both = layer(s)
                if depth == 0:
                    both = both + self.of_input(x[t])
                h, gate = torch.chunk(both, 2, dim=1)
                gate = torch.sigmoid(gate)
                s = torch.tanh(h) * gate + s * (1 - gate)
        return s


@model()
def recurrent_highway(batch: int) -> Example:
    return scripted(RecurrentHighway(), torch.randn(STEPS, batch, SIZE))


class AttentiveDecoder(nn.Module):
    """Additive attention over an encoded sequence in every step."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(SIZE, SIZE)
        self.query = nn.Linear(SIZE, SIZE, bias=False)
        self.score = nn.Linear(SIZE, 1, bias=False)
        self.cell = nn.GRUCell(2 * SIZE, SIZE)

    def forward(self, memory: Tensor, targets: Tensor) -> Tuple[Tensor, Tensor]:
        keys = self.encoder(memory)
        h = memory.mean(1)
        outputs: List[Tensor] = []
        weights: List[Tensor] = []
        for step in targets.unbind(1):
            energy = self.score(torch.tanh(keys + self.query(h).unsqueeze(1))).squeeze(2)
            attention = F.softmax(energy, dim=1)
            context = torch.bmm(attention.unsqueeze(1), memory).squeeze(1)
            h = self.cell(torch.cat([step, context], 1), h)
            outputs.append(h)
            weights.append(attention)
        return torch.stack(outputs, 1), torch.stack(weights, 1)


@model()
def attentive_decoder(batch: int) -> Example:
    return scripted(AttentiveDecoder(), torch.randn(batch, 20, SIZE), torch.randn(batch, 16, SIZE))


class ConvLstm(nn.Module):
    """Gates by a convolution over images."""

    def __init__(self) -> None:
        super().__init__()
        self.gates = nn.Conv2d(3 + 8, 32, 3, padding=1)

    def forward(self, frames: Tensor) -> Tensor:
        h = torch.zeros(frames.size(0), 8, frames.size(3), frames.size(4))
        c = torch.zeros_like(h)
        for t in range(frames.size(1)):
            i, f, o, g = self.gates(torch.cat([frames[:, t], h], 1)).chunk(4, dim=1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return h


@model()
def conv_lstm(batch: int) -> Example:
    return scripted(ConvLstm(), torch.randn(batch, 8, 3, 16, 16))
