// An operator: the one record that everything asks. A node reads it as node.op().
//
// A record is a row (op_row.h) together with what LibTorch's registries say about one overload. It is built when the
// overload is first met, never changes and is never freed; finding it again takes no lock.
#pragma once

#include "ops/cpu_autocast.h"
#include "ops/op_row.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/symbol.h>

#include <memory>
#include <optional>

namespace torch::jit {
struct Operator;
}  // namespace torch::jit

namespace sconce {

struct Op : OpRow {
  c10::Symbol kind;
  // Null for the language's own nodes and for unresolved ones. Points into LibTorch's registry, or to `own_schema`.
  const c10::FunctionSchema* schema = nullptr;
  std::shared_ptr<const c10::FunctionSchema> own_schema;  // of a composite
  std::optional<c10::OperatorHandle> dispatched;          // empty for operators that only TorchScript's registry has
  std::shared_ptr<torch::jit::Operator> registered;       // null for composites

  // The operator that returns as a new tensor what this one writes into its first argument: aten::relu_ → aten::relu. It has
  // the name without the `_`, the same overload and the same other arguments. Null when there is none, when this one writes
  // or returns anything else, and when autocast casts the operands of one and not of the other.
  const Op* functional = nullptr;
  const Op* canonical = nullptr;  // of a synonym, the operator that it is implemented with; otherwise null

  Effects all_effects = {};  // the row's, with what schema and tags say
  // Whether results without an alias mark may share memory with arguments. True for operators that LibTorch composes of
  // others (CompositeImplicitAutograd), where nothing checks the marks; for those tagged `maybe_aliasing_or_mutating`; for
  // those whose aliasing is a special case of LibTorch's own analysis; and where the row says so. False where the row
  // vouches for fresh results.
  bool results_may_share_memory = true;
  // Whether results may hold arguments where no alias mark says so: a quantized tensor holds its scales, a sparse one its
  // indices and values. False only for operators that are known to compute new strided tensors of strided ones.
  bool results_may_hold_operands = true;
  // Whether the operator may keep an argument after it returned, or return what it kept: true for those of other libraries.
  bool may_keep_operands = true;
  bool may_change_sizes = false;  // sizes, strides or storage of an existing tensor, as `t_`, `resize_` and `out=` do
  CpuAutocast cpu_autocast = CpuAutocast::kNothing;  // what the caller's autocast does to it
  // Whether the record is of a node that runs with the caller's autocast on. What the operator computes is then not known.
  bool runs_under_autocast = false;

  bool is_language() const { return sconce::is_language(opcode); }
  bool has_tag(at::Tag tag) const { return dispatched && dispatched->hasTag(tag); }
  // Whether the operator may write the memory of its argument `index`: the schema marks it, or the row says so.
  bool writes_argument(size_t index) const { return is_marked_as_written(index) || writes_unmarked(index); }
  bool is_marked_as_written(size_t index) const;
  bool writes_unmarked(size_t index) const;
  // The position of the argument `name` in the schema, if it has one.
  std::optional<size_t> argument_index(std::string_view name) const;
  // The row that says how the result depends on the operands: the functional variant's for an in-place operator.
  const OpRow* functional_row() const { return schema != nullptr && schema->is_mutable() ? functional : this; }
};

// The record of the overload that the schema describes. The schema is one of LibTorch's registry.
const Op& op_of(const c10::FunctionSchema& schema);

// The record of a node kind of the language itself (prim::If, prim::GetAttr, …); null for any other kind.
const Op* language_op(c10::Symbol kind);

// The record of a node whose operator is not found yet: it has no schema and unknown effects.
const Op& unresolved_op();

// The record of one of sconce's composites, with a schema that is made for the node. Its results are new. Composites of
// equal schema and effects share a record.
const Op& composite_op(c10::FunctionSchema schema, Opcode opcode, Effects effects = {});

// The record of `op` for nodes that run with the caller's autocast on (attr::kAutocast). It says what `op` says of effects
// and memory, and nothing of what the operator computes.
const Op& op_under_autocast(const Op& op);

// The record of `sconce::autocast_cast`, which casts a tensor as the caller's autocast does, with its cache of cast leaves.
const Op& autocast_cast_op();

// The row of the operator `name` and its overload; null when no row names it.
const OpRow* find_op_row(std::string_view name, std::string_view overload);

}  // namespace sconce
