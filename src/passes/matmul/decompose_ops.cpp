#include "passes/matmul/decompose_ops.h"

#include "analysis/effects.h"
#include "analysis/matrix_products.h"
#include "analysis/memory/escapes.h"
#include "passes/insert_node.h"
#include "passes/matmul/known_matrices.h"

#include <algorithm>
#include <vector>

namespace sconce {
namespace {

// ---- where it pays ----------------------------------------------------------------------------------------------------

bool is_product(const Value& value, const Block* block) {
  return value.node()->owning_block() == block && matrix_product(*value.node());
}

// Returns whether another product of the block has the same operand on the same side.
bool shares_operand(const Node& node, const MatrixProduct& product) {
  const auto shares = [&](const Value& operand, bool is_left) {
    return std::ranges::any_of(operand.uses(), [&](const Use& use) {
      const auto other = matrix_product(*use.user);
      return other && use.user != &node && use.user->owning_block() == node.owning_block() &&
             use.index == (is_left ? other->left : other->right) &&
             (is_left || other->right_is_transposed == product.right_is_transposed);
    });
  };
  return shares(*node.input(product.left), true) || shares(*node.input(product.right), false);
}

bool is_part_of_sum(const Node& node, const MatrixProduct& product) {
  const Block* block = node.owning_block();
  return is_product(*node.input(*product.addend), block) || std::ranges::any_of(node.output()->uses(), [&](const Use& use) {
           return use.user->owning_block() == block && is_plain_sum(*use.user) && use.index < 2 &&
                  is_product(*use.user->input(1 - use.index), block);
         });
}

// ---- whether it may ---------------------------------------------------------------------------------------------------

struct Parts {
  MatrixProduct product;
  ProductFactors factors;
  TensorFacts right;
  TensorFacts result;  // facts of the product and of the sum
  bool adds = false;
};

std::optional<Parts> parts_of(const Node& node) {
  const auto product = matrix_product(node);
  if (!product || !product->addend || node.inputs().size() <= *product->addend) {
    return std::nullopt;
  }
  const auto left = known_tensor(*node.input(product->left));
  const auto right = known_matrix(*node.input(product->right));
  const auto result = known_tensor(*node.output());
  if (!left || !right || !result || !is_alike(*left, *right) || !is_alike(*left, *result) ||
      left->sizes->size() != result->sizes->size() || left->sizes->size() < 2 || !adds_in_any_order(*left->dtype)) {
    return std::nullopt;
  }
  if (!product->left_may_be_batch && left->sizes->size() != 2) {
    return std::nullopt;
  }
  const auto factors = constant_factors(node, c10::isIntegralType(*left->dtype, /*includeBool=*/false));
  if (!factors) {
    return std::nullopt;
  }
  Parts parts{.product = *product, .factors = *factors, .right = *right, .result = *result};
  const Value& addend = *node.input(*product->addend);
  parts.adds = addend.type()->kind() != c10::TypeKind::NoneType;
  const auto added = known_tensor(addend);
  const Dim columns = (*right->sizes)[product->right_is_transposed ? 0 : 1];
  // For a batch with a bias, the whole operator returns a view of its sum; the parts do not.
  if (parts.adds && left->sizes->size() > 2 && !is_read_only_and_local(*node.output())) {
    return std::nullopt;
  }
  // The whole operator rejects a bias per row of a batch, because it flattens the batch to one matrix.
  const bool fits = !parts.adds || (added && leaves_as_is(*added, product_facts(*left, columns)) &&
                                    (left->sizes->size() == 2 || added->sizes->size() <= 1));
  return fits ? std::optional(std::move(parts)) : std::nullopt;
}

// ---- how --------------------------------------------------------------------------------------------------------------

class Decomposition {
 public:
  explicit Decomposition(Graph& graph) : graph_(graph) {}

  bool run() {
    std::vector<Node*> found;  // collected before anything changes, so that both operators that share an operand are found
    const bool sizes_may_change = may_change_sizes(graph_);  // facts of an operand hold where it was made
    for_each_node(graph_.body(), [&](Node* node) {
      const auto product = matrix_product(*node);
      if (product && product->addend && (shares_operand(*node, *product) || is_part_of_sum(*node, *product))) {
        found.push_back(node);
      }
    });
    bool changed = false;
    for (Node* node : found) {
      if (const auto parts = sizes_may_change ? std::nullopt : parts_of(*node)) {
        decompose(*node, *parts);
        changed = true;
      }
    }
    return changed;
  }

 private:
  void decompose(Node& node, const Parts& parts) {
    Value* right = node.input(parts.product.right);
    if (parts.product.right_is_transposed) {
      TensorFacts facts = parts.right;
      std::reverse(facts.sizes->begin(), facts.sizes->end());
      if (facts.strides) {
        std::reverse(facts.strides->begin(), facts.strides->end());
      }
      right = insert_operator(aten::t, {right}, node, facts);
    }
    // The sum requires a gradient if a part does; a part need not require one if the sum does.
    TensorFacts facts = parts.result;
    facts.requires_grad = facts.requires_grad == false ? facts.requires_grad : std::nullopt;
    Value* result = insert_operator(facts.sizes->size() == 2 ? aten::mm : aten::matmul,
                                    {node.input(parts.product.left), right}, node, facts);
    if (parts.factors.of_product != nullptr) {
      result = insert_operator(aten::mul, {result, parts.factors.of_product}, node, facts);
    }
    if (parts.adds) {
      Value* factor =
          parts.factors.of_addend != nullptr ? parts.factors.of_addend : graph_.insert_constant(int64_t{1}, &node);
      result = insert_operator(aten::add, {result, node.input(*parts.product.addend), factor}, node, parts.result);
    }
    result->set_name(node.output()->name());
    if (node.output()->facts() != nullptr) {
      result->set_facts(*node.output()->facts());
    }
    node.output()->replace_all_uses_with(result);
    node.erase();
  }

  Graph& graph_;
};

}  // namespace

bool decompose_ops(Graph& graph) { return Decomposition(graph).run(); }

}  // namespace sconce
