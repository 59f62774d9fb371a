"""Branches, loops, jumps, conditions."""
from typing import Dict, List, Optional, Tuple

import torch
from torch import Tensor, nn

from . import family


@family
class ControlFlow(nn.Module):
    def if_else(self, x: Tensor, n: int):
        if n > 0:
            y = x + 1
        else:
            y = x - 1
        return y

    def if_without_else(self, x: Tensor, n: int):
        y = x
        if n == 0:
            y = y * 3
        return y

    def elif_chain(self, x: Tensor, n: int):
        if n < 0:
            name = "negative"
        elif n == 0:
            name = "zero"
        elif n < 3:
            name = "small"
        else:
            name = "large"
        return name

    def nested_if(self, x: Tensor, n: int):
        y = x
        if n >= 0:
            if n > 2:
                y = x * 2
            else:
                y = x * 3
            y = y + 1
        return y

    def conditional_expression(self, x: Tensor, n: int):
        return x.relu() if n > 0 else (x.abs() if n < 0 else x)

    def tensor_condition(self, x: Tensor, n: int):
        if x.sum() > n:
            return x.sum()
        return x.mean()

    def constant_condition(self, x: Tensor, n: int):
        if torch.jit.is_scripting():
            return x + 10
        else:
            return x

    def short_circuit(self, x: Tensor, n: int):
        return n > 0 and self.helper_says(n) or n == 0 and not self.helper_says(n - 1)

    def helper_says(self, n: int) -> bool:
        print("asked", n)
        return n > 1

    def chained_comparison(self, x: Tensor, n: int):
        return 0 <= n < 3, -1 == n, 0 < n <= 3 != 2

    def while_loop(self, x: Tensor, n: int):
        steps = 0
        while steps < n:
            x = x * 2 - 1
            steps += 1
        return x, steps

    def while_tensor_condition(self, x: Tensor, n: int):
        while bool(x.abs().max() > 0.5 + n * n):
            x = x / 2
        return x

    def while_true_break(self, x: Tensor, n: int):
        count = n
        while True:
            count += 2
            if count > 7:
                break
        return count

    def break_and_continue(self, x: Tensor, n: int):
        seen: List[int] = []
        for i in range(10):
            if i % 3 == n:
                continue
            if i == 7:
                break
            seen.append(i)
        return seen

    def break_of_the_inner_loop(self, x: Tensor, n: int):
        pairs: List[Tuple[int, int]] = []
        for i in range(4):
            for j in range(4):
                if j > i + n:
                    break
                if (i + j) % 2 == 0:
                    continue
                pairs.append((i, j))
        return pairs

    def return_from_a_loop(self, x: Tensor, n: int):
        for i in range(5):
            for j in range(5):
                if i * j == n + 3:
                    return i, j
        return -1, -1

    def return_in_a_branch(self, x: Tensor, n: int):
        if n < 0:
            return x.sum()
        y = x * 2
        if n == 0:
            return y.max()
        y = y + 1
        return y.min()

    def range_forms(self, x: Tensor, n: int):
        values: List[int] = []
        for i in range(n):
            values.append(i)
        for i in range(1, n + 3):
            values.append(10 * i)
        for i in range(6, n, -2):
            values.append(100 * i)
        return values

    def range_with_step_zero(self, x: Tensor, n: int):
        total = 0
        for i in range(0, 4, n):
            total += i
            if total > 5:
                break
        return total

    def over_list(self, x: Tensor, n: int):
        total = 0
        for value in [1, 2, n]:
            total = total * 10 + value
        return total

    def over_growing_list(self, x: Tensor, n: int):
        items = [n]
        for i in range(3):
            for item in items[:2]:
                items.append(item + i)
        return items

    def over_tuple(self, x: Tensor, n: int):
        text = ""
        for value in (1, 2.5, n):
            text += str(value) + ";"
        return text

    def over_tensor(self, x: Tensor, n: int):
        total = torch.zeros(3)
        for row in x:
            total = total * 2 + row
        return total + n

    def over_string(self, x: Tensor, n: int):
        vowels = 0
        for letter in "torch script executor":
            if letter in "aeiou":
                vowels += 1
        return vowels

    def over_dict(self, x: Tensor, n: int):
        prices: Dict[str, int] = {"a": 1, "b": n, "c": 3}
        total = 0
        for key in prices:
            total += prices[key]
        names = ""
        for key, value in prices.items():
            names += key + str(value)
        return total, names

    def over_enumerate(self, x: Tensor, n: int):
        total = 0
        for i, value in enumerate([5, 6, n]):
            total += i * value
        for i, value in enumerate([5, 6, n], 1):
            total += i * value
        return total

    def over_zip(self, x: Tensor, n: int):
        total = 0.0
        for a, b, c in zip([1, 2, 3], [0.5, 0.25], [n, n, n]):
            total += a * b + c
        return total

    def over_reversed(self, x: Tensor, n: int):
        digits: List[int] = []
        for value in [1, 2, n][::-1]:
            digits.append(value)
        return digits

    def over_nested_zip_enumerate(self, x: Tensor, n: int):
        lines: List[str] = []
        for i, (name, row) in enumerate(zip(["up", "down"], x)):
            lines.append("{}:{}:{}".format(i, name, int(row.sum().item()) + n))
        return lines

    def comprehension(self, x: Tensor, n: int):
        return [i * i for i in range(4)], [row.sum() for row in x], ["<" + w + ">" for w in ["a", "b"]]

    def dict_comprehension(self, x: Tensor, n: int):
        return {i: i * n for i in range(3)}

    def refined_optional(self, x: Tensor, n: int):
        y: Optional[Tensor] = None
        if n > 0:
            y = x * n
        if y is not None and y.numel() > 1:
            return y + 1
        return x

    def optional_carried_by_a_loop(self, x: Tensor, n: int):
        best: Optional[Tensor] = None
        for i in range(n):
            row = x[i % 2] * (i - 1)
            if best is None:
                best = row
            elif bool(row.sum() > best.sum()):
                best = row
        return best

    def variable_of_two_types(self, x: Tensor, n: int):
        value: Optional[int] = n
        if n == 0:
            value = None
        return value

    def loop_that_rebinds_its_index(self, x: Tensor, n: int):
        total = 0
        for i in range(4):
            i = i * 10
            total += i
        return total

    def empty_loop_keeps_values(self, x: Tensor, n: int):
        y = x
        for i in range(0):
            y = y + i
        return y

    def assertion(self, x: Tensor, n: int):
        assert n >= 0, "n is negative"
        assert x.dim() == 2
        return n

    def assertion_with_formatted_text(self, x: Tensor, n: int):
        assert n == 0, f"n is {n}, not 0"
        return x

    def loops_deep(self, x: Tensor, n: int):
        total = 0
        for i in range(3):
            j = 0
            while j < 3:
                for k in range(3):
                    if k == j:
                        continue
                    if total > 40:
                        return total, i
                    total += i * j + k + n
                j += 1
        return total, -1

    def loop_over_what_may_be_none(self, x: Tensor, n: int):
        y: Optional[Tensor] = None
        if n > 1:
            y = x
        total = 0
        for i in range(n + 2):
            if y is not None:
                total += y.dim() + y.size(0)
        return total

    def loop_over_a_list_that_may_be_none(self, x: Tensor, n: int):
        sizes: Optional[List[int]] = None
        if n > 1:
            sizes = [n, 2]
        total = 0
        for i in range(n + 2):
            if sizes is not None:
                total += len(sizes) + sizes[0]
        return total
