"""Decoders: greedy search, beams, caches that grow, sampling by thresholds, transducers, CTC."""
from typing import Dict, List, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpus.record import Example, model, scripted

WORDS, SIZE = 60, 64


class GreedySeq2Seq(nn.Module):
    """A GRU encoder, and a decoder that feeds back its own words until all sequences have ended."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, SIZE)
        self.encoder = nn.GRU(SIZE, SIZE, batch_first=True)
        self.cell = nn.GRUCell(SIZE, SIZE)
        self.out = nn.Linear(SIZE, WORDS)

    def forward(self, source: Tensor, longest: int) -> Tuple[Tensor, Tensor]:
        state = self.encoder(self.words(source))[1]
        h = state[0]
        word = torch.zeros(source.size(0), dtype=torch.long)
        ended = torch.zeros(source.size(0), dtype=torch.bool)
        words: List[Tensor] = []
        score = torch.zeros(source.size(0))
        for _ in range(longest):
            h = self.cell(self.words(word), h)
            best, word = F.log_softmax(self.out(h), 1).max(1)
            score = score + best.masked_fill(ended, 0.0)
            words.append(word.masked_fill(ended, 1))
            ended = ended | (word == 1)
            if bool(ended.all()):
                break
        return torch.stack(words, 1), score


@model(trains=False)
def greedy_seq2seq(batch: int) -> Example:
    return scripted(GreedySeq2Seq(), torch.randint(2, WORDS, (batch, 12)), 20)


class Beam(NamedTuple):
    words: List[int]
    score: float
    h: Tensor


class BeamSearch(nn.Module):
    """Beams as a list of NamedTuples, sorted by hand: the style of readable decoders."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, SIZE)
        self.cell = nn.GRUCell(SIZE, SIZE)
        self.out = nn.Linear(SIZE, WORDS)

    def forward(self, h: Tensor, width: int, longest: int) -> Tuple[List[int], float]:
        beams = [Beam([0], 0.0, h)]
        for _ in range(longest):
            grown: List[Beam] = []
            for beam in beams:
                if beam.words[-1] == 1:
                    grown.append(beam)
                    continue
                state = self.cell(self.words(torch.tensor([beam.words[-1]])), beam.h)
                scores, words = torch.topk(F.log_softmax(self.out(state), dim=1)[0], width)
                for index in range(width):
                    score = beam.score + float(scores[index])
                    grown.append(Beam(beam.words + [int(words[index])], score, state))
            beams = torch.jit.annotate(List[Beam], [])
            while len(beams) < width and len(grown) > 0:
                best = 0
                for index in range(1, len(grown)):
                    if grown[index].score > grown[best].score:
                        best = index
                beams.append(grown.pop(best))
        return beams[0].words, beams[0].score


@model(trains=False)
def beam_search_lists(batch: int) -> Example:
    return scripted(BeamSearch(), torch.randn(1, SIZE), 3, 10)


class TensorBeam(nn.Module):
    """All beams in one tensor: topk over beams and words, gathered states."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, SIZE)
        self.lstm = nn.LSTMCell(SIZE, SIZE)
        self.out = nn.Linear(SIZE, WORDS)

    def forward(self, h: Tensor, width: int, steps: int) -> Tuple[Tensor, Tensor]:
        batch = h.size(0)
        h = h.unsqueeze(1).expand(batch, width, h.size(1)).reshape(batch * width, -1)
        c = torch.zeros_like(h)
        scores = torch.full((batch, width), float("-inf"))
        scores[:, 0] = 0.0
        found = torch.zeros(batch, width, 1, dtype=torch.long)
        for _ in range(steps):
            h, c = self.lstm(self.words(found[:, :, -1].reshape(-1)), (h, c))
            logits = F.log_softmax(self.out(h), -1).view(batch, width, -1)
            scores, at = (scores.unsqueeze(2) + logits).view(batch, -1).topk(width, dim=1)
            beam = torch.div(at, logits.size(2), rounding_mode="floor")
            rows = (beam + torch.arange(batch).unsqueeze(1) * width).view(-1)
            h, c = h[rows], c[rows]
            before = found.gather(1, beam.unsqueeze(2).expand(-1, -1, found.size(2)))
            found = torch.cat([before, (at % logits.size(2)).unsqueeze(2)], dim=2)
        return found, scores


@model(trains=False)
def beam_search_tensors(batch: int) -> Example:
    return scripted(TensorBeam(), torch.randn(batch, SIZE), 4, 12)


class CachedLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(SIZE, 3 * SIZE)
        self.out = nn.Linear(SIZE, SIZE)
        self.wide = nn.Linear(SIZE, 4 * SIZE)
        self.narrow = nn.Linear(4 * SIZE, SIZE)
        self.first = nn.LayerNorm(SIZE)
        self.second = nn.LayerNorm(SIZE)

    def forward(self, x: Tensor, cache: Optional[Tuple[Tensor, Tensor]]) -> Tuple[Tensor, Tuple[Tensor, Tensor]]:
        batch, length, size = x.size()
        q, k, v = self.qkv(self.first(x)).view(batch, length, 12, 16).transpose(1, 2).chunk(3, dim=1)
        if cache is not None:
            k = torch.cat([cache[0], k], dim=2)
            v = torch.cat([cache[1], v], dim=2)
        weights = torch.softmax(torch.matmul(q, k.transpose(-2, -1)) / 4.0, dim=-1)
        mixed = torch.matmul(weights, v).transpose(1, 2).reshape(batch, length, size)
        x = x + self.out(mixed)
        return x + self.narrow(F.gelu(self.wide(self.second(x)), approximate="tanh")), (k, v)


class CachedGenerator(nn.Module):
    """A decoder whose cache grows by cat with each word."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, SIZE)
        self.positions = nn.Embedding(64, SIZE)
        self.layers = nn.ModuleList([CachedLayer() for _ in range(3)])
        self.norm = nn.LayerNorm(SIZE)

    def forward(self, prompt: Tensor, new_words: int) -> Tensor:
        caches: List[Optional[Tuple[Tensor, Tensor]]] = [None for _ in range(3)]
        words = prompt
        last = prompt[:, :1]
        for step in range(new_words):
            x = self.words(last) + self.positions(torch.tensor([step]))
            for index, layer in enumerate(self.layers):
                x, grown = layer(x, caches[index])
                caches[index] = grown
            logits = torch.matmul(self.norm(x[:, -1]), self.words.weight.t())
            last = torch.argmax(logits, dim=-1, keepdim=True)
            words = torch.cat([words, last], dim=1)
        return words


@model(trains=False)
def growing_cache(batch: int) -> Example:
    return scripted(CachedGenerator(), torch.randint(0, WORDS, (batch, 4)), 16)


class RingCache(nn.Module):
    """A cache of fixed size in a buffer of the caller, written in place."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(SIZE, SIZE)
        self.key = nn.Linear(SIZE, SIZE)
        self.value = nn.Linear(SIZE, SIZE)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        outputs: List[Tensor] = []
        for t in range(x.size(1)):
            at = t % keys.size(1)
            keys[:, at] = self.key(x[:, t])
            values[:, at] = self.value(x[:, t])
            used = min(t + 1, keys.size(1))
            scores = torch.bmm(keys[:, :used], self.query(x[:, t]).unsqueeze(2)).squeeze(2)
            outputs.append((torch.softmax(scores * 0.125, 1).unsqueeze(2) * values[:, :used]).sum(1))
        return torch.stack(outputs, 1)


@model(trains=False)
def ring_cache(batch: int) -> Example:
    return scripted(RingCache(), torch.randn(batch, 16, SIZE), torch.zeros(batch, 8, SIZE), torch.zeros(batch, 8, SIZE))


class CtcGreedy(nn.Module):
    """Collapses repeats and blanks, symbol by symbol."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv1d(20, 64, 3, padding=1), nn.ReLU(), nn.Conv1d(64, 30, 3, padding=1))
        self.blank = 0

    def forward(self, x: Tensor) -> List[List[int]]:
        best = self.features(x).argmax(1)
        found = torch.jit.annotate(List[List[int]], [])
        for row in range(best.size(0)):
            symbols: List[int] = []
            before = self.blank
            for symbol in best[row]:
                now = int(symbol.item())
                if now != self.blank and now != before:
                    symbols.append(now)
                before = now
            found.append(symbols)
        return found


@model(trains=False)
def ctc_greedy(batch: int) -> Example:
    return scripted(CtcGreedy(), torch.randn(batch, 20, 50))


class CtcPrefix(nn.Module):
    """CTC with a dict of prefixes and their probabilities."""

    def forward(self, probabilities: Tensor, width: int) -> Tuple[List[str], List[float]]:
        rows: List[List[float]] = []
        for t in range(probabilities.size(0)):
            rows.append([float(x) for x in probabilities[t]])
        scores: Dict[str, float] = {"": 1.0}
        for row in rows:
            grown: Dict[str, float] = {}
            for prefix, score in scores.items():
                for symbol in range(len(row)):
                    new = prefix
                    if symbol > 0:
                        letter = chr(96 + symbol)
                        if len(prefix) == 0 or prefix[-1] != letter:
                            new = prefix + letter
                    grown[new] = grown.get(new, 0.0) + score * row[symbol]
            best = torch.jit.annotate(Dict[str, float], {})
            limit = sorted(grown.values())[max(0, len(grown) - width)]
            for prefix, score in grown.items():
                if score >= limit:
                    best[prefix] = score
            scores = best
        return [prefix for prefix in scores.keys()], [score for score in scores.values()]


@model(trains=False)
def ctc_prefixes(batch: int) -> Example:
    return scripted(CtcPrefix(), torch.softmax(torch.randn(12, 5), 1), 8)


class TransducerGreedy(nn.Module):
    """A transducer: at most two symbols per frame; the predictor moves only when a symbol was found."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, SIZE)
        self.predictor = nn.LSTMCell(SIZE, SIZE)
        self.encoder = nn.Linear(20, SIZE)
        self.joint = nn.Linear(SIZE, WORDS)

    def forward(self, frames: Tensor) -> List[int]:
        found: List[int] = []
        state: Optional[Tuple[Tensor, Tensor]] = None
        encoded = self.encoder(frames)
        predicted = torch.zeros(1, 64)
        for t in range(encoded.size(0)):
            symbols = 0
            while symbols < 2:
                symbol = int(self.joint(torch.tanh(encoded[t:t + 1] + predicted)).argmax())
                if symbol < 20:
                    break
                found.append(symbol)
                word = self.words(torch.tensor([symbol]))
                if state is None:
                    state = self.predictor(word)
                else:
                    state = self.predictor(word, state)
                predicted = state[0]
                symbols += 1
        return found


@model(trains=False)
def transducer_greedy(batch: int) -> Example:
    return scripted(TransducerGreedy(), torch.randn(24, 20))


class Viterbi(nn.Module):
    """The best path of a linear chain: maxima forwards, then backwards through the indices."""

    def __init__(self) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.randn(10, 10))
        self.emit = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tuple[List[int], Tensor]:
        emissions = self.emit(x)
        score = emissions[0]
        back: List[Tensor] = []
        for t in range(1, emissions.size(0)):
            best, at = (score.unsqueeze(1) + self.transitions).max(0)
            back.append(at)
            score = best + emissions[t]
        total, last = score.max(0)
        path = [int(last)]
        for index in range(len(back) - 1, -1, -1):
            path.append(int(back[index][path[-1]]))
        path.reverse()
        return path, total


@model(trains=False)
def viterbi(batch: int) -> Example:
    return scripted(Viterbi(), torch.randn(25, 32))


class NucleusFilter(nn.Module):
    """What comes before sampling: penalties of repeated words, temperature, the best k, the nucleus."""

    def forward(self, logits: Tensor, before: Tensor, k: int, p: float, temperature: float) -> Tensor:
        scores = logits.gather(1, before)
        logits = logits.scatter(1, before, torch.where(scores < 0, scores * 1.3, scores / 1.3)) / temperature
        if k > 0:
            limit = torch.topk(logits, k)[0][:, -1:]
            logits = logits.masked_fill(logits < limit, float("-inf"))
        if p < 1.0:
            ordered, indices = torch.sort(logits, dim=1, descending=True)
            beyond = torch.cumsum(F.softmax(ordered, dim=-1), dim=-1) > p
            beyond[:, 1:] = beyond[:, :-1].clone()
            beyond[:, 0] = False
            logits = logits.masked_fill(beyond.scatter(1, indices, beyond), float("-inf"))
        return F.softmax(logits, dim=-1)


@model(trains=False)
def nucleus_filter(batch: int) -> Example:
    return scripted(NucleusFilter(), torch.randn(batch, 1000), torch.randint(0, 1000, (batch, 20)), 50, 0.9, 0.8)
