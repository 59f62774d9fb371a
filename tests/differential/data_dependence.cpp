#include "tests/differential/data_dependence.h"

#include "ir/facts.h"
#include "ir/memory_types.h"

#include <ATen/core/class_type.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace sconce::testing {
namespace {

bool is_tensor(const c10::TypePtr& type) {
  return type->kind() == c10::TypeKind::TensorType || type->isSubtypeOf(*c10::OptionalType::ofTensor());
}

// Numbers, strings, and lists of them.
bool is_data(const c10::TypePtr& type) {
  switch (type->kind()) {
    case c10::TypeKind::IntType:
    case c10::TypeKind::FloatType:
    case c10::TypeKind::BoolType:
    case c10::TypeKind::NumberType:
    case c10::TypeKind::ComplexType:
    case c10::TypeKind::StringType: return true;
    case c10::TypeKind::ListType:
    case c10::TypeKind::DictType:
    case c10::TypeKind::OptionalType:
    case c10::TypeKind::TupleType: {
      const auto contained = type->containedTypes();
      return std::any_of(contained.begin(), contained.end(), is_data);
    }
    default: return false;
  }
}

bool is_among(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Operators on tensors whose results have as many elements as the values say, beside those that LibTorch tags so.
bool has_sizes_of_data(const Node& node) {
  const std::string_view name = node.kind().toQualString();
  if (name == "aten::where") {
    return node.inputs().size() == 1;
  }
  return is_among(name, {"aten::nonzero", "aten::nonzero_numpy", "aten::argwhere", "aten::masked_select", "aten::unique_dim",
                         "aten::_unique", "aten::_unique2", "aten::unique_consecutive", "aten::bincount", "aten::one_hot",
                         "aten::_pack_padded_sequence", "aten::_pad_packed_sequence", "aten::_values", "aten::values",
                         "aten::_indices", "aten::indices", "torchvision::nms"}) ||
         (node.op().has_tag(at::Tag::dynamic_output_shape) && name != "aten::index");
}

// Numbers that choose or scale, and do not count.
bool tells_no_size(const Node& node, const c10::Argument& argument) {
  const std::string_view op = node.kind().toQualString();
  if (node.op().has_tag(at::Tag::pointwise) ||
      is_among(argument.name(), {"fill_value", "value", "seed", "alpha", "beta", "padding_idx", "high", "low", "dtype",
                                 "non_blocking", "copy", "training", "train", "p", "eps", "momentum", "correction"}) ||
      (op == "aten::select" && argument.name() == "index") || is_among(op, {"aten::tensor", "aten::scalar_tensor"})) {
    return argument.type()->kind() != c10::TypeKind::ListType;
  }
  const bool is_fraction =
      argument.type()->kind() == c10::TypeKind::FloatType || argument.type()->kind() == c10::TypeKind::NumberType;
  const bool has_tensors =
      std::any_of(node.inputs().begin(), node.inputs().end(), [](const Value* input) { return is_tensor(input->type()); });
  return is_fraction && has_tensors;
}

}  // namespace

class DataDependence::Analysis {
 public:
  Analysis(const Graph& graph, std::function<bool(const Value&)> has_known_sizes)
      : has_known_sizes_(std::move(has_known_sizes)) {
    for_each_node(graph.body(), [&](const Node* node) {
      if (node->kind() == prim::SetAttr && is_data(node->input(1)->type())) {
        cells_[cell_of(*node)] = true;
      }
    });
    for (const Value* input : graph.inputs()) {
      if (is_data(input->type())) {
        add(*input, true);
      }
    }
    do {
      changed_ = false;
      visit(graph.body(), false);
    } while (changed_);
  }

  bool depends(const Value& value) const {
    const auto found = depends_.find(&value);
    return found != depends_.end() && std::find(found->second.begin(), found->second.end(), true) != found->second.end();
  }

 private:
  using Cell = std::pair<std::string, std::string>;  // an attribute of a class
  using Elements = std::vector<bool>;                // of a tuple; of other values one

  static Cell cell_of(const Node& node) {
    const auto type = node.input(0)->type();
    const auto* object = type->castRaw<c10::ClassType>();
    return {object == nullptr ? type->str() : object->name()->qualifiedName(), node.attribute_as<std::string>(attr::kName)};
  }

  static size_t count_of(const Value& value) {
    return value.type()->kind() == c10::TypeKind::TupleType ? value.type()->containedTypes().size() : 1;
  }

  bool at(const Value& value, size_t element) const {
    const auto found = depends_.find(&value);
    return found != depends_.end() && found->second[element];
  }

  void add(const Value& value, bool depends) {
    for (size_t i = 0; i < count_of(value); ++i) {
      add(value, i, depends);
    }
  }

  void add(const Value& value, size_t element, bool depends) {
    if (!depends || (is_tensor(value.type()) && has_known_sizes_(value))) {
      return;
    }
    Elements& elements = depends_.try_emplace(&value, Elements(count_of(value), false)).first->second;
    changed_ |= !elements[element];
    elements[element] = true;
  }

  void copy(const Value& from, const Value& to) {
    const bool is_same_kind = count_of(from) == count_of(to);
    for (size_t i = 0; i < count_of(to); ++i) {
      add(to, i, is_same_kind ? at(from, i) : depends(from));
    }
  }

  // What is one object of several names: a list or dict, that somebody may change under either.
  void share(const Value& a, const Value& b) {
    copy(a, b);
    if (is_container(a.type()) && a.type()->kind() != c10::TypeKind::TupleType) {
      copy(b, a);
    }
  }

  void visit(const Block& block, bool is_chosen_by_data) {
    for (const Node* node : block.nodes()) {
      visit(*node, is_chosen_by_data);
    }
  }

  void visit(const Node& node, bool is_chosen_by_data) {
    switch (static_cast<c10::unique_t>(node.kind())) {
      case prim::Constant: return;
      case prim::If: visit_if(node, is_chosen_by_data); return;
      case prim::Loop: visit_loop(node, is_chosen_by_data); return;
      case prim::TupleConstruct:
        for (size_t i = 0; i < node.inputs().size(); ++i) {
          add(*node.output(), i, depends(*node.input(i)));
        }
        return;
      case prim::TupleUnpack:
        for (size_t i = 0; i < node.outputs().size(); ++i) {
          add(*node.output(i), at(*node.input(0), i));
        }
        return;
      case prim::GetAttr: add(*node.output(), cells_[cell_of(node)]); return;
      case prim::SetAttr: {
        bool& cell = cells_[cell_of(node)];
        const bool depends_now = cell || depends(*node.input(1)) || is_chosen_by_data;
        changed_ |= cell != depends_now;
        cell = depends_now;
        return;
      }
      case prim::unchecked_cast:
      case prim::unchecked_unwrap_optional:
      case aten::_unwrap_optional: share(*node.input(0), *node.output()); return;
      default: break;
    }
    if (node.schema() == nullptr) {
      for (const Value* output : node.outputs()) {
        for (const Value* input : node.inputs()) {
          add(*output, depends(*input));
        }
      }
      return;
    }
    visit_operator(node, is_chosen_by_data);
  }

  void visit_if(const Node& node, bool is_chosen_by_data) {
    const bool by_data = depends(*node.input(0));
    for (const Block* block : node.blocks()) {
      visit(*block, is_chosen_by_data || by_data);
      for (size_t i = 0; i < node.outputs().size(); ++i) {
        share(*block->returns()[i], *node.output(i));
      }
    }
    for (size_t i = 0; i < node.outputs().size(); ++i) {
      add(*node.output(i), by_data && node.block(0)->returns()[i] != node.block(1)->returns()[i]);
    }
  }

  void visit_loop(const Node& node, bool is_chosen_by_data) {
    const Block& body = *node.block(0);
    const bool by_data = depends(*node.input(0)) || depends(*node.input(1)) || depends(*body.returns()[0]);
    for (size_t i = 0; i < node.outputs().size(); ++i) {
      share(*node.input(i + 2), *body.params()[i + 1]);
    }
    visit(body, is_chosen_by_data || by_data);
    for (size_t i = 0; i < node.outputs().size(); ++i) {
      share(*body.returns()[i + 1], *body.params()[i + 1]);
      share(*body.params()[i + 1], *node.output(i));
      add(*node.output(i), by_data && body.returns()[i + 1] != body.params()[i + 1]);
    }
  }

  void visit_operator(const Node& node, bool is_chosen_by_data) {
    const auto& arguments = node.schema()->arguments();
    bool any = false;
    bool sizes = has_sizes_of_data(node) || is_masked(node);
    bool reads_tensor = false;
    for (size_t i = 0; i < node.inputs().size(); ++i) {
      const Value& input = *node.input(i);
      any |= depends(input);
      reads_tensor |= is_tensor(input.type());
      sizes |= depends(input) && (i >= arguments.size() || !is_data(input.type()) || !tells_no_size(node, arguments[i]));
    }
    for (const Value* output : node.outputs()) {
      add(*output, !is_data(output->type()) ? sizes
                   : is_about_tensor(node)  ? asks_for_sizes(node) && any
                                            : any || reads_tensor);
    }
    for (size_t i = 0; i < std::min(node.inputs().size(), arguments.size()); ++i) {
      const c10::AliasInfo* alias = arguments[i].alias_info();
      if (alias != nullptr && alias->isWrite() && is_container(node.input(i)->type())) {
        taint_container(*node.input(i), any || is_chosen_by_data);
      }
    }
  }

  // The list, and the one it was taken out of.
  void taint_container(const Value& container, bool depends_now) {
    const Value* holder = &container;
    while (depends_now && holder != nullptr) {
      add(*holder, true);
      const Node& node = *holder->node();
      const bool is_taken = node.kind() == aten::__getitem__ || node.kind() == prim::unchecked_cast;
      if (node.kind() == prim::GetAttr) {
        bool& cell = cells_[cell_of(node)];
        changed_ |= !cell;
        cell = true;
      }
      holder = is_taken ? node.input(0) : nullptr;
    }
  }

  // An index by a mask has as many elements as the mask has that are true.
  static bool is_masked(const Node& node) {
    if (node.kind() != aten::index) {
      return false;
    }
    const Node& indices = *node.input(1)->node();
    return indices.kind() != prim::ListConstruct ||
           std::any_of(indices.inputs().begin(), indices.inputs().end(), [](const Value* index) {
             const TensorFacts* facts = index->facts();
             return facts != nullptr && (facts->dtype == c10::kBool || facts->dtype == c10::kByte);
           });
  }

  static bool asks_for_sizes(const Node& node) {
    return is_among(node.kind().toQualString(), {"aten::size", "aten::len", "aten::numel", "aten::stride"});
  }

  static bool is_about_tensor(const Node& node) {
    return asks_for_sizes(node) ||
           is_among(node.kind().toQualString(),
                    {"aten::dim", "prim::dtype", "prim::device", "prim::layout", "prim::is_cuda", "prim::requires_grad",
                     "prim::is_nested", "prim::is_sparse", "prim::is_quantized", "aten::is_floating_point",
                     "aten::is_complex", "aten::is_contiguous", "aten::__is__", "aten::__isnot__", "prim::type"});
  }

  std::function<bool(const Value&)> has_known_sizes_;
  std::unordered_map<const Value*, Elements> depends_;
  std::map<Cell, bool> cells_;
  bool changed_ = false;
};

DataDependence::DataDependence(const Graph& seen, std::function<bool(const Value&)> has_known_sizes)
    : analysis_(std::make_unique<Analysis>(seen, std::move(has_known_sizes))) {}
DataDependence::~DataDependence() = default;

bool DataDependence::depends_on_data(const Value& value) const { return analysis_->depends(value); }

}  // namespace sconce::testing
