"""Integers, floats, booleans, complex numbers, math."""
import cmath
import math

import torch
from torch import Tensor, nn

from . import family


@family
class Numbers(nn.Module):
    def integers(self, x: Tensor, n: int):
        return n + 7, n - 7, n * 7, -n, abs(n)

    def floor_division(self, x: Tensor, n: int):
        return n // 2, -7 // 2, 7 // -2, 7.5 // 2.0, -7.5 // 2.0, n // 2.0

    def remainder(self, x: Tensor, n: int):
        return n % 2, -7 % 3, 7 % -3, 7.5 % -2.0, -7.5 % 2.0

    def true_division(self, x: Tensor, n: int):
        return n / 2, 7 / 2, n / 0.5

    def division_by_zero(self, x: Tensor, n: int):
        return 6 // n

    # By zero it would end LibTorch's process: tests/plan asks what sconce does.
    def remainder_by_negative(self, x: Tensor, n: int):
        return 6 % (n * 2 - 1)

    def true_division_by_zero(self, x: Tensor, n: int):
        return 1 / n

    def float_division_by_zero(self, x: Tensor, n: int):
        return 1.5 / float(n)

    def power(self, x: Tensor, n: int):
        return 2 ** 5, 2.0 ** n, n ** 2, 4 ** 0.5, pow(3, 2), (-8.0) ** 3

    def bits(self, x: Tensor, n: int):
        return n & 6, n | 8, n ^ 5, n << 2, 100 >> 2

    def booleans(self, x: Tensor, n: int):
        p = n > 0
        return p and n != 3, p or n == 0, not p, p & True, p | False, p ^ True, int(p) + 1

    def compare_mixed(self, x: Tensor, n: int):
        return n == 3.0, n < 0.5, 1.0 >= n, True == bool(n), n != 0.0

    def rounding(self, x: Tensor, n: int):
        return round(2.5), round(-1.5 + n), math.floor(-1.5), math.ceil(1.2), int(-1.7)

    def minimum_maximum(self, x: Tensor, n: int):
        return min(n, 1), max(n, 1.5), min(0.5, 2.0), max(1, 2)

    def div_mod(self, x: Tensor, n: int):
        return divmod(7, 3), divmod(-7, 2), divmod(7.5, 2.0)

    def conversions(self, x: Tensor, n: int):
        return float(n), int(2.9), bool(n), bool(0.0), int(True), float(False), int(n > 0)

    def augmented(self, x: Tensor, n: int):
        a = n
        a += 2
        a -= 1
        a *= 3
        b = float(a)
        b /= 2
        a %= 5
        return a, b

    def math_functions(self, x: Tensor, n: int):
        v = 0.25 + n * n
        return [math.sqrt(v), math.exp(v / 10), math.log(v), math.log10(v), math.log1p(v), math.expm1(v / 10),
                math.sin(v), math.cos(v), math.tan(v), math.sinh(v / 10), math.cosh(v / 10), math.tanh(v), math.atan(v),
                math.atan2(v, 2.0), math.asin(0.5), math.acos(0.5), math.asinh(v), math.acosh(v + 1), math.atanh(0.5),
                math.erf(v), math.erfc(v), math.gamma(v), math.lgamma(v)]

    def math_others(self, x: Tensor, n: int):
        return (math.gcd(12, n), math.factorial(5), math.copysign(2.0, float(n)), math.fabs(-1.5), math.fmod(7.0, 3.0),
                math.isnan(float(n)), math.isinf(1.0), math.isfinite(1.0), math.degrees(1.0),
                math.radians(90.0), math.ldexp(0.5, 3), math.pow(2.0, 0.5))

    def math_splits(self, x: Tensor, n: int):
        return math.frexp(10.5), math.modf(2.75), math.remainder(7.0, 4.0)

    def math_constants(self, x: Tensor, n: int):
        return math.pi, math.e, math.inf, -math.inf, math.tau, math.isnan(math.nan)

    def math_domain(self, x: Tensor, n: int):
        return math.sqrt(float(n)), math.log(float(n) + 0.5)

    def factorial_of_negative(self, x: Tensor, n: int):
        return math.factorial(n)

    def big_integers(self, x: Tensor, n: int):
        return 9223372036854775807 - n, 4611686018427387904 + n, -9223372036854775807

    def complex_numbers(self, x: Tensor, n: int):
        c = complex(float(n), 2.0)
        d = 1.5 - 2j
        return c + d, c * d, c - 1, c / d, c == d, abs(d)

    def complex_parts(self, x: Tensor, n: int):
        c = 3 + 4j
        return torch.tensor(c).real, torch.tensor(c).imag + n

    def complex_functions(self, x: Tensor, n: int):
        return cmath.exp(1j), cmath.sqrt(-1 + 0j), cmath.phase(1 + 1j), cmath.log(2j)

    def number_from_tensor(self, x: Tensor, n: int):
        return x[0, 0].item(), int(x[1, 2]), float(x[1, 1]), bool(x[0, 2]), x.sum().item() + n

    def number_from_large_tensor(self, x: Tensor, n: int):
        return float(x)

    def tensor_and_number(self, x: Tensor, n: int):
        return x + n, n - x, 2.5 * x, x / 2, 2 / (x + 10), x // 2, x % 2, x ** 2, 2 ** x, -x

    def tensor_compare(self, x: Tensor, n: int):
        return x > n, n <= x, x == 0, (x > 0) & (x < 3), (x < 0) | (x > 2), ~(x > 0)

    def tensor_from_number(self, x: Tensor, n: int):
        return torch.tensor(n), torch.tensor(2.5), torch.tensor([1, n]), torch.tensor([[1.0], [float(n)]]), torch.tensor(n > 0)

    def tensor_from_number_with_type(self, x: Tensor, n: int):
        return torch.tensor(n, dtype=torch.float64), torch.as_tensor([1, n], dtype=torch.int32), torch.tensor(1 + 2j)

    def promotion(self, x: Tensor, n: int):
        i = torch.arange(3)
        return i + 1, i + 1.5, i * x, i.to(torch.int8) + 1, x.double() + x, i / 2, torch.result_type(i, 1.0)

    def scalar_annotations(self, x: Tensor, n: int):
        a: float = 1.0
        b: int = n
        c: bool = n > 0
        return a, b, c
