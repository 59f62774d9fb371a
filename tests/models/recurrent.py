"""Recurrent models: torch.nn's GRU and RNN, packed sequences, and an encoder and decoder with attention."""
from typing import List, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from recipe import Sample, recipe


class Gru(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.gru = nn.GRU(10, 12, num_layers=2, bidirectional=True, batch_first=True, dropout=dropout)
        self.norm = nn.LayerNorm(24)

    def forward(self, x: Tensor, state: Optional[Tensor]) -> Tuple[Tensor, Tensor]:
        y, state = self.gru(x, state)
        return self.norm(y), state


def gru_inputs() -> list[tuple]:
    return [(torch.randn(2, 6, 10), None), (torch.randn(3, 4, 10), torch.randn(4, 3, 12)), (torch.randn(1, 1, 10), None)]


@recipe
def gru() -> Sample:
    """nn.GRU, 2 layers, bidirectional, batch first, with and without an initial state"""
    return Sample(Gru(dropout=0.0), gru_inputs())


@recipe
def gru_train() -> Sample:
    """the same, training with dropout between its layers"""
    return Sample(Gru(dropout=0.3), gru_inputs(), mode="train", seed=3)


class PackedGru(nn.Module):
    """Classifies padded sequences of known lengths: the last state of each, and a mean over its valid outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(30, 8, padding_idx=0)
        self.gru = nn.GRU(8, 10, num_layers=2, bidirectional=True, batch_first=True)
        self.classes = nn.Linear(40, 3)

    def forward(self, words: Tensor, lengths: Tensor, sorted_by_length: bool) -> Tuple[Tensor, Tensor, Tensor]:
        packed = pack_padded_sequence(self.words(words), lengths, batch_first=True, enforce_sorted=sorted_by_length)
        packed_outputs, state = self.gru(packed)
        outputs, found_lengths = pad_packed_sequence(packed_outputs, batch_first=True, total_length=words.size(1))
        mean = outputs.sum(1) / found_lengths.unsqueeze(1).to(outputs.dtype)
        last = torch.cat([state[-2], state[-1]], 1)
        return self.classes(torch.cat([mean, last], 1)), outputs, found_lengths


def padded_words(lengths: List[int], longest: int) -> Tensor:
    words = torch.randint(1, 30, (len(lengths), longest))
    return words * (torch.arange(longest)[None, :] < torch.tensor(lengths)[:, None])


@recipe
def gru_packed() -> Sample:
    """nn.GRU over packed sequences, lengths sorted and not"""
    def batch(lengths: List[int], longest: int, sorted_by_length: bool) -> tuple:
        return padded_words(lengths, longest), torch.tensor(lengths), sorted_by_length
    return Sample(PackedGru(), [batch([6, 4, 1], 6, True), batch([2, 5, 3, 5], 7, False), batch([3], 3, True)])


class PackedLstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 8, num_layers=2, proj_size=5)

    def forward(self, x: Tensor, lengths: List[int]) -> Tuple[Tensor, Tensor, Tensor]:
        packed = pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=False)
        y, (h, c) = self.lstm(packed)
        padded, _ = pad_packed_sequence(y, padding_value=-1.0)
        return padded, h, c


@recipe
def lstm_packed() -> Sample:
    """nn.LSTM with projections over packed sequences, lengths as a list"""
    return Sample(PackedLstm(), [(torch.randn(5, 3, 6), [3, 5, 1]), (torch.randn(4, 2, 6), [4, 4]),
                                 (torch.randn(6, 1, 6), [2])])


class Rnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tanh = nn.RNN(5, 7, num_layers=2)
        self.relu = nn.RNN(7, 6, nonlinearity="relu", bidirectional=True)
        self.cell = nn.GRUCell(12, 4)

    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        y, deep = self.tanh(x)
        z, wide = self.relu(y)
        state = torch.zeros(x.size(1), 4)
        for step in z.unbind(0):
            state = self.cell(step, state)
        return state, deep, wide


@recipe
def rnn() -> Sample:
    """nn.RNN with tanh and with relu, and an nn.GRUCell stepped over its outputs"""
    return Sample(Rnn(), [(torch.randn(4, 2, 5),), (torch.randn(1, 1, 5),), (torch.randn(7, 3, 5),)])


class LstmStates(nn.Module):
    """An LSTM cell written out, whose outputs are joined and whose last state is a result, too."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.gates = nn.Linear(inputs + hidden, 4 * hidden)
        self.norm = nn.LayerNorm(hidden)

    def forward(self, x: Tensor, state: Tuple[Tensor, Tensor]) -> Tuple[Tensor, Tuple[Tensor, Tensor]]:
        h, c = state
        outputs: List[Tensor] = []
        for step in x.unbind(1):
            enter, keep, cell, leave = self.gates(torch.cat([step, h], 1)).chunk(4, 1)
            c = torch.sigmoid(keep) * c + torch.sigmoid(enter) * torch.tanh(cell)
            h = torch.sigmoid(leave) * torch.tanh(self.norm(c))
            outputs += [h]
        return torch.stack(outputs, 1), (h, c)


@recipe
def lstm_states() -> Sample:
    """an LSTM cell with a layer norm in a loop over steps; joined outputs, and states as tuples"""
    def case(batch: int, steps: int) -> tuple:
        return torch.randn(batch, steps, 10), (torch.zeros(batch, 16), torch.randn(batch, 16))
    return Sample(LstmStates(10, 16), [case(3, 6), case(1, 1), case(3, 6), case(2, 20)])


class SequenceClassifier(nn.Module):
    """Reads projected words one by one, with a gate that every other word skips, and classifies the last state."""

    def __init__(self, words: int = 30, width: int = 16) -> None:
        super().__init__()
        self.width = width
        self.words = nn.Embedding(words, width)
        self.project = nn.Linear(width, width)
        self.recur = nn.Linear(width, width)
        self.gate = nn.Linear(width, width)
        self.classes = nn.Linear(width, 4)

    def forward(self, words: Tensor) -> Tensor:
        projected = torch.relu(self.project(self.words(words)))
        state = torch.zeros([words.size(0), self.width])
        for i in range(words.size(1)):
            new = torch.tanh(projected[:, i] + self.recur(state))
            if i % 2 == 0:
                state = new * torch.sigmoid(self.gate(new))
            else:
                state = (state + new) / 2
        return self.classes(state)


@recipe
def sequence_classifier() -> Sample:
    """a loop over projected words with a branch in it, for sequences of length 1 to 40"""
    return Sample(SequenceClassifier(), [(torch.randint(0, 30, size),) for size in [(2, 5), (3, 1), (2, 40), (1, 8)]])


class Attention(nn.Module):
    """Additive attention (Bahdanau, Cho, Bengio 2014): softmax over v·tanh(W query + U key), padding left out."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(2 * width, width)
        self.energy = nn.Linear(width, 1, bias=False)

    def forward(self, query: Tensor, memory: Tensor, padding: Tensor) -> Tuple[Tensor, Tensor]:
        energy = self.energy(torch.tanh(self.query(query).unsqueeze(1) + self.key(memory))).squeeze(2)
        weights = torch.softmax(energy.masked_fill(padding, float("-inf")), 1)
        return torch.bmm(weights.unsqueeze(1), memory).squeeze(1), weights


class Translator(nn.Module):
    """Sentences are lists of word numbers; 0 pads, 1 starts and 2 ends a sentence."""

    def __init__(self, words: int = 24, width: int = 12) -> None:
        super().__init__()
        self.source = nn.Embedding(words, width, padding_idx=0)
        self.target = nn.Embedding(words, width)
        self.encoder = nn.GRU(width, width, bidirectional=True, batch_first=True)
        self.bridge = nn.Linear(2 * width, width)
        self.attention = Attention(width)
        self.cell = nn.GRUCell(3 * width, width)
        self.words = nn.Linear(width, words)
        nn.init.normal_(self.words.weight, std=2.0)  # so that the words of an untrained model differ

    def pad(self, sentences: List[List[int]]) -> Tensor:
        longest = 0
        for sentence in sentences:
            longest = max(longest, len(sentence))
        rows: List[Tensor] = []
        for sentence in sentences:
            rows.append(torch.tensor(sentence + [0] * (longest - len(sentence)), dtype=torch.long))
        return torch.stack(rows)

    def encode(self, source: Tensor) -> Tuple[Tensor, Tensor]:
        memory, last = self.encoder(self.source(source))
        return memory, torch.tanh(self.bridge(torch.cat([last[0], last[1]], 1)))

    def step(self, words: Tensor, state: Tensor, memory: Tensor, padding: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        context, weights = self.attention(state, memory, padding)
        state = self.cell(torch.cat([self.target(words), context], 1), state)
        return self.words(state), state, weights

    def forward(self, sources: List[List[int]], targets: List[List[int]]) -> Tuple[Tensor, Tensor]:
        """The loss against the targets, each step fed with the true word, and the attention of all steps."""
        source = self.pad(sources)
        target = self.pad(targets)
        padding = source == 0
        memory, state = self.encode(source)
        words = torch.ones_like(target[:, 0])
        losses: List[Tensor] = []
        attention: List[Tensor] = []
        for t in range(target.size(1)):
            logits, state, weights = self.step(words, state, memory, padding)
            losses.append(nn.functional.cross_entropy(logits, target[:, t], ignore_index=0, reduction="none"))
            attention.append(weights)
            words = target[:, t]
        return torch.stack(losses, 1).sum(1), torch.stack(attention, 1)

    @torch.jit.export
    def translate(self, sources: List[List[int]], longest: int) -> Tuple[List[List[int]], List[float]]:
        source = self.pad(sources)
        memory, state = self.encode(source)
        results: List[List[int]] = [[1] for _ in sources]
        scores = [0.0 for _ in sources]
        ended = [False] * len(sources)
        for _ in range(longest):
            words = torch.tensor([result[-1] for result in results])
            logits, state, _ = self.step(words, state, memory, source == 0)
            best, following = torch.log_softmax(logits, 1).max(1)
            for i in range(len(results)):
                if ended[i]:
                    continue
                word = int(following[i])
                results[i].append(word)
                scores[i] += float(best[i])
                ended[i] = word == 2
            if all(ended):
                break
        return [result[1:] for result in results], scores


def sentences(*lengths: int) -> List[List[int]]:
    return [torch.randint(3, 24, (length,)).tolist() for length in lengths]


@recipe
def seq2seq() -> Sample:
    """GRU encoder, attention, GRU decoder: the loss with teacher forcing, from lists of word numbers"""
    return Sample(Translator(), [(sentences(5, 3), sentences(4, 6)), (sentences(1), sentences(3)),
                                 (sentences(2, 7, 4), sentences(1, 1, 2))])


@recipe
def seq2seq_translate() -> Sample:
    """the same model's greedy decoding: a loop over Python lists that stops when all sentences have ended"""
    return Sample(Translator(), [(sentences(5, 3), 8), (sentences(4), 6), (sentences(2, 2, 6), 12), (sentences(3), 0)],
                  method="translate")
