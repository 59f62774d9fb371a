// Gradients of joins and cuts of lists, and of lists that branches and loops fill.
#include "autodiff/build_nodes.h"
#include "autodiff/differentiation.h"
#include "autodiff/reduce_gradient.h"

#include <ATen/core/jit_type.h>

#include <algorithm>

namespace sconce {
namespace {

const c10::Symbol& split_with_sizes_symbol() {
  static const c10::Symbol kSplit = c10::Symbol::fromQualString("aten::split_with_sizes");
  return kSplit;
}

}  // namespace

// A cat's gradient is cut into parts of the elements' sizes; a stack's is unbound.
void Differentiation::differentiate_join(const Differentiated& each, const Gradient& gradient) {
  const Node& node = *each.node;
  const c10::ArrayRef<Value*> elements = node.input(0)->node()->inputs();
  Value* dim = node.input(1);
  Value* parts = nullptr;
  if (node.opcode() == Opcode::kStack) {
    parts = insert_node(aten::unbind, {gradient.value, dim}, end_, c10::ListType::ofTensors());
  } else {
    Values sizes;
    for (Value* element : elements) {
      sizes.push_back(insert_size(element, dim, end_));
    }
    parts = insert_node(split_with_sizes_symbol(), {gradient.value, insert_int_list(sizes, end_), dim}, end_,
                        c10::ListType::ofTensors());
  }
  parts->node()->set_location(node.location());
  const c10::ArrayRef<Value*> gradients = insert_list_unpack(parts, elements.size(), end_);
  for (size_t i = 0; i < elements.size(); ++i) {
    if (is_reached(elements[i])) {
      sums_.add(elements[i], {cast_gradient(gradients[i], *each.results[0], elements[i], end_), gradient.is_there});
    }
  }
}

// The same for a list of unknown length: its gradient is the list of the parts. Where no gradient is there, the parts are
// zeros.
void Differentiation::differentiate_filled_join(const Differentiated& each, const Gradient& gradient) {
  const Node& node = *each.node;
  Value* list = node.input(0);
  Value* dim = node.input(1);
  Value* parts = node.opcode() == Opcode::kStack
                     ? insert_node(aten::unbind, {gradient.value, dim}, end_, c10::ListType::ofTensors())
                     : insert_node(split_with_sizes_symbol(), {gradient.value, sizes_of_elements(list, dim), dim}, end_,
                                   c10::ListType::ofTensors());
  parts->node()->set_location(node.location());
  list_gradients_[list] = {parts, true};
}

// Returns the sizes of the list's elements in the dim.
Value* Differentiation::sizes_of_elements(Value* list, Value* dim) {
  Value* sizes = insert_empty_list(c10::IntType::get(), end_);
  Value* length = insert_node(aten::len, {list}, end_, c10::IntType::get());
  Node* loop = graph_.create(prim::Loop, {length, graph_.insert_constant(true, end_)}, 0);
  loop->insert_before(end_);
  Block* body = loop->add_block();
  Value* index = body->add_param(c10::IntType::get());
  Node* const end = body->return_node();
  insert_append(sizes, insert_size(insert_element(list, index, end), dim, end), end);
  body->add_return(loop->input(1));
  return sizes;
}

// The gradient of a tensor that was cut: the gradients of its parts, joined.
void Differentiation::differentiate_cut(const Differentiated& each, const Gradients& gradients) {
  const Node& cut = *each.node->input(0)->node();
  Value* dim = cut.named_input("dim");
  Values parts;
  std::transform(gradients.begin(), gradients.end(), std::back_inserter(parts),
                 [](const Gradient& gradient) { return gradient.value; });
  Value* joined =
      insert_node(cut.opcode() == Opcode::kUnbind ? aten::stack : aten::cat, {insert_tensor_list(parts, end_), dim}, end_);
  joined->node()->set_location(cut.location());
  sums_.add(cut.input(0), {joined, gradients[0].is_there});
}

void Differentiation::enter_append(Node& node) {
  Value* list = node.input(0);
  Value* element = node.input(1);
  if (is_reached(element)) {
    note(list, dependences_.at(element));
    Value* index = insert_node(aten::len, {list}, &node, c10::IntType::get());
    tape_.push_back({Kind::kAppend, &node, {}, nullptr, {index}, {}});
  }
}

void Differentiation::differentiate_append(const Differentiated& each) {
  const auto gradients = list_gradients_.find(each.node->input(0));
  if (gradients == list_gradients_.end()) {
    return;
  }
  Value* element = each.node->input(1);
  Value* gradient = insert_element(gradients->second.list, each.saved[0], end_);
  if (gradients->second.is_defined) {
    set_facts_of_gradient(*gradient, *element);
    sums_.add(element, {gradient});
    return;
  }
  sums_.add_if_defined(element, gradient);
}

}  // namespace sconce
