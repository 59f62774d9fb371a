// How much work a call is: the operators of LibTorch that it executes, and the bytes that these move.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>

namespace torch::jit {
struct Graph;
}

namespace sconce::testing {

struct Work {
  struct OfOperator {
    size_t executions = 0;
    size_t bytes = 0;
  };
  std::map<std::string, OfOperator> by_operator;

  size_t operators() const;
  size_t bytes() const;
  void operator+=(const Work& other);
};

// Counts what `call` executes, on all threads: no others may run operators meanwhile. The measure is LibTorch's own
// (at::RecordFunction), so it does not depend on what runs a graph:
//
//   an operator   is what enters the dispatcher from outside of other operators. Of what the dispatcher doesn't see,
//   numbers,
//                 lists and questions for sizes, and operators of the interpreter that call a kernel directly, nothing
//                 counts
//   it moves      the bytes of its tensor operands and of the results that it made or wrote. A view moves none, nor does
//                 what gives back its operand; of an expanded tensor each element counts once
Work count_work(const std::function<void()>& call);

// In a graph of LibTorch's that was optimized for inference: its operators that call oneDNN past the dispatcher come to be
// counted like others.
void record_kernels_of_interpreter(torch::jit::Graph& graph);

}  // namespace sconce::testing
