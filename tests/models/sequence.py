"""Small dense, recurrent and attention models."""
from typing import List, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recipe import Sample, recipe


@recipe
def mlp() -> Sample:
    """three linear layers; batches from 0 to 64 rows"""
    module = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 4))
    return Sample(module, [(torch.randn(rows, 16),) for rows in (4, 1, 64, 0, 4)])


class Encoder(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(64, 4, dim_feedforward=128, dropout=dropout, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        # TransformerEncoder copies one layer, which would hide a mix-up of the two.
        for name, parameter in self.layers.named_parameters():
            if "norm" in name:
                nn.init.uniform_(parameter, 0.5, 1.5)
            else:
                nn.init.normal_(parameter, std=0.15)

    def forward(self, x: Tensor, padding: Optional[Tensor]) -> Tensor:
        return self.layers(x, src_key_padding_mask=padding)


def padding_mask(lengths: List[int], longest: int) -> Tensor:
    """True where a position is past its sequence's end."""
    return torch.arange(longest)[None, :] >= torch.tensor(lengths)[:, None]


def encoder_inputs() -> list[tuple]:
    return [
        (torch.randn(2, 7, 64), None),
        (torch.randn(3, 5, 64), padding_mask([5, 2, 3], 5)),
        (torch.randn(1, 1, 64), None),
        (torch.randn(2, 9, 64), padding_mask([4, 9], 9)),
    ]


@recipe
def transformer_encoder() -> Sample:
    """nn.TransformerEncoder, 2 layers, evaluating, with and without a padding mask"""
    return Sample(Encoder(dropout=0.1), encoder_inputs())


@recipe
def transformer_encoder_train() -> Sample:
    """the same encoder, training with dropout"""
    return Sample(Encoder(dropout=0.1), encoder_inputs(), mode="train", seed=7)


class BidirectionalLstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(12, 16, num_layers=2, bidirectional=True)

    def forward(self, x: Tensor, state: Optional[Tuple[Tensor, Tensor]]) -> Tuple[Tensor, Tuple[Tensor, Tensor]]:
        return self.lstm(x, state)


@recipe
def lstm() -> Sample:
    """nn.LSTM, 2 layers, bidirectional, with and without an initial state"""
    state = (torch.randn(4, 3, 16), torch.randn(4, 3, 16))
    return Sample(BidirectionalLstm(), [(torch.randn(6, 2, 12), None), (torch.randn(3, 3, 12), state),
                                        (torch.randn(1, 1, 12), None)])


class LstmLoop(nn.Module):
    """An LSTM cell written out, stepped over the first dimension."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.from_input = nn.Linear(inputs, 4 * hidden)
        self.from_hidden = nn.Linear(hidden, 4 * hidden, bias=False)

    def step(self, x: Tensor, h: Tensor, c: Tensor) -> Tuple[Tensor, Tensor]:
        gates = self.from_input(x) + self.from_hidden(h)
        enter, keep, cell, leave = gates.chunk(4, dim=-1)
        c = keep.sigmoid() * c + enter.sigmoid() * cell.tanh()
        return leave.sigmoid() * c.tanh(), c

    def forward(self, x: Tensor) -> Tuple[List[Tensor], Tensor, Tensor]:
        h = x.new_zeros(x.size(1), self.hidden)
        c = torch.zeros_like(h)
        steps: List[Tensor] = []
        for t in range(x.size(0)):
            h, c = self.step(x[t], h, c)
            steps.append(h)
        return steps, h, c


@recipe
def lstm_loop() -> Sample:
    """an LSTM cell in a loop over time, sequences of length 0 to 9"""
    shapes = [(5, 3), (9, 3), (1, 1), (0, 2), (5, 3), (2, 8)]
    return Sample(LstmLoop(10, 20), [(torch.randn(length, batch, 10),) for length, batch in shapes])


class DecoderBlock(nn.Module):
    def __init__(self, width: int, heads: int, expansion: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.mlp_norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, expansion * width)
        self.down = nn.Linear(expansion * width, width)

    def split_heads(self, x: Tensor) -> Tensor:
        return x.view(x.size(0), x.size(1), self.heads, -1).transpose(1, 2)

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        x = x + self.projection(attended.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.mlp_norm(x)), approximate="tanh"))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.attention_norm(x)).chunk(3, dim=-1)
        attended = F.scaled_dot_product_attention(self.split_heads(q), self.split_heads(k), self.split_heads(v),
                                                  is_causal=True)
        return self.finish(x, attended)

    def extend(self, x: Tensor, past: Optional[Tuple[Tensor, Tensor]]) -> Tuple[Tensor, Tuple[Tensor, Tensor]]:
        """New positions only: their queries see the keys and values of the past, which grow by them."""
        q, k, v = self.qkv(self.attention_norm(x)).chunk(3, dim=-1)
        q, k, v = self.split_heads(q), self.split_heads(k), self.split_heads(v)
        seen = 0
        if past is not None:
            seen = past[0].size(2)
            k = torch.cat([past[0], k], 2)
            v = torch.cat([past[1], v], 2)
        mask = torch.ones(q.size(2), k.size(2), dtype=torch.bool, device=x.device).tril(diagonal=seen)
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.finish(x, attended), (k, v)


class Decoder(nn.Module):
    """A language model with tied token embeddings: whole sequences, cached steps, and greedy generation."""

    def __init__(self, vocabulary: int = 50, width: int = 32, heads: int = 4, longest: int = 64) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(longest, width)
        self.blocks = nn.ModuleList([DecoderBlock(width, heads) for _ in range(2)])
        self.norm = nn.LayerNorm(width)
        self.logits = nn.Linear(width, vocabulary, bias=False)
        self.logits.weight = self.tokens.weight

    def embed(self, tokens: Tensor, first: int) -> Tensor:
        places = torch.arange(first, first + tokens.size(1), device=tokens.device)
        return self.tokens(tokens) + self.positions(places)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens, 0)
        for block in self.blocks:
            x = block(x)
        return self.logits(self.norm(x))

    @torch.jit.export
    def step(self, tokens: Tensor, cache: List[Tuple[Tensor, Tensor]]) -> Tuple[Tensor, List[Tuple[Tensor, Tensor]]]:
        seen = cache[0][0].size(2) if len(cache) > 0 else 0
        x = self.embed(tokens, seen)
        grown: List[Tuple[Tensor, Tensor]] = []
        for i, block in enumerate(self.blocks):
            past: Optional[Tuple[Tensor, Tensor]] = None
            if len(cache) > 0:
                past = cache[i]
            x, present = block.extend(x, past)
            grown.append(present)
        return self.logits(self.norm(x[:, -1])), grown

    @torch.jit.export
    def generate(self, prompt: Tensor, steps: int, stop: int) -> Tensor:
        tokens = prompt
        cache: List[Tuple[Tensor, Tensor]] = []
        logits, cache = self.step(tokens, cache)
        for _ in range(steps):
            following = logits.argmax(1, keepdim=True)
            tokens = torch.cat([tokens, following], 1)
            if bool((following == stop).all()):
                break
            logits, cache = self.step(following, cache)
        return tokens


def token_ids(batch: int, length: int) -> Tensor:
    return torch.randint(50, (batch, length))


@recipe
def decoder() -> Sample:
    """decoder-only transformer, causal scaled_dot_product_attention, whole sequences"""
    return Sample(Decoder(), [(token_ids(2, 8),), (token_ids(1, 16),), (token_ids(3, 1),), (token_ids(2, 8),)])


@recipe
def decoder_step() -> Sample:
    """the decoder's `step`: a list of key and value caches that grows from call to call"""
    def cache(batch: int, seen: int) -> List[Tuple[Tensor, Tensor]]:
        return [(torch.randn(batch, 4, seen, 8), torch.randn(batch, 4, seen, 8)) for _ in range(2)]
    return Sample(Decoder(), [(token_ids(2, 5), cache(2, 3)), (token_ids(1, 4), []), (token_ids(2, 1), cache(2, 9)),
                              (token_ids(2, 1), cache(2, 10))], method="step")


@recipe
def decoder_generate() -> Sample:
    """the decoder's `generate`: a loop that feeds its own output back and may stop early"""
    return Sample(Decoder(), [(token_ids(1, 4), 6, -1), (token_ids(2, 2), 3, -1), (torch.full((1, 3), 7), 8, 7),
                              (token_ids(1, 4), 0, -1)], method="generate")


class EmbeddingClassifier(nn.Module):
    """Ragged bags of words beside a padded title."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(40, 12, mode="mean")
        self.title = nn.Embedding(40, 12, padding_idx=0)
        self.classes = nn.Linear(24, 3)

    def forward(self, words: Tensor, offsets: Tensor, title: Tensor) -> Tuple[Tensor, Tensor]:
        lengths = (title != 0).sum(1, keepdim=True).clamp(min=1)
        averaged = self.title(title).sum(1) / lengths
        scores = self.classes(torch.cat([self.words(words, offsets), averaged], 1))
        return F.log_softmax(scores, 1), scores.argmax(1)


@recipe
def embedding_classifier() -> Sample:
    """EmbeddingBag over ragged bags and Embedding with a padding index"""
    def bags(offsets: List[int], words: int, title: int) -> tuple:
        return torch.randint(40, (words,)), torch.tensor(offsets), torch.randint(6, (len(offsets), title))
    return Sample(EmbeddingClassifier(), [bags([0, 3, 3], 7, 4), bags([0], 5, 2), bags([0, 1, 2, 6], 9, 6)])
