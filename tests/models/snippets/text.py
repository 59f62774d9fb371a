"""Strings, formatting, print."""
from typing import List

import torch
from torch import Tensor, nn

from . import family


@family
class Text(nn.Module):
    def format_method(self, x: Tensor, n: int):
        return "{} and {}".format(n, 2.5), "{:d}|{:5d}|{:.2f}".format(n, n, 1.23456), "{{}}{}".format("a")

    def format_with_too_few(self, x: Tensor, n: int):
        return "{} {}".format(n)

    def f_string(self, x: Tensor, n: int):
        return f"n={n} half={n / 2} list={[1, n]} word={'w'} flag={n > 0}"

    def percent(self, x: Tensor, n: int):
        return "%d %s" % (n, "text"), "%.3f" % 1.5, "%s" % n

    def percent_with_wrong_type(self, x: Tensor, n: int):
        return "%d" % "text"

    def concatenate(self, x: Tensor, n: int):
        text = "a"
        text += "b" + str(n)
        return text + 'c' "d"

    def slices(self, x: Tensor, n: int):
        text = "torchscript"
        return text[n], text[-1], text[1:4], text[:n], text[n:], text[::2], len(text)

    def index_out_of_range(self, x: Tensor, n: int):
        return "ab"[n]

    def split_and_join(self, x: Tensor, n: int):
        return "a b  c".split(), "a,b,,c".split(","), "a,b,c".split(",", n), "a-b-c".rsplit("-", 1), "-".join(["x", str(n)])

    def splitlines(self, x: Tensor, n: int):
        return "one\ntwo\n\nthree".splitlines(), "one\ntwo".splitlines(True)

    def strip(self, x: Tensor, n: int):
        return "  a ".strip(), "xxaxx".lstrip("x"), "xxaxx".rstrip("x"), "\t a\n".strip()

    def case(self, x: Tensor, n: int):
        return "aBc".upper(), "aBc".lower(), "aBc dE".swapcase(), "aBc dE".title(), "aBc".capitalize()

    def predicates(self, x: Tensor, n: int):
        text = str(n)
        return text.isdigit(), text.isalpha(), "a1".isalnum(), " ".isspace(), "Ab".istitle(), "A".isupper(), "a".islower(), text.isnumeric(), text.isdecimal(), "a b".isidentifier(), "ab".isprintable()

    def find(self, x: Tensor, n: int):
        return "banana".find("an"), "banana".find("an", n), "banana".rfind("an"), "banana".find("x"), "banana".count("a")

    def index_of(self, x: Tensor, n: int):
        return "banana".index("nan"), "banana".rindex("an")

    def index_of_nothing(self, x: Tensor, n: int):
        return "banana".index("x" + str(n))

    def starts_and_ends(self, x: Tensor, n: int):
        return "banana".startswith("ba"), "banana".endswith("na"), "banana".startswith("na", 2)

    def replace(self, x: Tensor, n: int):
        return "banana".replace("an", "AN"), "banana".replace("an", "-", n)

    def justify(self, x: Tensor, n: int):
        return "ab".center(7), "ab".ljust(5, "*"), "ab".rjust(5, "*"), "42".zfill(5), "-42".zfill(6)

    def partition(self, x: Tensor, n: int):
        return "k=v=w".partition("="), "k=v=w".rpartition("="), "kv".partition("=")

    def expandtabs(self, x: Tensor, n: int):
        return "a\tb".expandtabs(), "a\tb".expandtabs(4)

    def compare(self, x: Tensor, n: int):
        text = str(n)
        return text == "3", text != "3", text < "1", "a" <= "b", "b" > "a", "b" >= "c"

    def contains(self, x: Tensor, n: int):
        return str(n) in "0123", "z" not in "abc", "" in "a"

    def of_values(self, x: Tensor, n: int):
        return str(n), str(n / 4), str(n > 0), str([1, n]), str((1, "a")), str(None), str({"k": n})

    def of_tensor(self, x: Tensor, n: int):
        return str(x + n)

    def of_floats(self, x: Tensor, n: int):
        return str(1e20), str(1e-7), str(0.1), str(float(n)), str(float("inf")), str(float("nan"))

    def numbers_from_text(self, x: Tensor, n: int):
        return int("42") + n, float("2.5e1"), int("-7"), float("inf")

    def number_from_bad_text(self, x: Tensor, n: int):
        return int("4x" + str(n))

    def letters(self, x: Tensor, n: int):
        return ord("a"), chr(98 + n), hex(255), oct(8), bin(5)

    def ord_of_two_letters(self, x: Tensor, n: int):
        return ord("ab")

    def escapes(self, x: Tensor, n: int):
        return "tab\t quote\" back\\slash nul? \x41 newline\n end"

    def unicode(self, x: Tensor, n: int):
        return "Käse→", len("Käse"), "Käse" + str(n)

    def of_booleans(self, x: Tensor, n: int):
        return bool("" + str(n)), bool(""), not "x"

    def print_values(self, x: Tensor, n: int):
        print("n", n, n / 2, n > 0, None, [1, n], ("a", 2.0), {"k": n})
        print()
        print("done")
        return n

    def print_tensors(self, x: Tensor, n: int):
        print(x, x + n)
        print([x.sum(), x.max()])
        return x

    def print_in_a_loop(self, x: Tensor, n: int):
        for i in range(n):
            print("step", i, x[0, 0].item())
        return n

    def print_before_an_error(self, x: Tensor, n: int):
        print("before")
        if n > 0:
            raise ValueError("after")
        return n

    def words(self, x: Tensor, n: int):
        counts: List[str] = []
        for word in "the cat the dog".split(" "):
            if word not in counts:
                counts.append(word)
        return " ".join(sorted(counts))
