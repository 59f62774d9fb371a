// Gradients of joins and cuts of lists, and of lists that branches and loops fill.
#include "autodiff/joint/build_nodes.h"
#include "autodiff/joint/joint_graph_builder.h"
#include "autodiff/joint/reduce_gradient.h"

#include <ATen/core/jit_type.h>

namespace sconce {
namespace {

const c10::Symbol& split_with_sizes_symbol() {
  static const c10::Symbol kSplit = c10::Symbol::fromQualString("aten::split_with_sizes");
  return kSplit;
}

}  // namespace

// A cat's gradient is cut into parts of the elements' sizes; a stack's is unbound.
std::vector<JointGraphBuilder::Part> JointGraphBuilder::parts_of_join(const Differentiated& each, Value* gradient) {
  const Node& node = *each.node;
  const c10::ArrayRef<Value*> elements = node.input(0)->node()->inputs();
  Value* dim = node.input(1);
  Value* cut = nullptr;
  if (node.opcode() == Opcode::kStack) {
    cut = insert_node(aten::unbind, {gradient, dim}, end_, c10::ListType::ofTensors());
  } else {
    Values sizes;
    for (Value* element : elements) {
      sizes.push_back(insert_size(element, dim, end_));
    }
    cut = insert_node(split_with_sizes_symbol(), {gradient, insert_int_list(sizes, end_), dim}, end_,
                      c10::ListType::ofTensors());
  }
  cut->node()->set_location(node.location());
  const c10::ArrayRef<Value*> gradients = insert_list_unpack(cut, elements.size(), end_);
  std::vector<Part> parts;
  for (size_t i = 0; i < elements.size(); ++i) {
    if (is_reached(elements[i])) {
      parts.emplace_back(elements[i], cast_gradient(gradients[i], known_dtype(*each.results[0]), elements[i], end_));
    }
  }
  return parts;
}

// The same for a list of unknown length: its gradient is the list of the parts.
void JointGraphBuilder::differentiate_filled_join(const Differentiated& each, const Gradient& gradient) {
  const Node& node = *each.node;
  Value* list = node.input(0);
  Value* dim = node.input(1);
  Value* sizes = node.opcode() == Opcode::kStack ? nullptr : sizes_of_elements(list, dim);
  Value* length = insert_node(aten::len, {list}, end_, c10::IntType::get());
  Node* choice = graph_.create(prim::If, {insert_any_defined({gradient.value}, end_)}, 0);
  choice->set_location(node.location());
  choice->insert_before(end_);
  Block* defined = choice->add_block();
  Node* const position = defined->return_node();
  defined->add_return(
      sizes == nullptr
          ? insert_node(aten::unbind, {gradient.value, dim}, position, c10::ListType::ofTensors())
          : insert_node(split_with_sizes_symbol(), {gradient.value, sizes, dim}, position, c10::ListType::ofTensors()));
  Block* undefined = choice->add_block();
  undefined->add_return(insert_undefined_elements(length, undefined->return_node()));
  list_gradients_[list] = {choice->add_output(c10::ListType::ofTensors()), gradient.sources};
}

Value* JointGraphBuilder::insert_undefined_elements(Value* length, Node* position) {
  Value* one = insert_tensor_list({insert_undefined(position)}, position);
  return insert_node(aten::mul, {one, length}, position, c10::ListType::ofTensors());
}

// Returns the gradient of a list that no gradient reaches, a list of integer tensors for example.
Value* JointGraphBuilder::insert_undefined_list(Value* list, Node* position) {
  return insert_undefined_elements(insert_node(aten::len, {list}, position, c10::IntType::get()), position);
}

// Returns the sizes of the list's elements in the dim.
Value* JointGraphBuilder::sizes_of_elements(Value* list, Value* dim) {
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
JointGraphBuilder::Part JointGraphBuilder::part_of_cut(const Differentiated& each, const Values& gradients) {
  const Node& cut = *each.node->input(0)->node();
  Value* dim = cut.named_input("dim");
  Value* joined = insert_node(cut.opcode() == Opcode::kUnbind ? aten::stack : aten::cat,
                              {insert_tensor_list(gradients, end_), dim}, end_);
  joined->node()->set_location(cut.location());
  return {cut.input(0), joined};
}

void JointGraphBuilder::enter_append(Node& node) {
  Value* list = node.input(0);
  Value* element = node.input(1);
  if (is_reached(element)) {
    note(list, dependences_.at(element));
    Value* index = insert_node(aten::len, {list}, &node, c10::IntType::get());
    tape_.push_back({Kind::kAppend, &node, {}, nullptr, {index}, {}});
  }
}

void JointGraphBuilder::differentiate_append(const Differentiated& each) {
  const auto gradients = list_gradients_.find(each.node->input(0));
  if (gradients == list_gradients_.end()) {
    return;
  }
  Value* element = each.node->input(1);
  Value* gradient = insert_element(gradients->second.list, each.saved[0], end_);
  set_facts_of_gradient(*gradient, *element);
  const std::vector<Value*>& sources = gradients->second.sources;
  sums_.add(element, {gradient, sources.empty() ? std::vector<Value*>{gradient} : sources});
}

}  // namespace sconce
