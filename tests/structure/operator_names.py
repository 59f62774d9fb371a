#!/usr/bin/env python3
"""Keeps what is known about operators in src/ops: lists the other files of src/ that name operators.

A file may name operators where it rewrites calls of named operators into others, and is listed here with its reason. Everything
else asks the operator's record (src/ops/op.h). The node kinds of the language itself, the rows of src/ops/rows/language.cpp,
are not operators: control flow, construction, attribute access.

    operator_names.py               checks the tree around this file and prints the files with their counts
    operator_names.py --self-test   plants a violation in a copy and fails unless it is reported
"""
import re
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# file -> why it names operators
REWRITES = {
    "src/analysis/effects.cpp": "asks for prim::Print, which no recorder sees",
    "src/autodiff/select/operands_copied_by_autograd.cpp": "lists operators that copy operands before the part that autograd records",
    "src/autodiff/joint/build_nodes.cpp": "inserts the nodes of differentiation that read sizes",
    "src/autodiff/joint/joint_graph_builder_blocks.cpp": "inserts the loops and branches of backward",
    "src/autodiff/joint/joint_graph_builder_dependences.cpp": "inserts tests of whether loops run",
    "src/autodiff/joint/joint_graph_builder_texts.cpp": "unwraps gradients that texts leave out",
    "src/autodiff/joint/joint_graph_builder_lists.cpp": "inserts the gradients of joins, cuts and appends",
    "src/autodiff/joint/reduce_gradient.cpp": "inserts sums and casts of gradients",
    "src/executor/compile.cpp": "asks for aten::data, through which writes are not counted",
    "src/fusion/group/draws.cpp": "the table of operators that draw random numbers and have kernels",
    "src/fusion/program/reductions.cpp": "the table of operators that fold rows",
    "src/fusion/program/operators.cpp": "lists the operators whose results do not follow the strides of their operands",
    "src/fusion/program/rules/activation.cpp": "the table of kernel rules: activations",
    "src/fusion/program/rules/arithmetic.cpp": "the table of kernel rules: sums, products, powers, extrema",
    "src/fusion/program/rules/binary.cpp": "the table of kernel rules: functions of two operands",
    "src/fusion/program/rules/division.cpp": "the table of kernel rules: divisions and tests of numbers",
    "src/fusion/program/rules/functions.cpp": "the table of kernel rules: functions of one operand, casts and copies",
    "src/fusion/program/rules/gradients.cpp": "the table of kernel rules: gradients of activations",
    "src/fusion/program/rules/selection.cpp": "the table of kernel rules: comparisons, logic, choices",
    "src/fusion/program/rules/special.cpp": "the table of kernel rules: special functions",
    "src/fusion/group/views.cpp": "the table of views that kernels read through",
    "src/ir/text/parse.cpp": "gives an example in an error message",
    "src/load/function_library.cpp": "gives the forms of serialized TorchScript their node kinds",
    "src/passes/matmul/decompose_convolution_gradients.cpp": "replaces gradients of convolutions by products",
    "src/passes/matmul/decompose_pointwise_gradients.cpp": "replaces gradients of convolutions of single pixels by products",
    "src/passes/matmul/decompose_attention.cpp": "replaces the fast paths of attention",
    "src/passes/matmul/decompose_rnn.cpp": "replaces recurrent layers by loops",
    "src/passes/matmul/decompose_rnn_cells.cpp": "replaces recurrent cells by products and pointwise operators",
    "src/passes/autocast/lower_callers_autocast.cpp": "knows which calls of aten::pad call other operators than the rest",
    "src/passes/autocast/settle_autocast.cpp": "replaces casts whose dtypes are known by aten::to",
    "src/passes/layout/permutations.cpp": "reads and composes views that exchange dimensions",
    "src/passes/layout/propagate_channels_last.cpp": "converts weights by aten::contiguous",
    "src/passes/layout/remove_layout_changes.cpp": "joins chains of views and copies",
    "src/passes/loops/accumulate_selections.cpp": "replaces sums of aten::select_backward",
    "src/passes/loops/batch_loop_products.cpp": "replaces sums of aten::mm and aten::sum",
    "src/passes/loops/carried_sums.cpp": "finds sums by prim::AutogradAdd",
    "src/passes/loops/partially_unroll_loops.cpp": "computes trip counts by arithmetic nodes",
    "src/passes/loops/peel_last_iteration.cpp": "computes trip counts by arithmetic nodes",
    "src/passes/matmul/join_summed_products.cpp": "joins products that are added by aten::cat, and multiplies once",
    "src/passes/matmul/batch_matmul.cpp": "joins products into aten::bmm and aten::cat",
    "src/passes/matmul/decompose_ops.cpp": "takes aten::addmm and aten::linear apart",
    "src/passes/memory/remove_dead_copies.cpp": "removes the copies that it names",
    "src/passes/required/lower_autocast.cpp": "finds autocast's classes and inserts its casts",
    "src/passes/required/lower_grad_of.cpp": "tests gradients by prim::AutogradAnyNonZero",
    "src/passes/required/remove_expands.cpp": "removes aten::expand",
    "src/passes/required/specialize_autograd_zero.cpp": "replaces prim::AutogradAdd",
    "src/passes/simplify/peephole.cpp": "small rewrites of the operators that it names",
    "src/plan/steps/symbolic_sizes.cpp": "takes aten::matmul apart where LibTorch's function reads open sizes",
    "src/kernels/attention.cpp": "the table of prepared operators: attention",
    "src/kernels/batch_norms.cpp": "the table of prepared operators: batch norms and their gradients",
    "src/kernels/convolution_gradients.cpp": "the table of prepared operators: gradients of convolutions",
    "src/kernels/convolutions.cpp": "the table of prepared operators: convolutions",
    "src/kernels/embedding_bags.cpp": "the table of prepared operators: embedding bags",
    "src/passes/matmul/decompose_recorded_lstm.cpp": "replaces oneDNN's LSTM of a recording",
    "src/kernels/embedding_gradients.cpp": "the table of prepared operators: gradients of embeddings",
    "src/kernels/layer_norms.cpp": "the table of prepared operators: layer norms and their gradients",
    "src/kernels/volume_convolutions.cpp": "the table of prepared operators: convolutions of volumes",
    "src/kernels/window_pools.cpp": "the table of prepared operators: pools over windows",
    "src/kernels/joins.cpp": "the table of prepared operators: joins",
    "src/kernels/norms.cpp": "the table of prepared operators: softmax, norms, look-ups",
    "src/kernels/pointwise.cpp": "the table of prepared operators: pointwise",
    "src/kernels/products.cpp": "the table of prepared operators: matrix products",
    "src/kernels/selections.cpp": "the table of prepared operators: where and masked_fill",
    "src/kernels/views.cpp": "the table of prepared operators: views",
    "src/autodiff/rules/gradient_trace.cpp": "replaces views in recorded gradients by aten::reshape",
    "src/autodiff/rules/generalize.cpp": "replaces constants by arithmetic on aten::size",
    "src/autodiff/rules/record_gradient.cpp": "inserts sums to the sizes of operands",
    "src/trace/traceable.cpp": "the tables of operators that read no elements, make tensors without contents, or overwrite",
    "src/trace/tracer_operands.cpp": "copies into fresh memory what C++ code wrote there, and detaches what `.data()` returns",
    "src/trace/sizes/size_writer.cpp": "writes sizes as arithmetic of TorchScript",
    "src/trace/sizes/symbolic_facts.cpp": "the strides of views that have them as arguments, or of which they are not linear",
    "src/plan/steps/operator.cpp": "asks which backends are loaded by aten::empty, which each of them has",
    "src/training/parallel/synchronize_batch_norm.cpp": "replaces aten::batch_norm by a norm over ranks",
    "src/training/step/place_reductions.cpp": "inserts copies into buckets, and collectives",
}

NAME = re.compile(r'\b(aten|prim)::([A-Za-z_]\w*)')
BARE_NAME = re.compile(r'\badd_rule\(\s*table,\s*"(\w+)"|\bop == "(\w+)"')
COMMENT = re.compile(r"//[^\n]*")


def language_kinds(root: Path) -> set:
    return set(re.findall(r'"prim::(\w+)"', (root / "src/ops/rows/language.cpp").read_text()))


def named_operators(root: Path) -> dict:
    """file -> the operators that its code names"""
    language = language_kinds(root)
    found = {}
    for path in sorted((root / "src").rglob("*")):
        where = path.relative_to(root).as_posix()
        if path.suffix not in (".h", ".cpp") or where.startswith("src/ops/"):
            continue
        text = COMMENT.sub("", path.read_text())
        names = {f"{space}::{name}" for space, name in NAME.findall(text) if not (space == "prim" and name in language)}
        names |= {f"aten::{rule or compared}" for rule, compared in BARE_NAME.findall(text)}
        if names:
            found[where] = names
    return found


def violations(root: Path) -> list:
    found = named_operators(root)
    return ([f"{where}: names {', '.join(sorted(names))}; ask node.op() instead (src/ops/README.md), or, for a rewrite of "
             "named operators, list the file in REWRITES"
             for where, names in found.items() if where not in REWRITES] +
            [f"{where}: names no operator any more; take it off the list" for where in REWRITES if where not in found])


def self_test() -> int:
    plants = {"an operator compared by name": "bool f(const Node& node) { return node.kind() == aten::relu; }\n",
              "a rule for an operator": 'void add_rules(RuleTable& table) { add_rule(table, "relu", write_relu); }\n'}
    missed = []
    for name, text in plants.items():
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(ROOT / "src", Path(folder) / "src")
            (Path(folder) / "src/plan/planted.cpp").write_text(text)
            if not any("src/plan/planted.cpp" in line for line in violations(Path(folder))):
                missed.append(name)
    print(f"{len(plants) - len(missed)} of {len(plants)} planted violations found")
    for name in missed:
        print(f"not found: {name}")
    return 1 if missed else 0


def main() -> int:
    if "--self-test" in sys.argv:
        return self_test()
    found = violations(ROOT)
    if found:
        print("\n".join(found))
        return 1
    counts = {}
    for where, names in named_operators(ROOT).items():
        print(f"{len(names):3} {where}: {REWRITES[where]}")
        folder = "/".join(where.split("/")[1:-1])
        counts[folder] = counts.get(folder, 0) + len(names)
    print("\n".join(f"{count:3} names in {folder}" for folder, count in counts.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
