#!/usr/bin/env python3
"""Rules that a look at the text can check: no swallowed exceptions, no absolute paths, no endless files or lines, no test
that is switched off without a reason, no two classes of the library with one name.

    text_rules.py [--self-test]      as includes.py
"""
import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MAX_LINES = 800
MAX_COLUMNS = 125  # of .clang-format
FOLDERS = ("src", "include", "tools", "tests", "bench", "examples", "docs", "cmake")
CODE = (".h", ".cpp")

RULES = [
    # Passing the error on is fine: rethrown, or kept as an exception_ptr for another thread.
    ("hides an error: catch (...)", CODE,
     re.compile(r"catch\s*\(\s*\.\.\.\s*\)\s*\{(?!(?:[^{}]|\{[^{}]*\})*?\b(?:throw|current_exception|rethrow_exception)\b)")),
    ("an absolute path", (".h", ".cpp", ".py", ".cmake", ".txt", ".md", ".sh"),
     re.compile(r"""["' =(]/(?:home|root|work|tmp|usr/local)(?:/|["'])""")),
    ("a test that does not run, without a reason", CODE, re.compile(r"\bDISABLED_|GTEST_SKIP\(\)\s*;")),
]


# In one namespace, the linker takes the inline functions of either.
CLASS = re.compile(r"^(?:class|struct)\s+(\w+)(?:\s+final)?(?:\s*:(?!:)[^;{]*)?\s*\{", re.MULTILINE)


def classes_of_one_name(root: Path) -> list:
    headers = [path for folder in ("src", "include") for path in sorted((root / folder).rglob("*.h"))]
    places = {}
    for path in headers:
        for match in CLASS.finditer(path.read_text()):
            places.setdefault(match.group(1), set()).add(str(path.relative_to(root)))
    return [f"{' and '.join(sorted(where))}: define a class of one name, {name}"
            for name, where in sorted(places.items()) if len(where) > 1]


# Texts in other languages keep their lines, and so do tables that clang-format leaves alone.
RAW_STRING = re.compile(r'R"(\w*)\(.*?\)\1"|// clang-format off.*?// clang-format on', re.DOTALL)


def long_lines(text: str) -> list:
    """The numbers of lines of code that are too long."""
    code = RAW_STRING.sub(lambda found: "\n" * found.group(0).count("\n"), text)
    return [number for number, line in enumerate(code.split("\n"), 1) if len(line) > MAX_COLUMNS]


def violations(root: Path) -> list:
    found = classes_of_one_name(root)
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if not path.is_file() or path == root / "tests/structure/text_rules.py":
                continue
            where = path.relative_to(root)
            try:
                text = path.read_text()
            except UnicodeDecodeError:
                continue
            for message, suffixes, pattern in RULES:
                if path.suffix in suffixes:
                    for match in pattern.finditer(text):
                        found.append(f"{where}:{text.count(chr(10), 0, match.start()) + 1}: {message}")
            if path.suffix in CODE:
                found += [f"{where}:{number}: longer than {MAX_COLUMNS} columns (make format)" for number in long_lines(text)]
            lines = text.count("\n")
            if path.suffix in CODE and folder in ("src", "include", "tools") and lines > MAX_LINES:
                found.append(f"{where}: {lines} lines; two ideas in one file?")
    return found


def self_test() -> int:
    plants = {
        "a swallowed exception": ("src/ir/planted.cpp", "void f() { try { g(); } catch (...) {} }\n"),
        "an error half passed on": ("src/ir/planted.cpp", "void f() { try { g(); } catch (...) { log(); } throw 1; }\n"),
        "an error passed on at times": ("src/ir/planted.cpp", "void f() { try { g(); } catch (...) { if (x) { throw; } } }\n"),
        "an absolute path": ("tools/planted.cpp", 'const char* path = "/home/me/model.pt";\n'),
        "a disabled test": ("tests/ir/planted.cpp", "TEST(A, DISABLED_B) {}\n"),
        "a skip without reason": ("tests/ir/planted.cpp", "TEST(A, B) { GTEST_SKIP() ; }\n"),
        "two classes of one name": ("src/ir/planted.h", "struct A {};\n", "include/sconce/other.h", "class A final : B {};\n"),
        "an endless line": ("src/ir/planted.cpp", "// " + "a" * MAX_COLUMNS + "\n"),
        "an endless file": ("src/ir/planted.cpp", "// a\n" * (MAX_LINES + 1)),
    }
    harmless = ("void f() { try { g(); } catch (...) { h(); throw; } try { g(); } catch (...) { e = std::current_exception(); } }\n"
                "void h() { try { g(); } catch (...) { for (;;) { h(); } throw; } }\n"
                f'const char* text = R"(\n{"a" * MAX_COLUMNS}a\n)";\n')
    missed = []
    for name, (path, text, *other) in plants.items():
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / path
            target.parent.mkdir(parents=True)
            target.write_text(text)
            if other:
                second = Path(folder) / other[0]
                second.parent.mkdir(parents=True)
                second.write_text(other[1])
            if not any(path in line for line in violations(Path(folder))):
                missed.append(name)
            target.write_text(harmless)
            if violations(Path(folder)):
                missed.append("that this is fine: " + "; ".join(violations(Path(folder))))
    print(f"{len(plants) - len(missed)} of {len(plants)} planted violations found")
    for name in missed:
        print(f"not found: {name}")
    return 1 if missed else 0


def main() -> int:
    if "--self-test" in sys.argv:
        return self_test()
    found = violations(ROOT)
    print("\n".join(found) if found else "every rule holds")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
