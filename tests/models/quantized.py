"""Quantized and sparse models."""
import warnings
from typing import Tuple

import torch
from torch import Tensor, nn

from recipe import Sample, recipe


class LstmTagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(40, 12)
        self.lstm = nn.LSTM(12, 16, num_layers=2, bidirectional=True, batch_first=True)
        self.hidden = nn.Sequential(nn.Linear(32, 24), nn.ReLU(), nn.LayerNorm(24))
        self.tags = nn.Linear(24, 7)

    def forward(self, words: Tensor) -> Tuple[Tensor, Tensor]:
        y, _ = self.lstm(self.words(words))
        scores = self.tags(self.hidden(y))
        return scores, scores.argmax(-1)


def quantize_dynamic(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    module.eval().requires_grad_(False)  # quantized layers have no gradients
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.ao.quantization will move to another package
        return torch.ao.quantization.quantize_dynamic(module, {nn.Linear, nn.LSTM, nn.GRUCell}, dtype=dtype)


@recipe
def dynamic_mlp() -> Sample:
    """linear layers, dynamically quantized to int8: packed weights in the archive"""
    module = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32, bias=False), nn.Tanh(), nn.Linear(32, 4))
    return Sample(quantize_dynamic(module, torch.qint8), [(torch.randn(rows, 16),) for rows in (4, 1, 33)])


@recipe
def dynamic_mlp_float16() -> Sample:
    """the same with weights in float16"""
    module = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    return Sample(quantize_dynamic(module, torch.float16), [(torch.randn(rows, 16),) for rows in (4, 1)])


@recipe
def dynamic_lstm() -> Sample:
    """embedding, bidirectional LSTM and linear layers, the latter two dynamically quantized to int8"""
    return Sample(quantize_dynamic(LstmTagger(), torch.qint8),
                  [(torch.randint(40, (2, 6)),), (torch.randint(40, (1, 1)),), (torch.randint(40, (3, 4)),)])


class QuantizableNet(nn.Module):
    """A residual block, pooling and a linear layer between a quantizing and a dequantizing stub."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = torch.ao.quantization.QuantStub()
        self.stem = nn.Sequential(nn.Conv2d(3, 12, 3, stride=2, padding=1), nn.BatchNorm2d(12), nn.ReLU())
        # Not three groups, with which FBGEMM reads uninitialized memory on processors without AVX-512.
        self.inner = nn.Sequential(nn.Conv2d(12, 12, 3, padding=1, groups=2), nn.BatchNorm2d(12))
        self.add = torch.ao.nn.quantized.FloatFunctional()
        self.pool = nn.MaxPool2d(2)
        self.linear = nn.Linear(12, 5)
        self.leave = torch.ao.quantization.DeQuantStub()

    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor]:
        x = self.stem(self.enter(x))
        x = self.pool(self.add.add_relu(self.inner(x), x))
        y = self.linear(x.mean((2, 3)))
        return self.leave(y), x.flatten(1)


@recipe
def static_convnet() -> Sample:
    """small convolutional network, quantized after training: fused layers, per-channel weights, a quantized output"""
    from torch.ao import quantization
    torch.backends.quantized.engine = "fbgemm"
    module = QuantizableNet()
    with torch.no_grad():
        for _ in range(3):
            module.train()(torch.randn(8, 3, 16, 16))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = quantization.fuse_modules(module.eval(), [["stem.0", "stem.1", "stem.2"], ["inner.0", "inner.1"]])
        module.qconfig = quantization.get_default_qconfig("fbgemm")
        module = quantization.prepare(module)
        module(torch.randn(16, 3, 16, 16))
        module = quantization.convert(module)
    return Sample(module, [(torch.randn(2, 3, 16, 16),), (torch.randn(1, 3, 24, 16),), (torch.randn(3, 3, 16, 16),)])


class SparseGraph(nn.Module):
    """Graph convolution (Kipf, Welling 2017): neighbors' features summed by a sparse matrix product."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.second = nn.Linear(8, 3)

    def adjacency(self, edges: Tensor, nodes: int) -> Tensor:
        both = torch.cat([edges, edges.flip(0), torch.arange(nodes).expand(2, -1)], 1)
        adjacency = torch.sparse_coo_tensor(both, torch.ones(both.size(1)), [nodes, nodes]).coalesce()
        degrees = torch.sparse.mm(adjacency, torch.ones(nodes, 1)).squeeze(1)
        rows, columns = adjacency.indices()[0], adjacency.indices()[1]
        scaled = adjacency.values() * (degrees[rows] * degrees[columns]).rsqrt()
        return torch.sparse_coo_tensor(adjacency.indices(), scaled, [nodes, nodes])

    def forward(self, x: Tensor, edges: Tensor) -> Tuple[Tensor, Tensor]:
        adjacency = self.adjacency(edges, x.size(0))
        y = torch.relu(torch.sparse.mm(adjacency, self.first(x)))
        y = torch.sparse.mm(adjacency, self.second(y))
        return y, adjacency


@recipe
def sparse_graph() -> Sample:
    """graph convolution over a sparse matrix made of edges: products, sums, a sparse output"""
    return Sample(SparseGraph(), [(torch.randn(5, 6), torch.tensor([[0, 1, 2, 0], [1, 2, 3, 4]])),
                                  (torch.randn(3, 6), torch.zeros(2, 0, dtype=torch.int64)),
                                  (torch.randn(9, 6), torch.randint(9, (2, 12)))])


class SparseLayers(nn.Module):
    """A pruned weight in compressed rows, and embeddings whose gradients are sparse."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 6, sparse=True)
        self.bags = nn.EmbeddingBag(20, 6, mode="sum", sparse=True)
        weight = torch.randn(6, 6)
        self.register_buffer("pruned", weight * (weight.abs() > 1))

    def forward(self, words: Tensor, bags: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        x = self.words(words).sum(1) + self.bags(bags)
        sparse = self.pruned.to_sparse()
        rows = self.pruned.to_sparse_csr()
        y = torch.sparse.mm(sparse, x.t()).t() + torch.mm(rows, x.detach().t()).t()
        return y, sparse.to_dense() * 2, rows.values()


@recipe
def sparse_layers() -> Sample:
    """a pruned weight in two sparse layouts, and embeddings whose gradients are sparse"""
    return Sample(SparseLayers(), [(torch.randint(20, (3, 2)), torch.randint(20, (3, 4))),
                                   (torch.randint(20, (1, 5)), torch.randint(20, (1, 1)))])
