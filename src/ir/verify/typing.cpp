#include "ir/kernel_node.h"
#include "ir/schema_match.h"
#include "ir/text/print.h"
#include "ir/verify/verify.h"

#include <ATen/core/jit_type.h>

#include <algorithm>
#include <array>

namespace sconce {
namespace {

using Violations = std::vector<Violation>;

bool is_a(const Value* value, const c10::TypePtr& type) { return value->type()->isSubtypeOf(*type); }

void operators_have_schemas(const Graph& graph, Violations& violations) {
  for_each_node(graph.body(), [&](Node* node) {
    if (node->schema() == nullptr && !node->op().is_language() && node->attribute(attr::kSubgraph) == nullptr) {
      violations.push_back({"operators_have_schemas", print_node_line(*node)});
    }
  });
}

void inputs_match_schema(const Graph& graph, Violations& violations) {
  for_each_node(graph.body(), [&](Node* node) {
    const c10::FunctionSchema* schema = node->schema();
    if (schema == nullptr) {
      return;
    }
    const auto& formals = schema->arguments();
    bool fits = node->inputs().size() == formals.size() || (schema->is_vararg() && node->inputs().size() >= formals.size());
    for (size_t i = 0; fits && i < formals.size(); ++i) {
      const c10::TypePtr& formal = formals[i].type();
      fits = formal->hasFreeVariables() || node->input(i)->type()->isSubtypeOf(*formal);
    }
    if (!fits) {
      std::ostringstream message;
      message << print_node_line(*node) << "\n    is not a call of " << *schema;
      violations.push_back({"inputs_match_schema", message.str()});
    }
  });
}

void outputs_match_schema(const Graph& graph, Violations& violations) {
  for_each_node(graph.body(), [&](Node* node) {
    if (node->schema() != nullptr && !produces_results_of(*node->schema(), *node)) {
      violations.push_back({"outputs_match_schema", print_node_line(*node)});
    }
  });
}

void constants_have_their_type(const Graph& graph, Violations& violations) {
  for_each_node(graph.body(), [&](Node* node) {
    if (node->kind() != prim::Constant || node->attribute(attr::kName) != nullptr) {
      return;
    }
    const bool sound = node->inputs().empty() && node->outputs().size() == 1 &&
                       (node->output()->constant()->isNone() ||
                        node->output()->constant()->type<c10::Type>()->isSubtypeOf(*node->output()->type()));
    if (!sound) {
      violations.push_back({"constants_have_their_type", print_node_line(*node)});
    }
  });
}

void conditions_are_bool(const Graph& graph, Violations& violations) {
  for_each_node(graph.body(), [&](Node* node) {
    bool sound = true;
    if (node->kind() == prim::If) {
      sound = is_a(node->input(0), c10::BoolType::get());
    } else if (node->kind() == prim::Loop) {
      sound = is_a(node->input(0), c10::IntType::get()) && is_a(node->input(1), c10::BoolType::get()) &&
              is_a(node->block(0)->params()[0], c10::IntType::get()) &&
              is_a(node->block(0)->returns()[0], c10::BoolType::get());
    }
    if (!sound) {
      violations.push_back({"conditions_are_bool", print_node_line(*node)});
    }
  });
}

// A value returned by a branch, an iteration or a kernel has the type of the value that receives it.
void block_results_fit(const Graph& graph, Violations& violations) {
  for_each_node(graph.body(), [&](Node* node) {
    const bool is_loop = node->kind() == prim::Loop;
    if (!is_loop && node->kind() != prim::If && node->kind() != kKernelKind) {
      return;
    }
    for (size_t i = 0; i < node->outputs().size(); ++i) {
      const c10::TypePtr& type = node->output(i)->type();
      bool fits = std::all_of(node->blocks().begin(), node->blocks().end(),
                              [&](const Block* block) { return is_a(block->returns()[i + (is_loop ? 1 : 0)], type); });
      if (is_loop) {
        fits = fits && is_a(node->input(i + 2), node->block(0)->params()[i + 1]->type());
      }
      if (!fits) {
        violations.push_back({"block_results_fit", "output " + std::to_string(i) + " of " + print_node_line(*node)});
      }
    }
  });
}

void facts_are_about_tensors(const Graph& graph, Violations& violations) {
  const auto check = [&](const Value* value) {
    const TensorFacts* facts = value->facts();
    const bool sound =
        facts == nullptr || (value->type()->kind() == c10::TypeKind::TensorType &&
                             (!facts->strides || (facts->sizes && facts->sizes->size() == facts->strides->size())));
    if (!sound) {
      violations.push_back({"facts_are_about_tensors", print_value_name(*value) + " : " + print_type(*value)});
    }
  };
  for (const Value* input : graph.inputs()) {
    check(input);
  }
  for_each_node(graph.body(), [&](Node* node) {
    for (const Value* output : node->outputs()) {
      check(output);
    }
  });
}

}  // namespace

std::span<const NamedCheck> typing_checks() {
  static constexpr std::array checks = {
      NamedCheck{"operators_have_schemas", operators_have_schemas},
      NamedCheck{"inputs_match_schema", inputs_match_schema},
      NamedCheck{"outputs_match_schema", outputs_match_schema},
      NamedCheck{"constants_have_their_type", constants_have_their_type},
      NamedCheck{"conditions_are_bool", conditions_are_bool},
      NamedCheck{"block_results_fit", block_results_fit},
      NamedCheck{"facts_are_about_tensors", facts_are_about_tensors},
  };
  return checks;
}

}  // namespace sconce
