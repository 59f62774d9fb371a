"""Tensors: indexing, attributes, writes, types, devices, random numbers, exotic layouts, blocks that change modes."""
from typing import Any, Dict, List, Optional, Tuple, Union

import torch
from torch import Tensor, nn

from . import family


@family
class Tensors(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(9.0).reshape(3, 3) / 10)

    def index_numbers(self, x: Tensor, n: int):
        return x[0], x[1, 2], x[-1], x[n // 3]

    def index_slices(self, x: Tensor, n: int):
        return x[:, 1:], x[1:], x[:, ::2], x[..., 0], x[:, -2:], x[:, n:]

    def index_new_axes(self, x: Tensor, n: int):
        return x[None], x[:, None], x[..., None], x[None, 0, :, None]

    def index_tensors(self, x: Tensor, n: int):
        i = torch.tensor([1, 0, 1])
        return x[i], x[:, i], x[i, i], x[x > n], x[torch.tensor([[0, 1]])]

    def index_lists(self, x: Tensor, n: int):
        return x[[0, 1]], x[:, [2, 0]], x[[True, False]]

    def set_items(self, x: Tensor, n: int):
        y = x.clone()
        y[0] = n
        y[:, 1] = 5
        y[1, 2:] += 1
        y[y > 4] = -1
        y[torch.tensor([0]), torch.tensor([2])] = 9
        y[..., 0] *= 2
        return y

    def argument_written(self, x: Tensor, n: int):
        x += n
        x[0].zero_()
        return x

    def argument_rebound(self, x: Tensor, n: int):
        x = x + n
        x.zero_()
        return x

    def view_written(self, x: Tensor, n: int):
        y = x.clone()
        v = y.view(3, 2)
        v[0] += n
        t = y.t()
        t.mul_(2)
        return y, v, t

    def attributes(self, x: Tensor, n: int):
        return x.shape, x.ndim, x.dtype, x.device, x.layout, x.requires_grad, x.is_cuda, x.is_sparse, x.is_quantized, x.is_leaf

    def attributes_of_views(self, x: Tensor, n: int):
        return x.T, x.mT, x.H, x.data, x.size(), x.size(-1), x.stride(), x.numel(), x.dim(), x.is_contiguous(), x.t().is_contiguous()

    def dtype_values(self, x: Tensor, n: int):
        dtype = torch.float64 if n > 0 else torch.int32
        return x.to(dtype), dtype == torch.float64, x.to(dtype).dtype, x.dtype == torch.float32

    def device_values(self, x: Tensor, n: int):
        device = torch.device("cpu")
        return x.to(device).device == device, device.type, device.index, torch.device("cuda:1").index, str(device)

    def to_forms(self, x: Tensor, n: int):
        return x.to(torch.int64), x.to("cpu"), x.to(x.int()), x.double(), x.half(), x.type_as(x.long()), x.to(torch.float16, copy=True)

    def constructors(self, x: Tensor, n: int):
        return (torch.zeros(2, n + 1), torch.ones([2]), torch.full((2,), n), torch.arange(n + 1), torch.arange(0, 1, 0.25),
                torch.eye(2), torch.linspace(0, 1, 3), torch.empty(0), torch.zeros_like(x, dtype=torch.int8), x.new_zeros(2),
                x.new_full([1], 7.0), torch.zeros(2, dtype=torch.bfloat16))

    def random_numbers(self, x: Tensor, n: int):
        a = torch.rand(2)
        b = torch.randn([2, n + 1])
        c = torch.randint(0, 10, [3])
        d = torch.randperm(4)
        e = torch.empty(2).uniform_(1.0, 2.0)
        f = torch.bernoulli(torch.full([4], 0.5))
        g = nn.functional.dropout(x, 0.5, training=True)
        return a, b, c, d, e, f, g, torch.rand_like(x)

    def random_seed(self, x: Tensor, n: int):
        torch.manual_seed(n + 5)
        return torch.rand(2)

    def random_in_branches(self, x: Tensor, n: int):
        if n > 0:
            return torch.rand(2) + torch.rand(1)
        torch.rand(3)
        return torch.randn(2)

    def splits(self, x: Tensor, n: int):
        a, b, c = x.unbind(1)
        d, e = torch.chunk(x, 2, dim=0)
        parts = x.split([1, 2], dim=1)
        return a + b * c, d, e, parts, torch.split(x, 2, 1), x.unsafe_chunk(2, 1)

    def joins(self, x: Tensor, n: int):
        return torch.cat([x, x]), torch.stack([x, x], 1), torch.hstack([x, x]), torch.cat((x, x[:1]), dim=0)

    def broadcasts(self, x: Tensor, n: int):
        a, b = torch.broadcast_tensors(x, torch.ones(1, 3))
        return x + torch.ones(3) * n, x.expand(2, 2, 3), a, b, torch.meshgrid([torch.arange(2), torch.arange(n + 1)])

    def results_of_several(self, x: Tensor, n: int):
        values, indices = x.max(dim=1)
        s = x.sort(dim=1, descending=True)
        return values, indices, s.values, s[1], torch.topk(x, 2), torch.var_mean(x)

    def reductions(self, x: Tensor, n: int):
        return x.sum(), x.sum(0), x.mean(dim=[0, 1]), x.prod(), x.any(), x.all(dim=1), x.argmax(), x.norm(), x.std(), x.cumsum(0)

    def matrix_products(self, x: Tensor, n: int):
        return x @ x.t(), torch.mm(x, self.weight), x.matmul(self.weight[0]), torch.einsum("ij,kj->ik", x, x), torch.addmm(x, x, self.weight)

    def out_variants(self, x: Tensor, n: int):
        out = torch.empty(2, 3)
        torch.add(x, n, out=out)
        torch.mul(out, 2, out=out)
        return out

    def in_place_forms(self, x: Tensor, n: int):
        y = x.clone()
        y.add_(1).mul_(2)
        y -= n
        y /= 2
        y **= 2
        y.clamp_(0, 5)
        y.t_()
        y.unsqueeze_(0)
        y.squeeze_()
        y.copy_(torch.ones(3, 2))
        y.fill_(n)
        return y

    def any_values(self, x: Tensor, n: int):
        values: List[Any] = [n, x, "s", 2.5, None, (1, 2)]
        kinds = ""
        for value in values:
            if isinstance(value, int):
                kinds += "i"
            elif isinstance(value, Tensor):
                kinds += "t"
            elif isinstance(value, str):
                kinds += "s"
            elif value is None:
                kinds += "n"
            else:
                kinds += "?"
        return kinds, values

    def union_values(self, x: Tensor, n: int):
        value: Union[int, str, Tensor] = n
        if n > 0:
            value = "text"
        elif n < 0:
            value = x
        if isinstance(value, str):
            return 1
        if isinstance(value, int):
            return 2
        return 3

    def container_refinement(self, x: Tensor, n: int):
        return self.helper_refine([n, 2]), self.helper_refine({"k": x}), self.helper_refine((x, n)), self.helper_refine(n)

    def helper_refine(self, value: Any) -> int:
        if torch.jit.isinstance(value, List[int]):
            return len(value)
        if torch.jit.isinstance(value, Dict[str, Tensor]):
            return 100 + len(value)
        if torch.jit.isinstance(value, Tuple[Tensor, int]):
            return 200 + value[1]
        return -1

    def to_list(self, x: Tensor, n: int):
        rows: List[List[float]] = x.tolist()
        ints: List[int] = x[0].to(torch.int64).tolist()
        one: float = x[0, 0].tolist()
        return rows, ints, one

    def to_list_of_other_types(self, x: Tensor, n: int):
        flags: List[bool] = (x[0] > 0).tolist()
        numbers: List[complex] = torch.complex(x[0], x[1]).tolist()
        halves: List[List[float]] = x.double().t().tolist()
        nothing: List[float] = x[0, :0].tolist()
        return flags, numbers, halves, nothing

    def to_list_of_wrong_type(self, x: Tensor, n: int):
        ints: List[int] = x[0].tolist()
        return ints

    def to_list_of_wrong_rank(self, x: Tensor, n: int):
        flat: List[float] = x.tolist()
        return flat

    def without_grad(self, x: Tensor, n: int):
        with torch.no_grad():
            y = x @ self.weight
        z = x @ self.weight
        return y.requires_grad, z.requires_grad, y

    def without_grad_nested(self, x: Tensor, n: int):
        y = self.weight * n
        with torch.no_grad():
            with torch.no_grad():
                z = self.weight * n
            z = self.weight * z
        return y.requires_grad, z.requires_grad, torch.is_grad_enabled()

    def without_grad_and_error(self, x: Tensor, n: int):
        with torch.no_grad():
            if n > 0:
                raise ValueError("grad mode is restored")
        return torch.is_grad_enabled()

    def detached(self, x: Tensor, n: int):
        return (self.weight * n).detach().requires_grad, self.weight.detach(), self.weight.requires_grad

    def requires_grad_set(self, x: Tensor, n: int):
        y = x.clone().requires_grad_(n > 0)
        return y.requires_grad, (y * 2).requires_grad

    def gradients(self, x: Tensor, n: int):
        loss = (x @ self.weight).pow(2).sum() * n
        grads = torch.autograd.grad([loss], [self.weight])
        return grads[0]

    def backward(self, x: Tensor, n: int):
        w = self.weight.detach().clone().requires_grad_(True)
        (x @ w).sum().backward()
        return w.grad

    def record_function(self, x: Tensor, n: int):
        with torch.autograd.profiler.record_function("block"):
            y = x + n
        return y

    def complex_tensors(self, x: Tensor, n: int):
        c = torch.complex(x, x * n)
        return c, c.real, c.imag, c.abs(), c.conj(), torch.view_as_real(c), (c * c).angle(), c.conj().is_conj()

    def sparse_tensors(self, x: Tensor, n: int):
        s = x.to_sparse()
        return s.to_dense() * n, s.is_sparse, torch.sparse.mm(s, self.weight.detach()), s.coalesce().values()

    def quantized_tensors(self, x: Tensor, n: int):
        q = torch.quantize_per_tensor(x, 0.1, 10, torch.quint8)
        return q.dequantize() + n, q.int_repr(), q.q_scale(), q.q_zero_point(), q.is_quantized

    def memory_formats(self, x: Tensor, n: int):
        image = x.reshape(1, 2, 3, 1).contiguous(memory_format=torch.channels_last)
        return image.is_contiguous(memory_format=torch.channels_last), image + n, torch.clone(image, memory_format=torch.contiguous_format)

    def generators(self, x: Tensor, n: int):
        g = torch.Generator()
        g.manual_seed(n + 10)
        return torch.rand([2], generator=g), torch.randperm(3, generator=g)

    def same_object(self, x: Tensor, n: int):
        y: Optional[Tensor] = x
        return y is x, y is not None, x is None

    def optional_arguments(self, x: Tensor, n: int):
        return torch.clamp(x, min=n), torch.clamp(x, max=1), x.sum(dim=None), nn.functional.interpolate(x[None], scale_factor=2.0)

    def annotations(self, x: Tensor, n: int):
        value = torch.jit.annotate(Optional[Tensor], None)
        numbers = torch.jit.annotate(List[float], [])
        return value, numbers

    def device_functions(self, x: Tensor, n: int):
        return torch.numel(x), torch.is_floating_point(x)

    def where_and_masks(self, x: Tensor, n: int):
        return torch.where(x > n, x, 0.0), x.masked_fill(x < 0, float("-inf")), torch.nonzero(x), x.masked_select(x > 0), torch.isnan(x / x)

    def gathers(self, x: Tensor, n: int):
        i = torch.tensor([[0, 2], [1, 1]])
        return x.gather(1, i), x.index_select(1, i[0]), x.scatter(1, i, 7.0), torch.take(x, i), x.scatter_add(1, i, x[:, :2] * n)

    def equal_results_are_differentiated_one_by_one(self, x: Tensor, n: int):
        y = x.detach().clone().requires_grad_()
        a = y * y
        b = y * y
        a.sum().backward()
        b.sum().backward()
        return y.grad

    def transposed_twice_is_another(self, x: Tensor, n: int):
        y = x.reshape(-1, 1)
        return y.t().t() is y, y.t().t() + n
