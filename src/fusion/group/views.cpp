#include "fusion/group/views.h"

#include "fusion/program/operators.h"
#include "ir/constant_operands.h"
#include "ops/op.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_strided.h>
#include <torch/library.h>

#include <algorithm>
#include <unordered_set>

namespace sconce {
namespace {

// Returns the operator that made the value's view, or the list of views that the value is an element of.
const Node& view_operator(const Value& value) {
  const Node& node = *value.node();
  return node.opcode() == Opcode::kListUnpack ? *node.input(0)->node() : node;
}

struct MetaRun {
  at::Tensor base;
  std::vector<at::Tensor> results;
};
// Runs the operator itself on a tensor without memory. Returns no results if it raises: the operator's own step reports it.
MetaRun run_on_meta(const Node& op, const Form& base) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  MetaRun run{at::empty_strided(base.sizes, base.strides, at::TensorOptions().device(at::kMeta)), {}};
  torch::jit::Stack stack = {run.base};
  for (size_t i = 1; i < op.inputs().size(); ++i) {
    stack.push_back(*op.input(i)->constant());
  }
  try {
    op.op().dispatched->callBoxed(stack);
  } catch (const c10::Error&) {
    return run;
  }
  const c10::IValue& result = stack.front();
  run.results = result.isTensor() ? std::vector<at::Tensor>{result.toTensor()} : result.toTensorVector();
  return run;
}

// Returns whether all users of the result compute element by element.
bool is_read_by_elements(const Node& node) {
  return std::ranges::all_of(node.output()->uses(), [](const Use& use) {
    return use.user->schema() != nullptr && has_element_rule(use.user->op());
  });
}

}  // namespace

bool is_index_view(const Node& node) {
  static const auto* const operators = new std::unordered_set<c10::OperatorName>{
      {"aten::transpose", "int"}, {"aten::t", ""},      {"aten::permute", ""},     {"aten::unsqueeze", ""},
      {"aten::squeeze", "dim"},   {"aten::expand", ""}, {"aten::narrow", ""},      {"aten::slice", "Tensor"},
      {"aten::select", "int"},    {"aten::chunk", ""},  {"aten::split", "Tensor"}, {"aten::split_with_sizes", ""},
      {"aten::unbind", "int"},    {"aten::detach", ""},
  };
  return node.schema() != nullptr && has_constant_arguments(node) &&
         (operators->contains(node.schema()->operator_name()) ||
          (node.kind() == aten::contiguous && is_read_by_elements(node)));
}

bool may_copy(const Node& node) {
  static const auto* const operators = new std::unordered_set<c10::OperatorName>{
      {"aten::flatten", "using_ints"}, {"aten::reshape", ""}, {"aten::contiguous", ""}};
  return node.schema() != nullptr && operators->contains(node.schema()->operator_name()) && has_constant_arguments(node);
}

std::optional<c10::DimVector> copied_sizes(const Node& node, const Form& base) {
  const auto [form, results] = run_on_meta(node, base);
  if (results.size() != 1 || results[0].is_alias_of(form)) {
    return std::nullopt;
  }
  // With sizes of 1, a tensor that is contiguous may have other strides than the kernel's result: those of a memory format.
  c10::DimVector sizes(results[0].sizes().begin(), results[0].sizes().end());
  return results[0].strides() == contiguous_form(sizes).strides ? std::optional(std::move(sizes)) : std::nullopt;
}

const Value* viewed_by(const Value& value) {
  const Node& op = view_operator(value);
  return is_index_view(op) ? op.input(0) : nullptr;
}

bool keeps_elements(const Value& view) { return view.node()->kind() == aten::contiguous; }

std::optional<View> Views::of(const Value& value, const Form& base) {
  const Node& op = view_operator(value);
  auto known = std::ranges::find_if(known_, [&](const Known& each) { return each.op == &op && each.base == base; });
  if (known == known_.end()) {
    std::vector<View> views;
    for (const at::Tensor& view : run_on_meta(op, base).results) {
      views.push_back({form_of(view), view.storage_offset()});
    }
    known_.push_back({&op, base, std::move(views)});
    known = known_.end() - 1;
  }
  const auto outputs = value.node()->outputs();
  const auto index = static_cast<size_t>(std::ranges::find(outputs, &value) - outputs.begin());
  // A list of another length than is unpacked raises.
  return known->views.size() == outputs.size() ? std::optional(known->views[index]) : std::nullopt;
}

}  // namespace sconce
