#!/usr/bin/env python3
"""libsconce* must not call what it replaces: LibTorch's TorchScript executors, passes, autodiff and fusers.

    symbols.py --nm NM --libtorch-headers DIR LIBRARY...        reads the undefined symbols of the libraries
    symbols.py --nm NM --libtorch-headers DIR --self-test --compiler CXX
        builds small libraries that call such functions and fails unless every one is reported

A symbol is denied when its name is declared in a header of replaced_headers.py: so the list fits this LibTorch and
cannot forget a pass. To these come the names below, whose headers declare harmless things too.

libsconce_ops stands in the place of an executor of LibTorch's, and hands back to it what sconce refuses: it may use IN_PLACE.

Not seen: virtual calls (`torch::jit::Function::run`), which leave no symbol.
"""
import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from replaced_headers import REPLACED

ALSO_DENIED = re.compile(
    # Ways into the executor from the classes of a loaded module.
    r"torch::jit::(Method|Module|Function)::(operator|run|run_async|forward)$|"
    r"torch::jit::GraphFunction::(run|runAsync|call|get_executor|getDebugState|optimized_graph|currentSpecialization)$|"
    r"torch::jit::(freeze|optimize_for_inference|runGraph|[gs]etGraphExecutorOptimize|RunDecompositions|DecomposeOp|"
    r"GetDecompositionExecutor|run_jit_decomposition\w*)$|"
    # Whole families, nested in namespaces.
    r"torch::jit::(tensorexpr|fuser|mobile)::|torch::nativert::")

IN_PLACE = {"torch::jit::GraphExecutor::getPlanFor", "torch::jit::GraphExecutor::GraphExecutor", "torch::jit::Code::Code",
            "torch::jit::Code::graph", "torch::jit::GraphFunction::optimized_graph", "torch::jit::EraseShapeInformation",
            "torch::jit::currentCallstack"}

CLASS = re.compile(r"\b(?:struct|class)\s+(?:TORCH_API\s+)?(\w+)\s*(?:final\s*)?(?::[^:{;]|\{)")
FUNCTION = re.compile(r"TORCH_API\s+[^;({}]*?\b(\w+)\s*\(")


def declared_names(headers) -> set:
    names = set()
    for header in headers:
        text = re.sub(r"//[^\n]*", "", header.read_text(errors="replace"))
        names.update(CLASS.findall(text), FUNCTION.findall(text))
    return names


def replaced_names(libtorch: Path) -> set:
    """Names in torch::jit that only replaced headers declare."""
    headers = {h: h.relative_to(libtorch).as_posix() for h in (libtorch / "torch/csrc/jit").rglob("*.h")}
    # Those of nested namespaces (ALSO_DENIED) reuse names of torch::jit, such as Module.
    nested = re.compile(r"/jit/(tensorexpr|codegen|mobile|python|backends|testing|runtime/static)/")
    flat = {h: path for h, path in headers.items() if not nested.search(path)}
    return (declared_names(h for h, path in flat.items() if REPLACED.match(path)) -
            declared_names(h for h, path in flat.items() if not REPLACED.match(path)))


def own_name(symbol: str) -> str:
    """The qualified name of what a demangled symbol is, without return type, arguments and template arguments."""
    symbol = re.sub(r"^(?:vtable|VTT|typeinfo|typeinfo name|guard variable|(?:non-)?virtual thunk) (?:for|to) ", "", symbol)
    name, depth = "", 0
    for character in symbol.replace("(anonymous namespace)", "{anonymous}"):
        if depth == 0 and character == "(":
            break
        depth += {"<": 1, ">": -1}.get(character, 0)
        if depth == 0 and character != ">":
            name = "" if character == " " else name + character
    return name


def violations(nm: str, library: Path, replaced: set) -> list:
    output = subprocess.run([nm, "-DC", "--undefined-only", str(library)], capture_output=True, text=True, check=True).stdout
    found = []
    for symbol in re.findall(r"^\s*[Uwv] (.*)$", output, re.MULTILINE):
        name = own_name(symbol)
        first = re.match(r"torch::jit::(\w+)", name)
        if library.name.startswith("libsconce_ops") and name in IN_PLACE:
            continue
        if ALSO_DENIED.match(name) or (first and first.group(1) in replaced):
            found.append(f"{library.name}: uses {symbol}")
    return found


def self_test(nm: str, compiler: str, replaced: set) -> int:
    # Declared by hand, as the mangled names are all that counts: LibTorch's headers would take a minute to compile.
    plants = {
        "EliminateDeadCode": ("void EliminateDeadCode(const std::shared_ptr<Graph>&, int);", "EliminateDeadCode(g, 0);"),
        "Inline": ("void Inline(Graph&);", "Inline(*g);"),
        "differentiate": ("struct Gradient {}; Gradient differentiate(std::shared_ptr<Graph>&);", "differentiate(g);"),
        "runRequiredPasses": ("void runRequiredPasses(const std::shared_ptr<Graph>&);", "runRequiredPasses(g);"),
        "GraphExecutor::GraphExecutor": ("struct GraphExecutor { GraphExecutor(); };", "GraphExecutor executor;"),
        "InterpreterState::InterpreterState": ("struct InterpreterState { InterpreterState(const Code&); };",
                                               "InterpreterState state(*(Code*)nullptr);"),
        "getProfilingMode": ("bool& getProfilingMode();", "getProfilingMode();"),
        "FuseTensorExprs": ("void FuseTensorExprs(std::shared_ptr<Graph>&);", "FuseTensorExprs(g);"),
        "tensorexpr::Stmt::Stmt": ("namespace tensorexpr { struct Stmt { Stmt(); }; }", "tensorexpr::Stmt statement;"),
        "AliasDb::~AliasDb": ("struct AliasDb { ~AliasDb(); };", "AliasDb aliases;"),
        "Method::operator": ("struct Method { void operator()(int) const; };", "Method()(0);"),
        "GraphFunction::run": ("struct GraphFunction { void run(int); };", "GraphFunction().run(0);"),
        "freeze": ("struct Module {}; Module freeze(const Module&);", "freeze(Module());"),
        # Allowed, though the types of replaced things occur in them.
        None: ("struct Node { int input(Code*); }; template <class T> T load(T);",
               "Node().input(nullptr); load<std::shared_ptr<Code>>(nullptr);"),
    }
    declarations = "\n".join(declaration for declaration, _ in plants.values())
    calls = "\n".join(call for _, call in plants.values())
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "planted.cpp", Path(folder) / "libplanted.so"
        source.write_text("#include <memory>\nnamespace torch::jit {\nstruct Graph {}; struct Code;\n"
                          f"{declarations}\n}}\nusing namespace torch::jit;\nvoid f(std::shared_ptr<Graph> g) {{\n{calls}\n}}\n")
        subprocess.run([compiler, "-std=c++20", "-w", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
        found = {own_name(line.split(": uses ")[1]).removeprefix("torch::jit::") for line in violations(nm, library, replaced)}
    expected = {name for name in plants if name}
    print(f"{len(expected & found)} of {len(expected)} planted violations found")
    for name in expected ^ found:
        print(f"{'not found' if name in expected else 'wrongly found'}: {name}")
    return 0 if expected == found else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("libraries", nargs="*", type=Path)
    parser.add_argument("--nm", default="nm")
    parser.add_argument("--libtorch-headers", type=Path, required=True)
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("--compiler", default="c++")
    options = parser.parse_args()
    replaced = replaced_names(options.libtorch_headers)
    if len(replaced) < 200:
        print(f"only {len(replaced)} names found in LibTorch's headers: the test reads them wrongly")
        return 1
    if options.self_test:
        return self_test(options.nm, options.compiler, replaced)
    if not options.libraries:
        print("no libraries given")
        return 1
    found = [line for library in options.libraries for line in violations(options.nm, library, replaced)]
    print("\n".join(found) if found else f"{len(options.libraries)} libraries use none of {len(replaced)} replaced names")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
