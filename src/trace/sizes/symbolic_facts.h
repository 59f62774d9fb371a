// SymbolicFacts: sizes and strides of the tensors of a trace, as expressions of the inputs' sizes.
#pragma once

#include "ir/graph.h"
#include "shapes/abstract_value.h"
#include "trace/sizes/size_pattern.h"
#include "trace/sizes/symbolic_sizes.h"
#include "trace/trace_tensor.h"

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

namespace sconce {

// A dim that cannot be derived is unknown. What is derived agrees with the run that is traced.
class SymbolicFacts {
 public:
  explicit SymbolicFacts(std::shared_ptr<SymbolicSizes> sizes) : sizes_(std::move(sizes)) {}

  SymbolicSizes& sizes() const { return *sizes_; }

  // Every run has the tensor where this one has it in its storage, or asks only for differences.
  void set_tensor(const Value& value, TensorFacts facts, const at::Tensor& real);
  void set_number(const Value& value, Dim dim);
  // Derives the facts of the node's results from those of its operands. In this run, the operator was called with
  // `arguments` and returned `results`.
  void derive(const Node& node, const std::vector<c10::IValue>& arguments, const std::vector<c10::IValue>& results);
  // Sets facts of a tensor that a list has as an element.
  void set_part(const Value& part, const Value& list, size_t index);

  // Returns null for a value that is no tensor, or of which nothing is known.
  const TensorFacts* of(const Value& value) const;
  // Returns what LibTorch's code sees as the sizes and strides of a tensor; null if they are numbers.
  std::shared_ptr<const SymbolicGeometry> geometry_of(const Value& value, const at::Tensor& real) const;
  // Returns the facts from which a compile starts: of symbols only those of the trace.
  TensorFacts facts_for_compile(const Value& value, const at::Tensor& real) const;

  // Appends what computes a size to the graph, whose first inputs are the symbols. Returns null if nothing can.
  Value* write(Graph& graph, Dim dim);
  Value* write(Graph& graph, const FloatOfSizes& number);

 private:
  struct Call {
    const Node& node;
    AbstractValues operands;
    const std::vector<c10::IValue>& arguments;
    bool is_of_known_sizes;
    size_t parts = 1;  // how many elements the list has that it returns
  };
  AbstractValue operand(const Value& value) const;
  // Guards that the call has as many results of as many dims in other runs.
  void guard_structure(const Call& call, const std::vector<c10::IValue>& results) const;
  Dim offset_of_result(const Call& call, const at::Tensor& real, size_t part) const;
  // `found`: what the operator's rule says. `part`: the element, where the result is a list.
  AbstractValue result(const Call& call, const AbstractValue& found, const at::Tensor& real, size_t part) const;
  std::optional<std::vector<Dim>> strides_of(const Call& call, const std::vector<Dim>& sizes, const at::Tensor& real,
                                             size_t part) const;

  const std::shared_ptr<SymbolicSizes> sizes_;
  std::unordered_map<const Value*, AbstractValue> known_;
  std::unordered_map<const Value*, std::vector<Dim>> offsets_;  // of tensors in their storages; of a list's elements
};

// Returns the dims without those that the run that is traced contradicts: these are unknown. All are if the ranks differ.
std::vector<Dim> agreeing_dims(const std::vector<Dim>& found, at::IntArrayRef real, SizeArithmetic& arithmetic);

// Returns the facts of tensors, the sizes of which (TraceKeyParts::sizes) are those of the pattern from `first` on; nothing
// for a tensor that is not strided.
std::vector<std::optional<TensorFacts>> facts_by_pattern(std::span<const at::Tensor> tensors, const SizePattern& pattern,
                                                         size_t first, SizeArithmetic& arithmetic);

// Returns facts of a tensor of these sizes. Its strides are known if it has no gaps.
TensorFacts facts_of_sizes(const at::Tensor& real, std::vector<Dim> sizes, SizeArithmetic& arithmetic);

// Returns the strides of a tensor without gaps whose dims lie in memory in the order of `like`. Nothing if `like` has gaps.
std::optional<std::vector<Dim>> dense_strides(const std::vector<Dim>& sizes, const at::Tensor& like,
                                              SizeArithmetic& arithmetic);

}  // namespace sconce
