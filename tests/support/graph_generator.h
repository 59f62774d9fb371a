// Random programs that run without error, for differential tests.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <string>
#include <vector>

namespace sconce::testing {

// One argument of a generated graph.
struct GeneratedInput {
  enum class Kind { kTensor, kIndices, kInt, kBool, kOptional };
  std::string name;
  Kind kind = Kind::kTensor;
  std::vector<int64_t> sizes;
  bool differentiable = false;  // may require a gradient; the graph never writes into it
  int alias_of = -1;            // the input it shares memory with, -1 for none
  bool alias_is_transposed = false;
};

struct GeneratedGraph {
  uint64_t seed = 0;
  std::string text;  // TorchScript's IR, as sconce::parse and torch::jit::parseIR read it
  std::vector<GeneratedInput> inputs;
};

struct GeneratorSettings {
  int nodes = 24;                // operators in the outermost block, about
  int max_depth = 3;             // of prim::If and prim::Loop in each other
  bool mostly_products = false;  // of matrices of few sizes
};

// The same graph for the same seed. Pointwise operators and their synonyms, views, products, reductions, operators in place
// on views and on inputs, random numbers, lists and tuples, optionals, ints and bools, prim::If and prim::Loop with carried
// values that change places.
//
// Shapes and who may share memory with whom are followed while generating, so that every graph is well formed and runs, with
// and without gradients: nothing is written into leaves that require grad, into memory that overlaps itself or an operand,
// or into results of operators with several views.
GeneratedGraph generate_graph(uint64_t seed, const GeneratorSettings& settings = {});

// New arguments for call number `call`, counted from 1: other values in each, other strides in the third, other optionals in
// the second. `requires_grad`: of the differentiable inputs.
std::vector<c10::IValue> make_arguments(const GeneratedGraph& graph, int call, bool requires_grad);

}  // namespace sconce::testing
