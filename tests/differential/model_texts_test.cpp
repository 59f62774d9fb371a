// The text of every graph of every model: sconce reads what it prints, and LibTorch reads it too.
#include "tests/support/model_files.h"
#include "tests/support/torch_graph.h"

#include "ir/text/parse.h"
#include "ir/text/print.h"
#include "ir/verify/verify.h"
#include "load/convert.h"
#include "load/function_table.h"
#include "load/load_module.h"
#include "passes/required/eliminate_dead_nodes.h"
#include "passes/required/inline_calls.h"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/irparser.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>

namespace sconce::testing {
namespace {

using GraphVisitor = std::function<void(const Graph&, const torch::jit::CompilationUnit&)>;

// Every function of the program as written, and the inlined graph of every method of the module that can be inlined.
void visit_graphs(const std::string& model, const GraphVisitor& visit) {
  const torch::jit::Module module = load_script_module(model_file(model), std::nullopt);
  const auto unit = module._ivalue()->compilation_unit();
  FunctionTable functions;
  for (torch::jit::Function* function : unit->get_functions()) {
    SCOPED_TRACE(function->qualname().qualifiedName());
    const auto graph = functions.graph_of(*function);
    ASSERT_TRUE(graph) << to_string(graph.refusal());
    visit(**graph, *unit);
  }
  for (const auto& method : module.get_methods()) {
    SCOPED_TRACE("inlined " + method.name());
    const auto graph = functions.graph_of(method.function());
    ASSERT_TRUE(graph) << to_string(graph.refusal());
    const auto inlined = (*graph)->clone();
    if (inline_calls(*inlined, functions)) {
      visit(*inlined, *unit);
    }
  }
}

class ModelTextTest : public ::testing::TestWithParam<std::string> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ModelTextTest);
INSTANTIATE_TEST_SUITE_P(Models, ModelTextTest, ::testing::ValuesIn(models_in_part()),
                         [](const auto& model) { return model.param; });

void expect_text_is_a_fixed_point(const Graph& graph, const torch::jit::CompilationUnit& unit) {
  for (const bool locations : {true, false}) {
    std::vector<c10::IValue> constants;
    const std::string text = print(graph, {.locations = locations, .constants = &constants});
    ParseOptions options;
    options.constants = &constants;
    options.resolve_type = [&](const std::string& name) -> c10::TypePtr { return unit.get_type(c10::QualifiedName(name)); };
    options.resolve_function = [&](const std::string& name) -> c10::TypePtr {
      return c10::FunctionType::create(unit.find_function(c10::QualifiedName(name)));
    };
    const auto parsed = parse(text, options);
    std::vector<c10::IValue> constants_again;
    EXPECT_EQ(print(*parsed, {.locations = locations, .constants = &constants_again}), text);
    EXPECT_EQ(constants_again.size(), constants.size());
    const auto violations = find_violations(*parsed);
    EXPECT_TRUE(violations.empty()) << violations.front().check << ": " << violations.front().message;
  }
}

TEST_P(ModelTextTest, IsAFixedPoint) { visit_graphs(GetParam(), expect_text_is_a_fixed_point); }

bool names_a_class(const c10::TypePtr& type) {
  if (type->kind() == c10::TypeKind::FunctionType || type->cast<c10::NamedType>() != nullptr) {
    const auto tuple = type->cast<c10::TupleType>();
    if (!tuple || tuple->name()) {
      return true;
    }
  }
  const auto contained = type->containedTypes();
  return std::any_of(contained.begin(), contained.end(), names_a_class);
}

bool is_class_free(const Graph& graph) {
  const auto is_free = [](c10::ArrayRef<Value*> values) {
    return std::none_of(values.begin(), values.end(), [](const Value* value) { return names_a_class(value->type()); });
  };
  bool is_class_free = is_free(graph.inputs());
  for_each_node(graph.body(), [&](Node* node) {
    is_class_free = is_class_free && is_free(node->outputs());
    for (const Block* block : node->blocks()) {
      is_class_free = is_class_free && is_free(block->params());
    }
  });
  return is_class_free;
}

// Constants, whose literals LibTorch's parser reads in part only, and what is read from objects, made inputs.
std::unique_ptr<Graph> with_constants_lifted(const Graph& graph) {
  auto lifted = graph.clone();
  for_each_node(lifted->body(), [&](Node* node) {
    if ((node->kind() == prim::Constant || node->kind() == prim::GetAttr) && !names_a_class(node->output()->type())) {
      node->output()->replace_all_uses_with(lifted->add_input("", node->output()->type()));
      node->erase();
    }
  });
  eliminate_dead_nodes(*lifted);
  for (size_t i = lifted->inputs().size(); i-- > 0;) {
    if (!lifted->inputs()[i]->has_uses()) {
      lifted->body().remove_param(i);
    }
  }
  return lifted;
}

// Numbers are not names to LibTorch's parser: it gives its own.
void name_all_values(Graph& graph) {
  size_t count = 0;
  const auto name_all = [&](c10::ArrayRef<Value*> values) {
    for (Value* value : values) {
      value->set_name("v" + std::to_string(count++));
    }
  };
  name_all(graph.inputs());
  for_each_node(graph.body(), [&](Node* node) {
    name_all(node->outputs());
    for (const Block* block : node->blocks()) {
      name_all(block->params());
    }
  });
}

size_t node_count(const torch::jit::Block& block) {
  size_t count = 0;
  for (const torch::jit::Node* node : block.nodes()) {
    ++count;
    for (const torch::jit::Block* nested : node->blocks()) {
      count += node_count(*nested);
    }
  }
  return count;
}

// All models in one test: how many graphs are free of classes is part of what it shows.
TEST(ModelTexts, AreReadByTorchScriptsOwnParser) {
  size_t graphs = 0;
  size_t read = 0;
  size_t nodes = 0;
  for (const std::string& name : models_in_part()) {
    SCOPED_TRACE(name);
    visit_graphs(name, [&](const Graph& graph, const torch::jit::CompilationUnit&) {
      ++graphs;
      const auto lifted = with_constants_lifted(graph);
      if (!is_class_free(*lifted)) {
        return;
      }
      name_all_values(*lifted);
      const std::string text = print(*lifted, {.locations = false});
      torch::jit::Graph theirs;
      ASSERT_NO_THROW(torch::jit::parseIR(text, &theirs)) << text;
      if (lifted->node_count() <= kMaxNodesToLint) {
        theirs.lint();
      }
      EXPECT_EQ(node_count(*theirs.block()), lifted->node_count());
      // Back in our form it is the same graph.
      const auto again = convert(theirs);
      ASSERT_TRUE(again) << to_string(again.refusal());
      name_all_values(**again);
      EXPECT_EQ(print(**again, {.locations = false}), text);
      ++read;
      nodes += lifted->node_count();
    });
  }
  std::cout << read << " of " << graphs << " graphs are free of classes, with " << nodes << " nodes\n";
  EXPECT_GE(read, 100U);
}

}  // namespace
}  // namespace sconce::testing
