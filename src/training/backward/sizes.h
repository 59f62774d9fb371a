// BackwardSizes: the sizes of a walk as a tracer sees them.
#pragma once

#include "executor/compiled_trace.h"
#include "trace/sizes/size_pattern.h"
#include "trace/sizes/symbolic_sizes.h"
#include "training/backward/walk.h"

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

namespace sconce {

// Where the pattern has no symbols, sizes are numbers, and there are no facts.
class BackwardSizes {
 public:
  BackwardSizes(const BackwardSchedule& walk, const SizePattern& pattern);

  // Null if there are no symbols.
  const std::shared_ptr<SymbolicSizes>& symbols() const { return symbols_; }
  // Returns the numbers that nodes have saved; nothing for one that every run has.
  std::vector<std::optional<c10::SymInt>> saved_numbers() const;
  // Returns the facts of a tensor that nodes have saved.
  std::optional<TensorFacts> facts_of_saved(size_t tensor) const {
    return symbols_ != nullptr ? saved_[tensor] : std::nullopt;
  }
  // Returns the facts of a result of a call, which the engine fits to the tensor that it is a gradient of.
  std::optional<TensorFacts> facts_of_result(const BackwardCall& call, size_t result, const at::Tensor& real) const;
  // Returns facts of a tensor that has the sizes of another, with facts `like`, in every run if it has them in this.
  std::optional<TensorFacts> facts_like(const std::optional<TensorFacts>& like, const at::Tensor& real) const;

  // Fits results of a call to the tensors that they are gradients of, as the engine does.
  void fit_results(const BackwardCall& call, torch::autograd::variable_list& results) const;

  // Returns the symbols among a graph's inputs for its compile.
  TraceSizes captured(const std::vector<size_t>& symbols) const;

 private:
  std::vector<Dim> dims(size_t first, size_t rank) const;
  // Returns the dims of the tensor that result `index` is a gradient of; nothing if no node takes it.
  std::optional<std::vector<Dim>> dims_of_result(const BackwardCall& call, size_t index) const;

  const BackwardSchedule& walk_;
  const SizePattern& pattern_;
  const std::shared_ptr<SymbolicSizes> symbols_;
  std::vector<std::optional<TensorFacts>> saved_;  // none without symbols
};

}  // namespace sconce
