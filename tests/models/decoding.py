"""Decoding loops as engineers write them around a language model: beam search, sampling, a cache in a dict."""
from typing import Dict, List, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recipe import Sample, recipe


class Hypothesis(NamedTuple):
    words: List[int]
    score: float
    state: Tensor
    ended: bool


class BeamSearch(nn.Module):
    """A GRU language model. Words 0 and 1 start and end a sentence."""

    def __init__(self, words: int = 12, width: int = 10) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.cell = nn.GRUCell(width, width)
        self.logits = nn.Linear(width, words)
        nn.init.normal_(self.logits.weight, std=1.5)
        self.names: Dict[int, str] = {i: chr(ord("a") + i) for i in range(words)}

    def extend(self, beam: List[Hypothesis], width: int) -> List[Hypothesis]:
        """The `width` best continuations of all hypotheses, best first; those that have ended are kept as they are."""
        words = torch.tensor([hypothesis.words[-1] for hypothesis in beam])
        states = self.cell(self.embedding(words), torch.stack([hypothesis.state for hypothesis in beam]))
        best, following = torch.log_softmax(self.logits(states), 1).topk(width, 1)
        candidates: List[Tuple[float, int, int]] = []
        for i, hypothesis in enumerate(beam):
            if hypothesis.ended:
                candidates.append((hypothesis.score, i, -1))
                continue
            scores: List[float] = best[i].tolist()
            choices: List[int] = following[i].tolist()
            for score, choice in zip(scores, choices):
                candidates.append((hypothesis.score + score, i, choice))
        candidates.sort(reverse=True)
        extended: List[Hypothesis] = []
        for score, i, choice in candidates[:width]:
            if choice < 0:
                extended.append(beam[i])
            else:
                extended.append(Hypothesis(beam[i].words + [choice], score, states[i], choice == 1))
        return extended

    def text(self, words: List[int]) -> str:
        return "".join([self.names[word] for word in words])

    def forward(self, start: Tensor, width: int, longest: int, length_penalty: float
                ) -> Tuple[List[Hypothesis], Dict[str, float], int]:
        beam = [Hypothesis([0], 0.0, start, False)]
        steps = 0
        while steps < longest:
            beam = self.extend(beam, width)
            steps += 1
            if all([hypothesis.ended for hypothesis in beam]):
                break
        ranking: Dict[str, float] = {}
        for hypothesis in beam:
            ranking[self.text(hypothesis.words)] = hypothesis.score / len(hypothesis.words) ** length_penalty
        return beam, ranking, steps


@recipe
def beam_search() -> Sample:
    """beam search: a list of NamedTuples, candidates sorted as tuples, scores in a dict, an early end"""
    def call(width: int, longest: int, length_penalty: float) -> tuple:
        return torch.randn(10), width, longest, length_penalty
    return Sample(BeamSearch(), [call(3, 8, 0.7), call(1, 12, 1.0), call(4, 5, 0.0), call(2, 0, 1.0)])


class CachedBlock(nn.Module):
    def __init__(self, name: str, width: int, heads: int) -> None:
        super().__init__()
        self.name = name
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor, cache: Dict[str, List[Tensor]]) -> Tensor:
        """x: the new positions only. Their keys and values join those that the cache has under the block's name."""
        batch, length = x.size(0), x.size(1)
        y = self.norm(x)
        key, value = self.key_value(y).view(batch, length, 2, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        if self.name in cache:
            past_key, past_value = cache[self.name]
            key = torch.cat([past_key, key], 2)
            value = torch.cat([past_value, value], 2)
        cache[self.name] = [key, value]
        query = self.query(y).view(batch, length, self.heads, -1).transpose(1, 2)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=length > 1 and length == key.size(2))
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, -1))
        return x + self.mlp(x)


class CachedDecoder(nn.Module):
    """A decoder whose cache is a dict that every block changes in place, with the loops that drive it."""

    def __init__(self, words: int = 30, width: int = 24) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Embedding(32, width)
        self.blocks = nn.ModuleList([CachedBlock(f"block {i}", width, heads=3) for i in range(2)])
        self.logits = nn.Linear(width, words)
        nn.init.normal_(self.logits.weight, std=0.7)

    def forward(self, tokens: Tensor, cache: Dict[str, List[Tensor]]) -> Tensor:
        """The logits after the last position. The caller's cache grows by these positions."""
        seen = cache["block 0"][0].size(2) if "block 0" in cache else 0
        x = self.words(tokens) + self.places(torch.arange(seen, seen + tokens.size(1)))
        for block in self.blocks:
            x = block(x, cache)
        return self.logits(x[:, -1])

    @torch.jit.export
    def generate(self, prompt: List[int], steps: int, stop: List[int], repetition_penalty: float
                 ) -> Tuple[List[int], Tensor, Dict[str, List[Tensor]]]:
        """Greedy, but words that were used lose `repetition_penalty`. Ends after a word of `stop`."""
        cache: Dict[str, List[Tensor]] = {}
        used: Dict[int, int] = {}
        words = prompt.copy()
        scores: List[Tensor] = []
        fresh = words
        for _ in range(steps):
            logits = self.forward(torch.tensor(fresh).unsqueeze(0), cache)[0]
            for word, times in used.items():
                logits[word] -= repetition_penalty * times
            word = int(logits.argmax())
            scores.append(logits.log_softmax(0)[word])
            words.append(word)
            used[word] = used.get(word, 0) + 1
            if word in stop:
                break
            fresh = words[-1:]
        return words, torch.stack(scores), cache

    @torch.jit.export
    def sample(self, prompt: Tensor, steps: int, temperature: float, top_k: Optional[int], top_p: Optional[float]
               ) -> Tensor:
        cache: Dict[str, List[Tensor]] = {}
        tokens = prompt
        fresh = prompt
        for _ in range(steps):
            logits = self.forward(fresh, cache) / temperature
            if top_k is not None:
                least = logits.topk(min(top_k, logits.size(1)), 1)[0][:, -1:]
                logits = logits.masked_fill(logits < least, -float("inf"))
            probabilities = logits.softmax(1)
            if top_p is not None:
                ordered, order = probabilities.sort(1, descending=True)
                ordered[ordered.cumsum(1) - ordered > top_p] = 0.0
                probabilities = torch.zeros_like(ordered).scatter_(1, order, ordered)
            fresh = torch.multinomial(probabilities, 1)
            tokens = torch.cat([tokens, fresh], 1)
        return tokens


def tokens(batch: int, length: int) -> Tensor:
    return torch.randint(30, (batch, length))


def cache(batch: int, seen: int) -> Dict[str, List[Tensor]]:
    return {f"block {i}": [torch.randn(batch, 3, seen, 8) for _ in range(2)] for i in range(2)}


@recipe
def dict_cache() -> Sample:
    """decoder whose cache is the caller's Dict[str, List[Tensor]], changed by each block"""
    return Sample(CachedDecoder(), [(tokens(2, 1), cache(2, 4)), (tokens(1, 6), {}), (tokens(2, 1), cache(2, 5)),
                                    (tokens(3, 1), {})])


@recipe
def dict_cache_generate() -> Sample:
    """the same decoder's loop: greedy with a penalty for repeated words, stop words"""
    return Sample(CachedDecoder(), [([1, 2, 3], 6, [29], 1.0), ([4], 5, [], 0.0), ([5, 6], 10, [3, 7, 12, 20, 21], 4.0)],
                  method="generate")


@recipe
def dict_cache_sample() -> Sample:
    """the same decoder's sampling: temperature, the k likeliest words, the likeliest that make up p"""
    return Sample(CachedDecoder(), [(tokens(2, 3), 4, 0.8, 5, None), (tokens(3, 1), 5, 1.0, None, 0.7),
                                    (tokens(1, 2), 3, 1.5, 8, 0.9)], method="sample", seed=5)
