"""Which headers of LibTorch declare what sconce replaces. One list for the test of the includes and that of the
symbols, so that the two can't disagree."""
import re

# Executors, interpreters, passes (with the alias analysis that they share), autodiff, fusers. What is left of
# torch/csrc/jit is free to use: frontend, loader, schemas, operators with their shape functions and decompositions.
REPLACED = re.compile(
    r"torch/(nativert/|csrc/jit/(passes/|tensorexpr/|codegen/|mobile/|ir/alias_analysis|"
    r"runtime/(graph_executor|simple_graph_executor|profiling_|interpreter|instruction|graph_iterator|argument_spec|"
    r"calculate_necessary_args|variable_tensor_list|script_profile|autodiff|symbolic_script|jit_trace|static/)))")
