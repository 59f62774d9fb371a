#include "plan/timeline/step_work.h"

#include "analysis/matrix_products.h"
#include "ir/constant_operands.h"
#include "ir/kernel_node.h"
#include "passes/simplify/propagate_facts.h"

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
#include <unordered_set>

namespace sconce {
namespace {

const Value* looked_up_by(const Node& node) {
  const std::string_view argument = node.op().looked_up;
  return argument.empty() ? nullptr : node.named_input(argument);
}

// Returns nothing if the value is no tensor whose sizes and dtype are known.
std::optional<double> elements_of(const Value& value) {
  const TensorFacts* facts = is_tensor(value) ? value.facts() : nullptr;
  if (facts == nullptr || !facts->sizes || !facts->dtype || !std::ranges::all_of(*facts->sizes, &Dim::is_known)) {
    return std::nullopt;
  }
  double elements = 1;
  for (const Dim size : *facts->sizes) {
    elements *= static_cast<double>(size.value());
  }
  return elements;
}

double size_of(const Value& value, int64_t dim) {
  const auto& sizes = *value.facts()->sizes;
  return static_cast<double>(
      sizes.at(static_cast<size_t>(dim < 0 ? dim + static_cast<int64_t>(sizes.size()) : dim)).value());
}

double bytes_of(const Value& value) {
  return *elements_of(value) * static_cast<double>(c10::elementSize(*value.facts()->dtype));
}

// Returns whether the node computes the value: a kernel may leave out what nothing uses.
bool is_computed(const Value& output) { return is_tensor(output) && !output.uses().empty(); }

bool has_rank(const Value& value, size_t least) { return elements_of(value) && value.facts()->sizes->size() >= least; }

// Tensors, and elements of lists that the graph makes for the node.
std::vector<const Value*> tensor_operands(const Node& node) {
  std::vector<const Value*> tensors;
  for (const Value* input : node.inputs()) {
    if (is_tensor(*input)) {
      tensors.push_back(input);
    } else if (input->node()->opcode() == Opcode::kListConstruct) {
      std::ranges::copy_if(input->node()->inputs(), std::back_inserter(tensors),
                           [](const Value* each) { return is_tensor(*each); });
    }
  }
  return tensors;
}

// Returns whether the value is a constant, an attribute, or an element of a list that is an attribute.
bool is_constant(const Value& value) {
  const Node& node = *value.node();
  return node.opcode() == Opcode::kConstant || node.opcode() == Opcode::kGetAttr ||
         (node.opcode() == Opcode::kGetItem && node.input(0)->node()->opcode() == Opcode::kGetAttr);
}

// Returns whether the result is an operand, or a view of one.
bool is_alias(const Node& node, size_t output) {
  const auto& returns = node.schema()->returns();
  return node.op().new_view || (output < returns.size() && returns[output].alias_info() != nullptr);
}

// 2 · M · N · K of left · right
std::optional<double> product_flops(const Value& left, const Value& result) {
  if (!has_rank(left, 1) || !elements_of(result)) {
    return std::nullopt;
  }
  return 2 * *elements_of(result) * size_of(left, -1);
}

// Each element of what the weight is applied to, the result or, transposed, the input, meets one of the weight's rows.
std::optional<double> affine_flops(const Value& elements, const Value* weight) {
  if (weight == nullptr || !has_rank(*weight, 1) || !elements_of(elements) || *elements_of(*weight) == 0) {
    return std::nullopt;
  }
  return 2 * *elements_of(elements) * *elements_of(*weight) / size_of(*weight, 0);
}

std::optional<double> attention_flops(const Node& node) {
  const Value* query = node.named_input("query");
  const Value* key = node.named_input("key");
  if (query == nullptr || key == nullptr || !has_rank(*query, 2) || !has_rank(*key, 2) || !elements_of(*node.output(0))) {
    return std::nullopt;
  }
  return 2 * (*elements_of(*query) + *elements_of(*node.output(0))) * size_of(*key, -2);
}

// Each row of the input meets every weight of every layer and direction.
std::optional<double> recurrent_flops(const Node& node) {
  const Value* input = node.inputs().empty() ? nullptr : node.input(0);
  if (input == nullptr || !has_rank(*input, 2) || size_of(*input, -1) == 0) {
    return std::nullopt;
  }
  double weights = 0;
  for (const Value* tensor : tensor_operands(node)) {
    if (tensor == input || !is_constant(*tensor)) {
      continue;
    }
    if (!elements_of(*tensor)) {
      return std::nullopt;
    }
    weights += tensor->facts()->sizes->size() == 2 ? *elements_of(*tensor) : 0;
  }
  // A list that is an attribute has its weights elsewhere.
  return weights > 0 ? std::optional(2 * weights * *elements_of(*input) / size_of(*input, -1)) : std::nullopt;
}

// The gradients of input and weight take as much as the convolution itself, each.
std::optional<double> convolution_gradient_flops(const Node& node) {
  const auto is_transposed = constant_bool(*node.named_input("transposed"));
  const c10::IValue* mask = node.named_input("output_mask")->constant();
  if (!is_transposed || mask == nullptr || !mask->isBoolList()) {
    return std::nullopt;
  }
  const c10::List<bool> needed = mask->toBoolList();
  const auto once = affine_flops(*node.named_input(*is_transposed ? "input" : "grad_output"), node.named_input("weight"));
  return once ? std::optional(*once * ((needed.get(0) ? 1 : 0) + (needed.get(1) ? 1 : 0))) : std::nullopt;
}

// Returns nothing if the operator is none of these, or sizes are missing.
std::optional<std::optional<double>> special_flops(const Node& node) {
  if (const auto product = matrix_product(node)) {
    return product_flops(*node.input(product->left), *node.output(0));
  }
  if (node.op().affine) {
    const Value* transposed = node.named_input("transposed");
    const bool is_transposed = node.op().affine->transposed || (transposed != nullptr && constant_bool(*transposed) == true);
    return affine_flops(is_transposed ? *node.input(0) : *node.output(0), node.named_input("weight"));
  }
  switch (node.op().arithmetic) {
    case Arithmetic::kElements: return std::nullopt;
    case Arithmetic::kBatchedProduct: return product_flops(*node.input(0), *node.output(0));
    case Arithmetic::kBatchedProductAdded: return product_flops(*node.input(1), *node.output(0));
    case Arithmetic::kAttention: return attention_flops(node);
    case Arithmetic::kRecurrent: return recurrent_flops(node);
    case Arithmetic::kConvolutionGradient: return convolution_gradient_flops(node);
  }
  return std::nullopt;
}

// What an operator computes of its tensors, wherever they lie.
std::optional<StepWork> arithmetic_of(const Node& node) {
  StepWork work;
  for (const Value* output : node.outputs()) {
    if (is_computed(*output) && !elements_of(*output)) {
      return std::nullopt;
    }
    if (is_computed(*output) && work.dtype == c10::ScalarType::Undefined) {
      work.dtype = *output->facts()->dtype;
    }
  }
  if (const auto special = special_flops(node)) {
    if (!*special) {
      return std::nullopt;
    }
    work.flops = **special;
    return work;
  }
  if (node.op().is_language() || node.schema() == nullptr || node.op().reads != Reads::kElements ||
      (!node.outputs().empty() && !node.schema()->is_mutable() && is_alias(node, 0))) {
    return StepWork{};
  }
  for (const Value* output : node.outputs()) {
    work.flops = std::max(work.flops, elements_of(*output).value_or(0));
  }
  const Value* source = looked_up_by(node);
  for (const Value* operand : tensor_operands(node)) {
    if (!elements_of(*operand)) {
      return std::nullopt;
    }
    work.flops = operand == source ? work.flops : std::max(work.flops, *elements_of(*operand));
  }
  return work;
}

class Traffic {
 public:
  // An operand that the nodes do not make themselves. False if its size is not known.
  bool read(const Value& value, const Value* gathered_by) {
    if (!seen_.insert(&value).second) {
      return true;
    }
    if (!elements_of(value)) {
      return false;
    }
    double bytes = bytes_of(value);
    if (gathered_by != nullptr && elements_of(*gathered_by)) {
      bytes = std::min(bytes, bytes_of(*gathered_by));
    }
    bytes_ += bytes;
    constant_bytes_ += is_constant(value) ? bytes : 0;
    return true;
  }
  bool write(const Value& value) {
    if (!elements_of(value)) {
      return false;
    }
    bytes_ += bytes_of(value);
    return true;
  }
  double bytes() const { return bytes_; }
  double constant_bytes() const { return constant_bytes_; }

 private:
  std::unordered_set<const Value*> seen_;
  double bytes_ = 0;
  double constant_bytes_ = 0;
};

// The work of nodes that one step runs, and that return `results` to others.
std::optional<StepWork> work_of(const std::vector<const Node*>& nodes, const std::vector<const Value*>& results) {
  StepWork all;
  Traffic traffic;
  std::unordered_set<const Value*> made;
  double most = -1;
  for (const Node* node : nodes) {
    const auto work = arithmetic_of(*node);
    if (!work) {
      return std::nullopt;
    }
    all.flops += work->flops;
    if (work->flops > most && work->dtype != c10::ScalarType::Undefined) {
      all.dtype = work->dtype;
      most = work->flops;
    }
    made.insert(node->outputs().begin(), node->outputs().end());
    if (work->dtype == c10::ScalarType::Undefined && nodes.size() == 1) {
      return all;  // a view, a question of sizes, or the language's own
    }
    const Value* source = looked_up_by(*node);
    for (const Value* operand : tensor_operands(*node)) {
      if (!made.contains(operand) && !traffic.read(*operand, operand == source ? node->output(0) : nullptr)) {
        return std::nullopt;
      }
    }
    if (node->schema() != nullptr && node->schema()->is_mutable() && node->op().is_marked_as_written(0) &&
        !traffic.write(*node->input(0))) {
      return std::nullopt;
    }
  }
  for (const Value* result : results) {
    const bool is_part = result->node()->schema() != nullptr && is_alias(*result->node(), result->offset());
    if (is_computed(*result) && !is_part && !traffic.write(*result)) {
      return std::nullopt;
    }
  }
  all.bytes = traffic.bytes();
  all.constant_bytes = traffic.constant_bytes();
  return all;
}

// Sets the facts of inputs, and of tensors that are attributes of objects among them. Returns what is known of the others.
InputAssumptions give(Graph& graph, const std::vector<GivenInput>& inputs) {
  InputAssumptions given;
  std::unordered_map<const Value*, c10::IValue> objects;
  const auto set = [&](Value& value, const GivenInput& input) {
    if (input.object.isObject()) {
      objects[&value] = input.object;
    } else if (const TensorFacts* facts = input.value.as_tensor(); facts != nullptr && is_tensor(value)) {
      value.set_facts(*facts);
    } else if (!input.value.is_unknown()) {
      given.values[&value] = input.value;
    }
  };
  for (size_t i = 0; i < inputs.size() && i < graph.inputs().size(); ++i) {
    set(*graph.inputs()[i], inputs[i]);
  }
  for_each_node(graph.body(), [&](Node* node) {
    if (node->opcode() == Opcode::kGetAttr && objects.contains(node->input(0))) {
      const auto object = objects.at(node->input(0)).toObject();
      if (const auto slot = object->type()->findAttributeSlot(node->attribute_as<std::string>(attr::kName))) {
        set(*node->output(0), given_input(object->getSlot(*slot)));
      }
    }
  });
  return given;
}

std::vector<Node*> nodes_of(Graph& graph) {
  std::vector<Node*> nodes;
  for_each_node(graph.body(), [&](Node* node) { nodes.push_back(node); });
  return nodes;
}

}  // namespace

GivenInput given_input(const c10::IValue& value) {
  return value.isObject() ? GivenInput{{}, value} : GivenInput{AbstractValue::constant(value), {}};
}

GraphWork::GraphWork(const Graph& graph, const std::vector<GivenInput>& inputs,
                     const std::unordered_map<const Value*, TensorFacts>& computed) {
  const std::unique_ptr<Graph> copy = graph.clone();
  std::vector<const Node*> originals;
  for_each_node(graph.body(), [&](const Node* node) { originals.push_back(node); });
  const std::vector<Node*> copies = nodes_of(*copy);
  // A kernel node is gone from the copy whose sizes are known; what it ran is not.
  struct Group {
    std::vector<const Node*> nodes;
    std::vector<const Value*> results;
  };
  std::vector<Group> groups;
  for (Node* node : copies) {
    if (node->opcode() == Opcode::kKernel) {
      const auto returns = node->block(0)->returns();
      Group group{{}, {returns.begin(), returns.end()}};
      for (Node* inner : node->block(0)->nodes()) {
        group.nodes.push_back(inner);
      }
      groups.push_back(std::move(group));
    } else {
      groups.push_back({{node}, {node->outputs().begin(), node->outputs().end()}});
    }
  }
  const InputAssumptions given = give(*copy, inputs);
  for (size_t i = 0; i < originals.size(); ++i) {
    for (size_t output = 0; output < originals[i]->outputs().size(); ++output) {
      if (const auto known = computed.find(originals[i]->output(output)); known != computed.end()) {
        copies[i]->output(output)->set_facts(known->second);
      }
    }
  }
  dissolve_kernel_nodes(*copy);
  propagate_facts(*copy, given);
  for (size_t i = 0; i < originals.size(); ++i) {
    work_[originals[i]] = work_of(groups[i].nodes, groups[i].results);
  }
}

std::optional<StepWork> GraphWork::of(const Node& node) const { return work_.at(&node); }

}  // namespace sconce
