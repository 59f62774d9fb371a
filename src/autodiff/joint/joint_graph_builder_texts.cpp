// Gradients that the texts of rows give.
//
//   %dy                                  %g0 = prim::GradOf(%dy)
//   %y = tanh(%x + %b)            →        block0(): %d = tanh_backward(%dy, %y) -> (%d)
//                                        %dx, %db = prim::GradOf(%g0)
//                                          block0(): %s = sum(%g0, [0], …) -> (%g0, %s)
#include "analysis/nested_uses.h"
#include "autodiff/joint/build_nodes.h"
#include "autodiff/joint/joint_graph_builder.h"
#include "autodiff/joint/reduce_gradient.h"
#include "autodiff/select/roles.h"
#include "ir/constant_operands.h"

#include <ATen/core/List.h>
#include <ATen/core/jit_type.h>

#include <algorithm>

namespace sconce {
namespace {

// Returns whether the gradient is undefined in a run in which another of those with `source_count` sources is defined.
bool may_be_undefined(const Gradient& gradient, size_t source_count) {
  return gradient.value != nullptr && gradient.sources.size() < source_count;
}

}  // namespace

// Returns whether facts say that each size of result `at` is a number, or that of the other results which gradients flow to.
bool JointGraphBuilder::has_sizes_of_others(const Differentiated& each, const Gradients& gradients, size_t at) {
  const auto sizes_of = [&](size_t result) {
    const TensorFacts* facts = each.results[result]->facts();
    return facts != nullptr && facts->sizes ? &*facts->sizes : nullptr;
  };
  const std::vector<Dim>* sizes = sizes_of(at);
  bool has = sizes != nullptr;
  for (size_t other = 0; has && other < gradients.size(); ++other) {
    if (other == at || gradients[other].value == nullptr) {
      continue;
    }
    const std::vector<Dim>* others = sizes_of(other);
    has = others != nullptr && others->size() == sizes->size();
    for (size_t dim = 0; has && dim < sizes->size(); ++dim) {
      has = (*sizes)[dim].is_known() || (!(*sizes)[dim].is_unknown() && (*sizes)[dim] == (*others)[dim]);
    }
  }
  return has;
}

// Inserts zeros for a result that has no gradient in a run where another has one. Its sizes are read from that one where
// they can be, so that forward need not save them.
Value* JointGraphBuilder::insert_missing_gradient(const Differentiated& each, const Gradients& gradients, size_t at,
                                                  Value* saved_sizes, Node* position) {
  Value* result = each.results[at];
  if (saved_sizes != nullptr) {
    return insert_zeros(result, saved_sizes, position);
  }
  Value* defined = nullptr;
  for (size_t other = 0; other < gradients.size(); ++other) {
    Value* gradient = other == at ? nullptr : gradients[other].value;
    if (gradient != nullptr) {
      Value* before = defined;
      defined = before == nullptr ? gradient
                                  : insert_choice(
                                        insert_any_defined({gradient}, position), gradient,
                                        [&](Node* /*position*/) { return before; }, position);
    }
  }
  Values sizes;
  const std::vector<Dim>& dims = *result->facts()->sizes;
  for (size_t dim = 0; dim < dims.size(); ++dim) {
    Value* number = graph_.insert_constant(dims[dim].is_known() ? dims[dim].value() : static_cast<int64_t>(dim), position);
    sizes.push_back(dims[dim].is_known() ? number : insert_size(defined, number, position));
  }
  return insert_zeros(result, insert_int_list(sizes, position), position);
}

// Fills missing entries: zeros for results that may require a gradient, an arbitrary gradient for the others, which the text
// ignores. If one entry is defined in a run, all are.
JointGraphBuilder::Values JointGraphBuilder::fill(const Differentiated& each, const Gradients& gradients) {
  const auto any = std::ranges::find_if(gradients, [](const Gradient& one) { return one.value != nullptr; });
  const size_t source_count = sources_of(gradients).size();
  Values filled;
  for (size_t i = 0; i < gradients.size(); ++i) {
    Value* gradient = gradients[i].value;
    Value* result = each.results[i];
    if (gradient == nullptr && !may_require_grad(*result)) {
      gradient = any->value;
    } else if (gradient == nullptr || may_be_undefined(gradients[i], source_count)) {
      Value* sizes = has_sizes_of_others(each, gradients, i) ? nullptr : insert_sizes(result, end_);
      const auto missing = [&](Node* position) { return insert_missing_gradient(each, gradients, i, sizes, position); };
      gradient =
          gradient == nullptr ? missing(end_) : insert_choice(insert_any_defined({gradient}, end_), gradient, missing, end_);
      set_facts_of_gradient(*gradient, *result);
    }
    filled.push_back(gradient);
  }
  return filled;
}

// Returns a list that says of each result whether a gradient flows to it in the run.
Value* JointGraphBuilder::insert_defined(const Gradients& gradients) {
  const size_t source_count = sources_of(gradients).size();
  c10::List<bool> known;
  Values answers;
  bool is_known = true;
  for (const Gradient& gradient : gradients) {
    const bool varies = may_be_undefined(gradient, source_count);
    known.push_back(gradient.value != nullptr);
    answers.push_back(varies ? insert_any_defined({gradient.value}, end_)
                             : graph_.insert_constant(gradient.value != nullptr, end_));
    is_known = is_known && !varies;
  }
  return is_known ? graph_.insert_constant(known, end_)
                  : insert_node(prim::ListConstruct, answers, end_, c10::ListType::ofBools());
}

std::vector<JointGraphBuilder::Part> JointGraphBuilder::parts_by_text(const Differentiated& each, const Gradients& gradients,
                                                                      const Values& filled) {
  const Node& node = *each.node;
  c10::List<bool> needs;
  for (const Value* operand : node.inputs()) {
    needs.push_back(is_reached(operand));
  }
  Values arguments = node.inputs().vec();
  for (const Values* values : {&each.results, &each.saved, &filled}) {
    arguments.insert(arguments.end(), values->begin(), values->end());
  }
  if (each.results.size() > 1) {
    arguments.push_back(insert_defined(gradients));
  }
  arguments.push_back(graph_.insert_constant(needs, end_));
  arguments.push_back(records_);
  Value* tuple = instantiate(*each.gradient->backward, arguments, node, end_);
  const c10::ArrayRef<Value*> entries = insert_tuple_unpack(tuple, end_);
  std::vector<Part> parts;
  for (size_t i = 0; i < node.inputs().size() && i < entries.size(); ++i) {
    if (is_tensor(*node.input(i)) && is_reached(node.input(i)) && !is_none(*entries[i])) {
      Value* entry = as_tensor(entries[i]);
      parts.emplace_back(node.input(i), each.is_recorded ? entry : reduce_gradient(entry, node, i, end_));
    }
  }
  return parts;
}

// An entry is Optional[Tensor] if a branch of the text leaves it out. It is a tensor in every run in which the gradient is
// needed.
Value* JointGraphBuilder::as_tensor(Value* entry) {
  return is_tensor(*entry) ? entry : insert_node(c10::Symbol::fromQualString("aten::_unwrap_optional"), {entry}, end_);
}

// Adds the parts to the gradients of their operands. The nodes after `before` that are computed from the gradients move into
// a prim::GradOf. The others stay outside, where forward can compute what backward then keeps instead of their operands.
void JointGraphBuilder::add_parts(const Differentiated& each, const Gradients& gradients, Node* before,
                                  const std::vector<Part>& parts) {
  Values incoming;
  for (const Gradient& gradient : gradients) {
    if (gradient.value != nullptr) {
      incoming.push_back(gradient.value);
    }
  }
  Node* const grad_of = graph_.create(prim::GradOf, incoming, 0);
  grad_of->set_attribute(attr::kName, std::string(each.node->kind().toQualString()));
  grad_of->set_location(each.node->location());
  Block* const block = grad_of->add_block();
  ValueSet computed(incoming.begin(), incoming.end());
  Node* next = node_after(before, graph_.body());
  for (Node* node = next; node != end_ && node != nullptr; node = next) {
    next = node->next();
    if (uses_any(*node, computed)) {
      computed.insert(node->outputs().begin(), node->outputs().end());
      node->detach();
      node->append_to(*block);
    }
  }
  grad_of->insert_before(end_);
  const std::vector<Value*> sources = sources_of(gradients);
  for (const auto& [operand, part] : parts) {
    block->add_return(part);
    Value* gradient = grad_of->add_output(c10::TensorType::get());
    set_facts_of_gradient(*gradient, *operand);
    sums_.add(operand, {gradient, sources});
  }
}

}  // namespace sconce
