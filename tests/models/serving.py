"""Small models as services call them, a row or a few at a time: what an executor costs beside the operators shows here."""
from typing import List

import torch
from torch import Tensor, nn

from recipe import Sample, recipe
from sequence import DecoderBlock


class Dlrm(nn.Module):
    """Recommendation (Naumov et al. 2019): embeddings of categories, their products in pairs, two stacks of layers."""

    def __init__(self, dense: int = 13, tables: int = 8, rows: int = 100, width: int = 16) -> None:
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(dense, 32), nn.ReLU(), nn.Linear(32, width), nn.ReLU())
        self.tables = nn.ModuleList([nn.Embedding(rows, width) for _ in range(tables)])
        pairs = torch.tril_indices(tables + 1, tables + 1, offset=-1)
        self.register_buffer("pairs", pairs[0] * (tables + 1) + pairs[1])
        self.top = nn.Sequential(nn.Linear(width + pairs.size(1), 32), nn.ReLU(), nn.Linear(32, 1), nn.Sigmoid())

    def forward(self, dense: Tensor, categories: Tensor) -> Tensor:
        x = self.bottom(dense)
        vectors: List[Tensor] = [x]
        for i, table in enumerate(self.tables):
            vectors.append(table(categories[:, i]))
        together = torch.stack(vectors, 1)
        products = torch.bmm(together, together.transpose(1, 2)).flatten(1).index_select(1, self.pairs)
        return self.top(torch.cat([x, products], 1))


@recipe
def dlrm() -> Sample:
    """recommendation: embeddings of eight categories, products of all pairs, two stacks of layers"""
    return Sample(Dlrm(), [(torch.randn(rows, 13), torch.randint(100, (rows, 8))) for rows in (1, 16, 3)])


class GruLoop(nn.Module):
    """A GRU cell written out, stepped over the first dimension."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.from_input = nn.Linear(inputs, 3 * hidden)
        self.from_hidden = nn.Linear(hidden, 3 * hidden)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.zeros(x.size(1), self.hidden)
        steps: List[Tensor] = []
        for t in range(x.size(0)):
            a_reset, a_update, a_new = self.from_input(x[t]).chunk(3, 1)
            b_reset, b_update, b_new = self.from_hidden(h).chunk(3, 1)
            update = torch.sigmoid(a_update + b_update)
            new = torch.tanh(a_new + torch.sigmoid(a_reset + b_reset) * b_new)
            h = new + update * (h - new)
            steps.append(h)
        return torch.stack(steps)


@recipe
def gru_loop() -> Sample:
    """a GRU cell in a loop over time"""
    return Sample(GruLoop(10, 20), [(torch.randn(length, batch, 10),) for length, batch in ((9, 3), (1, 1), (5, 2))])


class EncoderBlock(DecoderBlock):
    """The decoder's block with its attention written out, and a mask that is added."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = self.qkv(self.attention_norm(x)).unflatten(2, [3, self.heads, -1]).permute(2, 0, 3, 1, 4).unbind(0)
        weights = torch.softmax(q @ k.transpose(2, 3) * 0.25 + mask, dim=-1)
        return self.finish(x, weights @ v)


class SmallEncoder(nn.Module):
    def __init__(self, words: int = 60, width: int = 32, heads: int = 2) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width, padding_idx=0)
        self.positions = nn.Embedding(32, width)
        self.blocks = nn.ModuleList([EncoderBlock(width, heads, expansion=2) for _ in range(2)])
        self.norm = nn.LayerNorm(width)
        self.classes = nn.Linear(width, 4)

    def forward(self, words: Tensor) -> Tensor:
        padding = words == 0
        mask = padding.to(torch.float32).mul(-10000.0)[:, None, None, :]
        x = self.words(words) + self.positions(torch.arange(words.size(1)))
        for block in self.blocks:
            x = block(x, mask)
        kept = (~padding).to(x.dtype).unsqueeze(2)
        mean = (self.norm(x) * kept).sum(1) / kept.sum(1).clamp(min=1)
        return torch.log_softmax(self.classes(mean), dim=-1)


@recipe
def small_encoder() -> Sample:
    """a two-block encoder with its attention written out, padding masked; a class for each sentence"""
    def sentences(*lengths: int) -> Tensor:
        words = torch.randint(1, 60, (len(lengths), max(lengths)))
        return words * (torch.arange(max(lengths))[None, :] < torch.tensor(lengths)[:, None])
    return Sample(SmallEncoder(), [(sentences(8),), (sentences(5, 9, 2),), (sentences(1, 1),)])


def hide(scores: Tensor, mask: Tensor) -> Tensor:
    # Python counts `-1e9` as `-1000000000.0`, so the source range of this call ends after the source.
    return scores.masked_fill(mask, -1e9)


class CausalAttention(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, 2)
        future = torch.ones(x.size(1), x.size(1), dtype=torch.bool).triu(1)
        return torch.softmax(hide(q @ k.transpose(1, 2) * 0.25, future), -1) @ v


@recipe
def causal_attention() -> Sample:
    """attention of one head written out, later words masked"""
    return Sample(CausalAttention(), [(torch.randn(rows, length, 16),) for rows, length in ((2, 33), (1, 1), (3, 7))])
