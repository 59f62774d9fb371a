"""Networks of torch.nn's layers: recurrent, attention, embeddings, recommendation, generators."""
from typing import Dict, List, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpus.record import Example, model, scripted


class Tagger(nn.Module):
    """Words to tags by a bidirectional nn.LSTM of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(1000, 64, padding_idx=0)
        self.lstm = nn.LSTM(64, 64, num_layers=2, bidirectional=True, batch_first=True, dropout=0.2)
        self.tags = nn.Linear(128, 12)

    def forward(self, words: Tensor) -> Tensor:
        outputs, _ = self.lstm(self.words(words))
        return F.log_softmax(self.tags(outputs), dim=-1)


@model()
def lstm_tagger(batch: int) -> Example:
    return scripted(Tagger(), torch.randint(1, 1000, (batch, 30)))


class GruClassifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(1000, 64)
        self.gru = nn.GRU(64, 128, batch_first=True)
        self.norm = nn.LayerNorm(128)
        self.classes = nn.Sequential(nn.Dropout(0.3), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 5))

    def forward(self, words: Tensor, state: Optional[Tensor] = None) -> Tuple[Tensor, Tensor]:
        outputs, last = self.gru(self.words(words), state)
        outputs = self.norm(outputs)
        return self.classes(torch.cat([outputs.mean(1), outputs.amax(1)], 1)), last


@model()
def gru_classifier(batch: int) -> Example:
    return scripted(GruClassifier(), torch.randint(0, 1000, (batch, 40)))


class LanguageModel(nn.Module):
    """nn.TransformerEncoder with a causal mask and learned positions."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(1000, 128)
        self.positions = nn.Parameter(torch.randn(64, 128) * 0.02)
        layer = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.1, activation="gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 3, norm=nn.LayerNorm(128), enable_nested_tensor=False)
        self.head = nn.Linear(128, 1000, bias=False)

    def forward(self, words: Tensor) -> Tensor:
        length = words.size(1)
        mask = torch.triu(torch.full((length, length), float("-inf")), diagonal=1)
        return self.head(self.encoder(self.words(words) + self.positions[:length], mask))


@model()
def transformer_language_model(batch: int) -> Example:
    return scripted(LanguageModel(), torch.randint(0, 1000, (batch, 48)))


@model()
def transformer_encoder_layer(batch: int) -> Example:
    return scripted(nn.TransformerEncoderLayer(128, 8, 256, batch_first=True), torch.randn(batch, 50, 128))


class Translator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.transformer = nn.Transformer(64, 4, 2, 2, 128, batch_first=True)

    def forward(self, source: Tensor, target: Tensor, source_padding: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(target.size(1))
        return self.transformer(source, target, tgt_mask=mask, src_key_padding_mask=source_padding,
                                memory_key_padding_mask=source_padding)


@model()
def transformer_translator(batch: int) -> Example:
    padding = torch.zeros(batch, 24)
    padding[0, 20:] = float("-inf")
    return scripted(Translator(), torch.randn(batch, 24, 64), torch.randn(batch, 16, 64), padding)


class CrossAttention(nn.Module):
    """nn.MultiheadAttention over two sequences, with weights as a result."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(96, 6, batch_first=True, kdim=48, vdim=48)
        self.norm = nn.LayerNorm(96)
        self.gate = nn.Linear(96, 96)

    def forward(self, x: Tensor, memory: Tensor, padding: Tensor) -> Tuple[Tensor, Optional[Tensor]]:
        mixed, weights = self.attention(x, memory, memory, key_padding_mask=padding)
        return self.norm(x + torch.sigmoid(self.gate(x)) * mixed), weights


@model()
def cross_attention(batch: int) -> Example:
    padding = torch.arange(32).repeat(batch, 1) >= 28
    return scripted(CrossAttention(), torch.randn(batch, 20, 96), torch.randn(batch, 32, 48), padding)


class Dlrm(nn.Module):
    """Recommendation: bags of categories, a perceptron of numbers, products of all pairs."""

    def __init__(self, tables: int = 8, size: int = 16) -> None:
        super().__init__()
        self.bags = nn.ModuleList([nn.EmbeddingBag(500, size, mode="sum") for _ in range(tables)])
        self.bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, size), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(nn.Linear(pairs + size, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))
        rows, columns = torch.tril_indices(tables + 1, tables + 1, offset=-1)
        self.register_buffer("rows", rows)
        self.register_buffer("columns", columns)

    def forward(self, numbers: Tensor, indices: List[Tensor], offsets: List[Tensor]) -> Tensor:
        x = self.bottom(numbers)
        parts = [x]
        for at, bag in enumerate(self.bags):
            parts.append(bag(indices[at], offsets[at]))
        stacked = torch.stack(parts, dim=1)
        products = torch.bmm(stacked, stacked.transpose(1, 2))
        pairs = products[:, self.rows, self.columns]
        return torch.sigmoid(self.top(torch.cat([x, pairs], dim=1)))


@model()
def dlrm_bags(batch: int) -> Example:
    indices = [torch.randint(0, 500, (4 * batch,)) for _ in range(8)]
    offsets = [torch.arange(0, 4 * batch, 4) for _ in range(8)]
    return scripted(Dlrm(), torch.randn(batch, 13), indices, offsets)


class WideAndDeep(nn.Module):
    """Named features in a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.users = nn.Embedding(1000, 16)
        self.items = nn.Embedding(1000, 16)
        self.wide = nn.Linear(8, 1)
        self.deep = nn.Sequential(nn.Linear(40, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1))

    def forward(self, features: Dict[str, Tensor]) -> Dict[str, Tensor]:
        numbers = features["numbers"]
        joined = torch.cat([self.users(features["user"]), self.items(features["item"]), numbers], 1)
        logit = self.wide(numbers) + self.deep(joined)
        return {"logit": logit, "probability": torch.sigmoid(logit)}


@model()
def wide_and_deep(batch: int) -> Example:
    return scripted(WideAndDeep(), {"user": torch.randint(0, 1000, (batch,)), "item": torch.randint(0, 1000, (batch,)),
                                    "numbers": torch.randn(batch, 8)})


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()

        def block(inputs: int, outputs: int) -> nn.Module:
            return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU(),
                                 nn.Conv2d(outputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU())

        self.down = nn.ModuleList([block(3, 16), block(16, 32)])
        self.middle = block(32, 32)
        self.up = nn.ModuleList([block(64, 16), block(32, 16)])
        self.head = nn.Conv2d(16, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips: List[Tensor] = []
        for layer in self.down:
            x = layer(x)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        x = self.middle(x)
        for layer in self.up:
            x = F.interpolate(x, scale_factor=2.0, mode="nearest")
            x = layer(torch.cat([x, skips.pop()], 1))
        return self.head(x)


@model()
def unet(batch: int) -> Example:
    return scripted(UNet(), torch.randn(batch, 3, 32, 32))


class Autoencoder(nn.Module):
    """A variational autoencoder, without sampling in evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(196, 128), nn.ELU(), nn.Linear(128, 64), nn.ELU())
        self.mean = nn.Linear(64, 16)
        self.deviation = nn.Linear(64, 16)
        self.decoder = nn.Sequential(nn.Linear(16, 128), nn.ELU(), nn.Linear(128, 196))

    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        h = self.encoder(x.flatten(1))
        mean, log_variance = self.mean(h), self.deviation(h).clamp(-5.0, 5.0)
        z = mean
        if self.training:
            z = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
        divergence = -0.5 * (1 + log_variance - mean.pow(2) - log_variance.exp()).sum(1)
        return torch.sigmoid(self.decoder(z)), mean, divergence


@model()
def variational_autoencoder(batch: int) -> Example:
    return scripted(Autoencoder(), torch.rand(batch, 1, 14, 14))


class TemporalConvolutions(nn.Module):
    """Dilated causal convolutions with gates, as in WaveNet."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, 32, 1)
        self.gates = nn.ModuleList([nn.Conv1d(32, 64, 2, dilation=2 ** each) for each in range(6)])
        self.skips = nn.ModuleList([nn.Conv1d(32, 32, 1) for _ in range(6)])
        self.last = nn.Conv1d(32, 10, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        total = torch.zeros_like(x)
        for index, (gate, skip) in enumerate(zip(self.gates, self.skips)):
            signal, control = gate(F.pad(x, [1 << index, 0])).chunk(2, dim=1)
            out = skip(torch.tanh(signal) * torch.sigmoid(control))
            total = total + out
            x = x + out
        return self.last(F.relu(total))


@model()
def temporal_convolutions(batch: int) -> Example:
    return scripted(TemporalConvolutions(), torch.randn(batch, 1, 128))


class Perceptron(nn.Module):
    """A residual perceptron over tables of numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(30, 128)
        self.blocks = nn.ModuleList([nn.Sequential(nn.LayerNorm(128), nn.Linear(128, 256), nn.GELU(), nn.Dropout(0.1),
                                                   nn.Linear(256, 128)) for _ in range(4)])
        self.last = nn.Linear(128, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x)
        return self.last(x).squeeze(-1)


@model()
def residual_perceptron(batch: int) -> Example:
    return scripted(Perceptron(), torch.randn(16 * batch, 30))


class GraphNetwork(nn.Module):
    """Messages along edges, summed by index_add: three rounds of a graph network."""

    def __init__(self) -> None:
        super().__init__()
        self.message = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32))
        self.update = nn.GRUCell(32, 32)
        self.read = nn.Linear(32, 1)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        source, target = edges[0], edges[1]
        for _ in range(3):
            messages = self.message(torch.cat([nodes[source], nodes.index_select(0, target)], 1))
            total = torch.zeros_like(nodes).index_add(0, target, messages)
            nodes = self.update(total, nodes)
        return self.read(nodes).mean()


@model()
def graph_network(batch: int) -> Example:
    return scripted(GraphNetwork(), torch.randn(20 * batch, 32), torch.randint(0, 20 * batch, (2, 60 * batch)))
