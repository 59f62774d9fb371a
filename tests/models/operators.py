"""The operator suite: one small method per operator, and their cases, in one file of the second CASES form.

`operators.cases.pt` is model and cases at once. Its attributes are parallel lists, one entry per case:

    names, methods     List[str]            a case's own name, and the method that it calls
    inputs             List[List[Tensor]]   the arguments
    needs_grad         List[List[bool]]     which of them require grad for the call
    outputs            List[List[Tensor]]   what came back, flattened depth first; numbers as 0-d tensors
                                            (int64, float64, bool)
    grads              List[List[Tensor]]   one per input that requires grad, zeros where it doesn't take part: of the
                                            sum of all elements of all floating outputs that require grad; [] = none
    rtol, atol         List[float]

Gradients of a plain sum are blind where an operator's outputs add up to a constant (softmax, layer_norm): such methods
multiply by another input first.
"""
import copy
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

import torch
from torch import Tensor

from cases import (BOOL, FLOAT, STRING, TENSOR, detached, differentiable, empty_module, gradients, list_of,
                   set_attributes, tensors_in)

NAME = "operators.cases.pt"
ABOUT = "one method per operator, with values and gradients (second CASES form)"


@dataclass(frozen=True)
class Argument:
    make: Callable[[], Tensor]
    needs_grad: bool = False


@dataclass(frozen=True)
class Operator:
    """A method of the arguments x, y, z, w, v (as many as a case gives), and its cases."""

    name: str
    body: str
    cases: tuple[list[Argument], ...]
    rtol: float
    atol: float

    def source(self) -> str:
        """`body` is an expression, or statements that end in a return."""
        statements = self.body.split("\n") if "return " in self.body else [f"return {self.body}"]
        parameters = ", ".join(["self", *"xyzwv"[:len(self.cases[0])]])
        return "\n    ".join([f"def {self.name}({parameters}):", *statements]) + "\n"


def op(name: str, body: str, *cases: list[Argument], rtol: float = 1e-4, atol: float = 1e-5) -> Operator:
    return Operator(name, body, cases, rtol, atol)


def f(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = True) -> Argument:
    """Normal numbers that require grad."""
    return Argument(lambda: torch.randn(shape).to(dtype), grad)


def p(*shape: int, low: float = 0.2, high: float = 2.0) -> Argument:
    """Positive numbers, away from zero, that require grad."""
    return Argument(lambda: torch.empty(shape).uniform_(low, high), True)


def i(*shape: int, low: int = 0, high: int = 10) -> Argument:
    """int64."""
    return Argument(lambda: torch.randint(low, high, shape))


def b(*shape: int) -> Argument:
    """bool."""
    return Argument(lambda: torch.rand(shape) < 0.5)


def transposed(*shape: int) -> Argument:
    """As f, with its last two dimensions stored the other way round."""
    return Argument(lambda: torch.randn(*shape[:-2], shape[-1], shape[-2]).transpose(-1, -2), True)


def strided(*shape: int) -> Argument:
    """As f, every second column of a wider tensor."""
    return Argument(lambda: torch.randn(*shape[:-1], 2 * shape[-1])[..., ::2], True)


def apart(*shape: int) -> Argument:
    """As f, all elements distinct by at least 0.1 and none near zero: order and sign are safe from rounding."""
    def make() -> Tensor:
        count = torch.Size(shape).numel()
        return ((torch.randperm(count) - count // 2) * 0.1 + 0.05).view(shape)
    return Argument(make, True)


def values(*numbers: float, dtype: torch.dtype = torch.float32, grad: bool = False) -> Argument:
    return Argument(lambda: torch.tensor(numbers, dtype=dtype), grad)


def scalar(number: float) -> Argument:
    """0-d, int64 or float32."""
    return Argument(lambda: torch.tensor(number))


def definite(size: int) -> Argument:
    """A well-conditioned symmetric positive definite matrix."""
    def make() -> Tensor:
        a = torch.randn(size, size)
        return a @ a.t() / size + torch.eye(size)
    return Argument(make, True)


INF, NAN = float("inf"), float("nan")

POINTWISE = [
    op("add", "x + y", [f(3, 4), f(3, 4)], [f(3, 4), f(4)], [f(2, 1, 4), f(3, 1)], [f(), f(2)], [f(0, 3), f(3)],
       [transposed(3, 4), strided(3, 4)], [values(INF, NAN, 1.0), values(-INF, 1.0, NAN)]),
    op("add_alpha", "torch.add(x, y, alpha=2.5)", [f(3, 4), f(4)]),
    op("sub", "torch.sub(x, y, alpha=0.5) - (1.0 - x)", [f(3, 4), f(3, 1)], [f(5), f()]),
    op("mul", "x * y * 3", [f(3, 4), f(3, 4)], [f(2, 3, 4), f(3, 1)], [f(4), i(4)], [f(2), b(2)]),
    op("div", "x / y + 2.0 / y", [f(3, 4), p(4)], [f(3), p()]),
    op("div_rounded", "torch.div(x, y, rounding_mode='floor'), torch.div(x, y, rounding_mode='trunc')",
       [values(7.5, -7.5, 3.25), values(2.0, 2.0, -1.5)], [i(5, low=-9), i(5, low=1)]),
    op("remainder", "x % 3, torch.fmod(x, 3.0), x // 2", [i(6, low=-9)], [values(-7.5, 7.5, 0.25)]),
    op("pow", "x ** 2, x ** 3, x ** 0.5, x ** -1, 2.0 ** x", [p(3, 4)]),
    op("pow_tensor", "torch.pow(x, y)", [p(3, 4), f(4)]),
    op("square_root", "x.sqrt(), x.rsqrt(), x.reciprocal(), x.square()", [p(3, 5)]),
    op("exponential", "x.exp(), x.exp2(), x.expm1()", [f(3, 5)]),
    op("logarithm", "x.log(), x.log2(), x.log10(), x.log1p()", [p(3, 5)]),
    op("trigonometric", "x.sin(), x.cos(), x.tan(), (x * 0.3).asin(), (x * 0.3).acos(), x.atan()", [f(2, 5)]),
    op("hyperbolic", "x.sinh(), x.cosh(), x.tanh(), x.asinh(), (x.abs() + 1.5).acosh(), (x * 0.3).atanh()", [f(2, 3)]),
    op("atan2", "torch.atan2(x, y)", [f(3, 4), f(4)]),
    op("error_function", "x.erf(), x.erfc(), torch.special.ndtr(x), torch.lgamma(x.abs() + 1.0)", [f(3, 4)]),
    op("absolute", "x.abs(), -x, x.sign()", [apart(3, 4)], [i(4, low=-5)]),
    op("rounding", "x.floor(), x.ceil(), x.round(), x.trunc(), x.frac()", [values(-1.7, -0.5, 0.2, 1.5, 2.5)]),
    op("sigmoid", "x.sigmoid() * y", [f(3, 4), f(4)], [f(70), f(70)]),
    op("relu", "torch.relu(x), torch.nn.functional.relu6(x * 8.0)", [apart(3, 4)], [apart(0, 2)]),
    op("leaky_relu", "torch.nn.functional.leaky_relu(x, 0.1), torch.nn.functional.elu(x, 0.5)", [apart(3, 4)]),
    op("prelu", "torch.prelu(x, y)", [apart(2, 3, 4), p(3)], [apart(2, 3), p(1)]),
    op("silu", "torch.nn.functional.silu(x), torch.nn.functional.mish(x)", [f(3, 4)], [f(33)]),
    op("gelu", "torch.nn.functional.gelu(x), torch.nn.functional.gelu(x, approximate='tanh')", [f(3, 4)], [f(33)]),
    op("softplus", "torch.nn.functional.softplus(x, 2.0, 10.0), torch.nn.functional.logsigmoid(x)", [f(3, 4)]),
    op("hard", "torch.nn.functional.hardtanh(x, -0.5, 0.5), torch.nn.functional.hardswish(x), "
       "torch.nn.functional.hardsigmoid(x)", [apart(4, 5)]),
    op("glu", "torch.nn.functional.glu(x, 1)", [f(3, 8)]),
    op("threshold", "torch.threshold(x, 0.2, -3.0)", [apart(3, 5)]),
    op("clamp", "x.clamp(-0.3, 0.3), x.clamp(min=0.0), x.clamp(max=0.2)", [apart(4, 4)]),
    op("clamp_tensor", "torch.clamp(x, y, z)", [apart(3, 4), values(-0.33), values(0.41)]),
    op("maximum", "torch.maximum(x, y), torch.minimum(x, y)", [apart(3, 4), values(0.01)],
       [values(1.0, NAN, 3.0), values(2.0, 1.0, NAN)]),
    op("lerp", "torch.lerp(x, y, 0.3), torch.lerp(x, y, z)", [f(3, 4), f(4), p(3, 1)]),
    op("addcmul", "torch.addcmul(x, y, z, value=0.5), torch.addcdiv(x, y, z, value=2.0)", [f(3, 4), f(4), p(3, 1)]),
    op("where", "torch.where(x, y, z)", [b(3, 4), f(3, 4), f(4)], [b(3, 1), f(), f(4)]),
    op("where_scalar", "torch.where(x > 0, x, 0.5) + torch.where(x < 0, 1.0, x)", [apart(3, 4)]),
    op("masked_fill", "x.masked_fill(y, -1.0)", [f(3, 4), b(3, 4)], [f(2, 3, 4), b(4)]),
    op("nan_to_num", "torch.nan_to_num(x, 0.5), x.isnan(), x.isinf(), torch.isfinite(x)",
       [values(1.0, NAN, INF, -INF)]),
    op("bitwise", "x & y, x | y, x ^ y, ~x, x << 1, x >> 1", [i(5), i(5)]),
    op("logical", "torch.logical_and(x, y), torch.logical_or(x, y), torch.logical_not(x), torch.logical_xor(x, y)",
       [b(6), b(6)], [i(6, high=2), b(6)]),
    op("compare", "x == y, x != y, x < y, x <= y, x > y, x >= y", [i(3, 4, high=3), i(4, high=3)],
       [values(1.0, NAN), values(1.0, NAN)]),
    op("compare_scalar", "x == 2, x > 1.5, (x < 2).to(torch.float32) * 3", [i(3, 4)]),
    op("pointwise_chain", "y = torch.tanh(x) * 0.5 + 0.5\nz = y * torch.sigmoid(x) - x / (1.0 + x * x)\n"
       "return torch.exp(-z.abs()) * y, z", [f(5, 7)], [f(1)], [f(0)], [transposed(7, 5)], [strided(3, 33)]),
]

CASTS = [
    op("cast_half", "x.half(), x.to(torch.float16).float(), x.to(torch.bfloat16)", [f(3, 4)], rtol=1e-2),
    op("cast_double", "x.double() * 2.0, x.to(torch.float64).float()", [f(3, 4)]),
    op("cast_integer", "(x * 10).to(torch.int64), (x * 10).int(), x.to(torch.bool)", [values(-1.26, 0.0, 0.87, 2.04)]),
    op("cast_from_integer", "x.float() / 2, x.double(), x.to(torch.bool), x.to(torch.uint8)", [i(5)], [b(5)]),
    op("type_as", "x.type_as(y), y.to(x)", [i(3), f(3)]),
    op("promote", "x + y, x * 2.5, x / 2, y * 2, torch.add(x, 1.5)", [i(3), f(3)], [b(3), i(3)],
       [f(3), f(3, dtype=torch.float64)]),
    op("low_precision", "torch.tanh(x) * y + x", [f(4, 5, dtype=torch.bfloat16), f(5, dtype=torch.bfloat16)],
       [f(4, 5, dtype=torch.float16), f(5, dtype=torch.float16)], rtol=2e-2, atol=1e-2),
    op("double_precision", "torch.tanh(x) * y + x.exp()", [f(4, 5, dtype=torch.float64), f(5, dtype=torch.float64)],
       rtol=1e-10, atol=1e-12),
    op("complex_numbers", "z = torch.complex(x, y)\nreturn torch.view_as_real(z * z.conj() + z.exp()), z.abs()",
       [f(3), f(3)]),
    op("item", "float(x) * 2.5, int(y) // 2, x.item()", [scalar(1.5), scalar(7)], [scalar(-1.5), scalar(-7)]),
]

REDUCTIONS = [
    op("sum", "x.sum(), x.sum(0), x.sum([0, 1], keepdim=True)", [f(3, 4)], [f(2, 3, 4)], [i(3, 4)], [f(0, 3)],
       [transposed(5, 6)]),
    op("mean", "x.mean(), x.mean(-1), x.mean([0], keepdim=True)", [f(3, 4)], [f(2, 3, 4)]),
    op("prod", "x.prod(), x.prod(1)", [p(3, 4)]),
    op("variance", "x.var(1), x.std(0, unbiased=False), x.var([0, 1], keepdim=True)", [f(4, 5)]),
    op("norm", "x.norm(), x.norm(2, 1), torch.linalg.vector_norm(x, 1.0, [0])", [apart(3, 4)]),
    op("maximum_of", "x.max(), x.min(), x.amax(1), x.amin([0])", [apart(3, 4)], [i(3, 4)]),
    op("maximum_at", "a, at = x.max(1)\nc, least = x.min(0, keepdim=True)\nreturn a, at, c, least", [apart(3, 4)]),
    op("argmax", "x.argmax(), x.argmax(1), x.argmin(0, keepdim=True)", [apart(3, 4)]),
    op("logsumexp", "torch.logsumexp(x, [1])", [f(3, 4)], [f(2, 3, 5)]),
    op("any_all", "x.any(), x.all(), x.any(0), x.all(1)", [b(3, 4)], [i(3, 4, high=2)]),
    op("count_nonzero", "x.count_nonzero(), (x > 1).sum(1)", [i(3, 4, high=3)]),
    op("cumsum", "x.cumsum(0), x.cumsum(-1)", [f(3, 4)], [i(3, 4)], [f(0, 2)]),
    op("cumprod", "x.cumprod(1), x.logcumsumexp(0)", [p(3, 4)]),
    op("cummax", "a, at = x.cummax(1)\nreturn a, at", [apart(3, 4)]),
    op("median", "a, at = x.median(1)\nreturn x.median(), a, at", [apart(3, 5)]),
    op("quantile", "torch.quantile(x, 0.25, 1)", [apart(3, 5)]),
]

VIEWS = [
    op("view", "x.view(-1), x.view(2, -1) * 2, x.reshape(4, 3)", [f(3, 4)]),
    op("reshape_copy", "x.reshape(-1) * y", [transposed(3, 4), f(12)]),
    op("transpose", "x.transpose(0, 1), x.t() * 2, x.permute(1, 0).contiguous()", [f(3, 4)], [transposed(3, 4)]),
    op("permute", "x.permute(2, 0, 1), x.movedim(0, -1), x.swapaxes(0, 2)", [f(2, 3, 4)]),
    op("flatten", "x.flatten(1), torch.flatten(x), x.unflatten(1, [3, 1])", [f(2, 3, 4)]),
    op("squeeze", "x.squeeze(), x.squeeze(1), x.unsqueeze(0), x.unsqueeze(-1)", [f(3, 1, 4)]),
    op("expand", "x.expand(2, 3, 4), x.expand(-1, 4), x.expand_as(y) * y", [f(3, 1), f(2, 3, 4)]),
    op("repeat", "x.repeat(2, 1), x.repeat(3, 1, 2), x.tile([2])", [f(2, 3)]),
    op("repeat_interleave", "x.repeat_interleave(2, 0), x.repeat_interleave(3)", [f(2, 3)]),
    op("narrow", "x.narrow(1, 1, 2), x[:, 1:3], x[::2], x[..., -1], x[1:, :-1]", [f(3, 4)], [f(5, 6)]),
    op("select", "x[0], x.select(1, -1), x[1, 2], x[:, None]", [f(3, 4)]),
    op("unbind", "a, c = x.unbind(0)\nreturn a * 2, c * a", [f(2, 3)]),
    op("chunk", "a, c, d = x.chunk(3, 1)\nreturn a + c, d * a", [f(2, 6)], [f(2, 3)]),
    op("split", "x.split(2, 0), x.split([1, 3], 1)", [f(5, 4)]),
    op("diagonal", "x.diagonal(), x.diagonal(1), torch.diag(x) * 2, torch.diag_embed(x)", [f(4, 4)]),
    op("triangle", "x.tril(), x.triu(1)", [f(4, 5)], [f(2, 3, 3)]),
    op("unfold", "x.unfold(0, 3, 2)", [f(9)], [f(7, 2)]),
    op("as_strided", "x.as_strided([2, 3], [1, 2], 1)", [f(3, 4)]),
    op("flip", "x.flip([0]), x.flip([0, 1]), x.roll(1, 0), x.rot90(1, [0, 1])", [f(3, 4)]),
    op("sizes", "x.size(0), x.dim(), x.numel(), x.stride(0), x.view(x.size(1), -1)", [f(3, 4)], [f(1, 5)]),
]

BUILDING = [
    op("cat", "torch.cat([x, y], 0), torch.cat([x, y, x], -2)", [f(2, 3), f(4, 3)], [f(0, 3), f(1, 3)]),
    op("cat_columns", "torch.cat([x, y * 2], 1)", [f(2, 3), transposed(2, 4)], [i(2, 1), f(2, 3)]),
    op("stack", "torch.stack([x, y]), torch.stack([x, y], -1), torch.hstack([x, y]), torch.vstack([x, y])",
       [f(2, 3), f(2, 3)]),
    op("fill", "torch.zeros_like(x) + torch.ones([2, 1]), torch.full([3], 2.5), torch.full_like(x, 7.0), x.new_ones(2)",
       [f(2, 3)]),
    op("range", "torch.arange(5), torch.arange(1, 6, 2), torch.linspace(0.0, 1.0, 5) * x, torch.eye(3)", [f(5)]),
    op("meshgrid", "torch.meshgrid([x, y], indexing='ij')", [f(3), f(2)]),
    op("one_hot", "torch.nn.functional.one_hot(x, 10)", [i(2, 3)]),
    op("pad", "torch.nn.functional.pad(x, [1, 2], value=0.5), torch.nn.functional.pad(x, [1, 1], mode='reflect')",
       [f(2, 3, 4)]),
    op("clone", "x.clone() * 2, x.contiguous(), x.detach() + x", [f(3, 4)], [transposed(3, 4)]),
]

INDEXING = [
    op("index", "x[y], x[:, y], x[y, y]", [f(4, 4), values(0, 3, 1, 3, dtype=torch.int64)]),
    op("index_mask", "x[y], x.masked_select(y)", [f(3, 4), b(3, 4)]),
    op("index_broadcast", "x[y[:, None], z[None, :]]", [f(4, 5), i(3, high=4), i(2, high=5)]),
    op("index_put", "z = x.clone()\nz[y] = 1.5\nz[:, 0] += 2.0\nreturn z", [f(4, 3), i(2, high=4)]),
    op("index_put_accumulate", "x.index_put([y], z, accumulate=True)",
       [f(4, 3), values(0, 2, 0, dtype=torch.int64), f(3, 3)]),
    op("index_select", "x.index_select(0, y), x.index_select(1, y)", [f(4, 4), i(5, high=4)]),
    op("index_add", "x.index_add(0, y, z), x.index_fill(0, y, 3.0)", [f(4, 3), i(3, high=4), f(3, 3)]),
    op("gather", "x.gather(1, y), torch.take_along_dim(x, y, 1)", [f(3, 5), i(3, 4, high=5)]),
    op("scatter", "x.scatter(1, y, 2.0), x.scatter_add(1, y, z)", [f(3, 5), i(3, 4, high=5), f(3, 4)]),
    op("scatter_reduce", "x.scatter_reduce(0, y, z, 'sum'), x.scatter_reduce(0, y, z, 'mean')",
       [f(4), i(6, high=4), f(6)]),
    op("take", "x.take(y), x.view(-1)[y]", [f(3, 4), i(5, high=12)]),
    op("nonzero", "x.nonzero(), torch.argwhere(x > 0)", [i(3, 4, high=2)]),
    op("embedding", "torch.nn.functional.embedding(x, y), torch.nn.functional.embedding(x, y, padding_idx=0)",
       [i(2, 3, high=6), f(6, 4)], [i(0, high=6), f(6, 4)]),
    op("embedding_bag", "torch.nn.functional.embedding_bag(x, y, z, mode='sum')",
       [i(6, high=5), f(5, 3), values(0, 2, 2, dtype=torch.int64)]),
    op("sort", "a, at = x.sort(1)\nc, there = x.sort(0, descending=True)\nreturn a, at, c * 2, there", [apart(3, 4)]),
    op("argsort", "x.argsort(1), x.argsort(0, descending=True)", [apart(4, 5)]),
    op("topk", "a, at = x.topk(2, 1)\nc, least = x.topk(1, 0, largest=False)\nreturn a, at, c, least", [apart(3, 5)]),
    op("kth_value", "a, at = x.kthvalue(2, 1)\nreturn a, at", [apart(3, 5)]),
    op("unique", "torch.unique(x), torch.bincount(x), torch.searchsorted(torch.arange(0, 20, 2), x)", [i(8)]),
    op("bucketize", "torch.bucketize(x, y), torch.isin(x, y)", [values(0.5, 2.5, 7.0), values(1.0, 2.0, 3.0)]),
]

LINEAR_ALGEBRA = [
    op("mm", "torch.mm(x, y)", [f(3, 4), f(4, 5)], [transposed(3, 4), f(4, 1)], [f(0, 4), f(4, 2)]),
    op("matmul", "x @ y", [f(3, 4), f(4)], [f(4), f(4, 2)], [f(5), f(5)], [f(2, 3, 4), f(4, 5)],
       [f(2, 1, 3, 4), f(3, 4, 2)]),
    op("bmm", "torch.bmm(x, y)", [f(2, 3, 4), f(2, 4, 5)]),
    op("addmm", "torch.addmm(x, y, z), torch.addmm(x, y, z, beta=0.5, alpha=2.0)", [f(5), f(3, 4), f(4, 5)]),
    op("baddbmm", "torch.baddbmm(x, y, z, beta=0.5)", [f(2, 3, 5), f(2, 3, 4), f(2, 4, 5)]),
    op("linear", "torch.nn.functional.linear(x, y, z)", [f(3, 4), f(5, 4), f(5)], [f(2, 3, 4), f(5, 4), f(5)],
       [f(4), f(5, 4), f(5)]),
    op("vectors", "torch.mv(x, y), torch.dot(y, y), torch.outer(y, y), torch.addmv(x[:, 0], x, y)", [f(3, 4), f(4)]),
    op("bilinear", "torch.nn.functional.bilinear(x, y, z)", [f(3, 4), f(3, 5), f(2, 4, 5)]),
    op("einsum", "torch.einsum('bij,bjk->bik', [x, y]), torch.einsum('bij->bj', [x])", [f(2, 3, 4), f(2, 4, 5)]),
    op("tensordot", "torch.tensordot(x, y, [[1], [0]]), torch.kron(x, y)", [f(3, 4), f(4, 2)]),
    op("matmul_tree", "torch.mm(x, y) + torch.mm(x, z) + torch.mm(x + 1.0, y)", [f(3, 4), f(4, 5), f(4, 5)]),
    op("inverse", "torch.inverse(x), torch.linalg.det(x), torch.logdet(x)", [definite(4)], rtol=1e-3, atol=1e-4),
    op("cholesky", "torch.linalg.cholesky(x)", [definite(4)], rtol=1e-3, atol=1e-4),
    op("solve", "torch.linalg.solve(x, y)", [definite(4), f(4, 2)], rtol=1e-3, atol=1e-4),
    op("cross", "torch.cross(x, y, 1), torch.trace(x), torch.cdist(x, y)", [f(3, 3), f(3, 3)]),
    op("cosine_similarity", "torch.nn.functional.cosine_similarity(x, y, 1)", [f(3, 4), f(3, 4)]),
]

NORMALISATION = [
    op("softmax", "torch.softmax(x, 1) * y, torch.softmax(x, 0) * y", [f(3, 4), f(3, 4)], [f(1, 70), f(1, 70)]),
    op("softmax_inner", "torch.softmax(x, 1) * y", [f(2, 3, 4), f(2, 3, 4)]),
    op("softmax_masked", "torch.softmax(x.masked_fill(y, -10000.0), -1) * x", [f(2, 3, 4), b(2, 3, 4)]),
    op("log_softmax", "torch.log_softmax(x, -1) * y", [f(3, 4), f(3, 4)]),
    op("layer_norm", "torch.nn.functional.layer_norm(x, [x.size(-1)], y, z) * w",
       [f(3, 8), f(8), f(8), f(3, 8)], [f(2, 3, 40), f(40), f(40), f(40)]),
    op("layer_norm_plain", "torch.nn.functional.layer_norm(x, [3, 4]) * y", [f(2, 3, 4), f(4)]),
    op("group_norm", "torch.nn.functional.group_norm(x, 2, y, z) * x", [f(2, 4, 5), f(4), f(4)]),
    op("batch_norm_train", "torch.nn.functional.batch_norm(x, y, z, training=True, momentum=0.2) * x, y, z",
       [f(5, 3), f(3, grad=False), values(1.0, 0.5, 2.0)], [f(2, 3, 4, 4), f(3, grad=False), values(1.0, 0.5, 2.0)]),
    op("batch_norm_eval", "torch.nn.functional.batch_norm(x, y, z, w, v)",
       [f(5, 3), f(3, grad=False), values(1.0, 0.5, 2.0), f(3), f(3)],
       [f(2, 3, 4, 4), f(3, grad=False), values(1.0, 0.5, 2.0), f(3), f(3)]),
    op("instance_norm", "torch.nn.functional.instance_norm(x, None, None, y, z) * x", [f(2, 3, 6), f(3), f(3)]),
    op("rms_norm", "torch.rms_norm(x, [x.size(-1)], y) * x", [f(3, 8), f(8)]),
    op("normalize", "torch.nn.functional.normalize(x, 2.0, 1) * y", [f(3, 4), f(4)]),
    op("attention", "torch.nn.functional.scaled_dot_product_attention(x, y, z), "
       "torch.nn.functional.scaled_dot_product_attention(x, y, z, is_causal=True)",
       [f(2, 2, 5, 8), f(2, 2, 5, 8), f(2, 2, 5, 8)]),
    op("attention_masked", "torch.nn.functional.scaled_dot_product_attention(x, y, z, attn_mask=w)",
       [f(2, 2, 3, 8), f(2, 2, 5, 8), f(2, 2, 5, 8), f(3, 5, grad=False)]),
]

LOSSES = [
    op("mse_loss", "torch.nn.functional.mse_loss(x, y), torch.nn.functional.mse_loss(x, y, reduction='none')",
       [f(3, 4), f(3, 4)]),
    op("l1_loss", "torch.nn.functional.l1_loss(x, y), torch.nn.functional.smooth_l1_loss(x, y, beta=0.5), "
       "torch.nn.functional.huber_loss(x, y, reduction='sum')",
       [apart(3, 4), Argument(lambda: torch.full((3, 4), 0.02))]),
    op("nll_loss", "torch.nn.functional.nll_loss(torch.log_softmax(x, 1), y)", [f(4, 5), i(4, high=5)]),
    op("cross_entropy", "torch.nn.functional.cross_entropy(x, y), "
       "torch.nn.functional.cross_entropy(x, y, label_smoothing=0.1, ignore_index=1)",
       [f(4, 5), values(0, 2, 4, 1, dtype=torch.int64)], [f(2, 5, 3), i(2, 3, low=2, high=5)]),
    op("binary_cross_entropy", "torch.nn.functional.binary_cross_entropy_with_logits(x, y), "
       "torch.nn.functional.binary_cross_entropy(torch.sigmoid(x), y)", [f(3, 4), p(3, 4, low=0.0, high=1.0)]),
    op("kl_div", "torch.nn.functional.kl_div(torch.log_softmax(x, 1), torch.softmax(y, 1), reduction='batchmean')",
       [f(3, 4), f(3, 4)]),
    op("cosine_loss", "torch.nn.functional.cosine_embedding_loss(x, y, z)", [f(3, 4), f(3, 4), values(1.0, -1.0, 1.0)]),
]

CONVOLUTION = [
    op("conv1d", "torch.conv1d(x, y, z, padding=1)", [f(2, 3, 8), f(4, 3, 3), f(4)]),
    op("conv2d", "torch.conv2d(x, y, z, padding=1), torch.conv2d(x, y, stride=2)",
       [f(2, 3, 6, 6), f(4, 3, 3, 3), f(4)], [f(1, 3, 9, 5), f(4, 3, 3, 3), f(4)], rtol=1e-3, atol=1e-4),
    op("conv2d_grouped", "torch.conv2d(x, y, None, dilation=2, groups=2)", [f(2, 4, 7, 7), f(6, 2, 3, 3)],
       rtol=1e-3, atol=1e-4),
    op("conv2d_depthwise", "torch.conv2d(x, y, None, 1, 1, 1, 4)", [f(1, 4, 5, 5), f(4, 1, 3, 3)],
       rtol=1e-3, atol=1e-4),
    op("conv3d", "torch.conv3d(x, y, None, padding=1)", [f(1, 2, 4, 4, 4), f(3, 2, 3, 3, 3)], rtol=1e-3, atol=1e-4),
    op("conv_transpose2d", "torch.conv_transpose2d(x, y, z, stride=2, padding=1, output_padding=1)",
       [f(2, 3, 4, 4), f(3, 4, 3, 3), f(4)], rtol=1e-3, atol=1e-4),
    op("max_pool2d", "torch.max_pool2d(x, [2, 2]), torch.max_pool2d(x, 3, 2, 1)", [apart(2, 3, 6, 6)]),
    op("max_pool_at", "a, at = torch.nn.functional.max_pool2d_with_indices(x, [2, 2])\nreturn a, at",
       [apart(1, 2, 4, 6)]),
    op("avg_pool2d", "torch.nn.functional.avg_pool2d(x, 2), "
       "torch.nn.functional.avg_pool2d(x, 3, 2, 1, count_include_pad=False)", [f(2, 3, 6, 6)]),
    op("pool1d", "torch.max_pool1d(x, 2), torch.avg_pool1d(x, 2)", [apart(2, 3, 8)]),
    op("adaptive_pool", "torch.adaptive_avg_pool1d(x[0], 3), torch.nn.functional.adaptive_avg_pool2d(x, [2, 3]), "
       "torch.nn.functional.adaptive_max_pool2d(x, [2, 2])", [apart(2, 3, 5, 7)]),
    op("interpolate", "torch.nn.functional.interpolate(x, scale_factor=2.0, mode='nearest'), "
       "torch.nn.functional.interpolate(x, size=[5, 7], mode='bilinear', align_corners=False)", [f(1, 2, 3, 4)]),
    op("interpolate_cubic", "torch.nn.functional.interpolate(x, size=[6, 6], mode='bicubic', align_corners=True)",
       [f(1, 2, 3, 4)]),
    op("pixel_shuffle", "torch.pixel_shuffle(x, 2), torch.pixel_unshuffle(x, 2)", [f(1, 4, 4, 4)]),
    op("unfold_image", "torch.nn.functional.unfold(x, [2, 2], stride=[2, 2])", [f(1, 2, 4, 4)]),
    op("grid_sample", "torch.nn.functional.grid_sample(x, torch.tanh(y), align_corners=False)",
       [f(1, 2, 4, 4), f(1, 3, 3, 2)], rtol=1e-3, atol=1e-4),
]

INPLACE = [
    op("inplace_pointwise", "z = x.clone()\nz.add_(y).mul_(2.0).sigmoid_()\nreturn z, (z - 0.4).relu_()",
       [f(3, 4), f(4)]),
    op("inplace_view", "z = x * 1.0\nz[:, 1].mul_(3.0)\nz[0] += y\nz.t()[0].neg_()\nreturn z", [f(3, 4), f(4)]),
    op("inplace_input", "y = x[0]\nx.add_(1.0)\nx[:, ::2] = 0.0\nreturn x, y", [f(3, 4, grad=False)],
       [Argument(lambda: torch.randn(4, 3).t())]),
    op("inplace_copy", "z = torch.empty_like(x)\nz.copy_(y)\nz[1:].copy_(x[:-1])\nreturn z", [f(3, 4), f(4)]),
    op("inplace_fill", "z = x.clone()\nz[0].zero_()\nz[1].fill_(2.0)\nz.masked_fill_(y, 0.5).clamp_(-1, 1)\nreturn z",
       [apart(3, 4), b(3, 4)]),
    op("inplace_scatter", "z = x.clone()\nz.scatter_(1, y, 0.0)\nz.index_add_(0, y[:, 0], x)\nreturn z",
       [f(3, 5), i(3, 2, high=3)]),
    op("out_argument", "z = torch.empty_like(x)\ntorch.add(x, y, out=z)\ntorch.exp(z, out=z)\nreturn z",
       [f(3, 4, grad=False), f(4, grad=False)]),
]

OPERATORS = [*POINTWISE, *CASTS, *REDUCTIONS, *VIEWS, *BUILDING, *INDEXING, *LINEAR_ALGEBRA, *NORMALISATION, *LOSSES,
             *CONVOLUTION, *INPLACE]


def flattened(value: Any) -> list[Tensor]:
    """The leaves of a nest of lists and tuples, depth first, with numbers made tensors."""
    if isinstance(value, (list, tuple)):
        return [leaf for element in value for leaf in flattened(element)]
    if isinstance(value, Tensor):
        return [value]
    dtypes = {bool: torch.bool, int: torch.int64, float: torch.float64}
    return [torch.tensor(value, dtype=dtypes[type(value)])]


def run_operator(module: torch.jit.ScriptModule, method: str, inputs: list[Tensor], needs_grad: list[bool],
                 optimized: bool = False) -> tuple[list[Tensor], list[Tensor]]:
    """Outputs and gradients of one case, as the file's format defines them."""
    arguments = [x.requires_grad_(needed) for x, needed in zip(copy.deepcopy(inputs), needs_grad)]
    with torch.jit.optimized_execution(optimized):
        outputs = flattened(module._c._get_method(method)(*arguments))
    wanted = [x for x in arguments if x.requires_grad]
    traced = differentiable(outputs)
    if not wanted or not traced:
        return outputs, []
    return outputs, gradients(sum(output.sum() for output in traced), wanted)


def write_operators(directory: Path) -> None:
    suite = empty_module("Operators")
    for operator in OPERATORS:
        suite.define(operator.source())

    columns: dict[str, list] = {name: [] for name in
                                ("names", "methods", "inputs", "needs_grad", "outputs", "grads", "rtol", "atol")}
    for operator in OPERATORS:
        torch.manual_seed(zlib.crc32(operator.name.encode()))  # so that a new row leaves the others' numbers alone
        for index, case in enumerate(operator.cases):
            inputs = [argument.make() for argument in case]
            # Integers can't require grad, whatever the row's other cases do.
            needs_grad = [argument.needs_grad and x.is_floating_point() for argument, x in zip(case, inputs)]
            outputs, grads = run_operator(suite, operator.name, inputs, needs_grad)
            row = {"names": operator.name if len(operator.cases) == 1 else f"{operator.name}/{index}",
                   "methods": operator.name, "inputs": inputs, "needs_grad": needs_grad, "outputs": detached(outputs),
                   "grads": grads, "rtol": operator.rtol, "atol": operator.atol}
            for name, value in row.items():
                columns[name].append(value)

    types = {"names": STRING, "methods": STRING, "inputs": list_of(TENSOR), "needs_grad": list_of(BOOL),
             "outputs": list_of(TENSOR), "grads": list_of(TENSOR), "rtol": FLOAT, "atol": FLOAT}
    set_attributes(suite, {name: (list_of(types[name]), column) for name, column in columns.items()})
    torch.jit.save(suite, str(directory / NAME))
