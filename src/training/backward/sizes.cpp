#include "training/backward/sizes.h"

#include "trace/sizes/symbolic_facts.h"
#include "training/backward/node_hooks.h"

#include <utility>

namespace sconce {

using torch::autograd::InputMetadata;
using torch::autograd::variable_list;

BackwardSizes::BackwardSizes(const BackwardSchedule& walk, const SizePattern& pattern)
    : walk_(walk),
      pattern_(pattern),
      symbols_(pattern.has_symbols() ? std::make_shared<SymbolicSizes>(pattern.values()) : nullptr) {
  if (symbols_ != nullptr) {
    saved_ = facts_by_pattern(walk.tensors(), pattern, walk.first_size_of_tensors(), symbols_->arithmetic());
  }
}

std::vector<std::optional<c10::SymInt>> BackwardSizes::saved_numbers() const {
  std::vector<std::optional<c10::SymInt>> numbers(walk_.first_size_of_tensors() - walk_.first_saved_size());
  for (size_t i = 0; symbols_ != nullptr && i < numbers.size(); ++i) {
    const size_t size = walk_.first_saved_size() + i;
    const Dim dim = pattern_.dim(size, symbols_->arithmetic());
    if (!dim.is_known()) {
      numbers[i] = symbols_->sym_int(dim, walk_.sizes()[size]);
    }
  }
  return numbers;
}

std::vector<Dim> BackwardSizes::dims(size_t first, size_t rank) const {
  std::vector<Dim> dims;
  for (size_t i = 0; i < rank; ++i) {
    dims.push_back(pattern_.dim(first + i, symbols_->arithmetic()));
  }
  return dims;
}

std::optional<TensorFacts> BackwardSizes::facts_like(const std::optional<TensorFacts>& like, const at::Tensor& real) const {
  if (symbols_ == nullptr) {
    return std::nullopt;
  }
  SizeArithmetic& arithmetic = symbols_->arithmetic();
  return facts_of_sizes(real, agreeing_dims(like ? *like->sizes : std::vector<Dim>(), real.sizes(), arithmetic), arithmetic);
}

std::optional<std::vector<Dim>> BackwardSizes::dims_of_result(const BackwardCall& call, size_t index) const {
  size_t first = call.first_size;
  for (size_t i = 0; i < call.node->num_outputs(); ++i) {
    const torch::autograd::Edge& edge = call.node->next_edge(i);
    if (!edge.is_valid() || !walk_.runs(*edge.function)) {
      continue;
    }
    const size_t rank = edge.function->input_metadata(edge.input_nr).shape_as_dim_vector().size();
    if (i == index) {
      return dims(first, rank);
    }
    first += rank;
  }
  return std::nullopt;
}

std::optional<TensorFacts> BackwardSizes::facts_of_result(const BackwardCall& call, size_t result,
                                                          const at::Tensor& real) const {
  if (symbols_ == nullptr || real.layout() != c10::kStrided) {
    return std::nullopt;
  }
  auto sizes = dims_of_result(call, result);
  const bool is_fitted = sizes && sizes->size() == static_cast<size_t>(real.dim());
  return facts_of_sizes(real,
                        is_fitted ? std::move(*sizes) : std::vector<Dim>(static_cast<size_t>(real.dim()), Dim::unknown()),
                        symbols_->arithmetic());
}

void BackwardSizes::fit_results(const BackwardCall& call, variable_list& results) const {
  if (symbols_ == nullptr) {
    sconce::fit_results(*call.node, results);
    return;
  }
  std::vector<std::optional<InputMetadata>> metadata(call.node->num_outputs());
  for (size_t i = 0; i < metadata.size(); ++i) {
    const torch::autograd::Edge& edge = call.node->next_edge(i);
    const auto sizes = dims_of_result(call, i);
    if (!sizes) {
      if (i < results.size()) {
        results[i] = at::Tensor();
      }
      continue;
    }
    const InputMetadata& own = edge.function->input_metadata(edge.input_nr);
    torch::autograd::SymIntSmallVec shape;
    for (size_t dim = 0; dim < sizes->size(); ++dim) {
      shape.push_back(symbols_->sym_int((*sizes)[dim], own.shape_as_dim_vector()[dim].expect_int()));
    }
    metadata[i].emplace(own.options(), shape, own.is_tensor_subclass(), own.is_nested_tensor(), own.grad_dtype());
  }
  torch::autograd::validate_outputs(metadata, results, [&](const std::string& message) {
    return "Function " + call.node->name() + " returned an " + message;
  });
}

TraceSizes BackwardSizes::captured(const std::vector<size_t>& symbols) const {
  TraceSizes sizes = symbols_ != nullptr ? TraceSizes::of(*symbols_) : TraceSizes();
  sizes.inputs.clear();
  for (const size_t symbol : symbols) {
    sizes.inputs.push_back(static_cast<int64_t>(symbol + 1));
  }
  return sizes;
}

}  // namespace sconce
