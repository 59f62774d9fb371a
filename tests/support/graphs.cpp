#include "tests/support/graphs.h"

#include "base/exception_message.h"
#include "ir/text/parse.h"
#include "ir/text/print.h"
#include "ir/verify/verify.h"
#include "load/convert.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/frontend/resolver.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace sconce::testing {

std::unique_ptr<Graph> graph_of(std::string_view text) {
  auto graph = parse(text);
  for (const Violation& violation : find_violations(*graph)) {
    ADD_FAILURE() << violation.check << ": " << violation.message << "\n" << text;
  }
  return graph;
}

std::string text_of(const Graph& graph) { return print(graph, {.locations = false}); }

std::unique_ptr<Graph> graph_of_source(const std::string& source, const std::string& name) {
  torch::jit::CompilationUnit unit;
  unit.define(std::nullopt, source, torch::jit::nativeResolver(), nullptr);
  return convert(*torch::jit::toGraphFunction(unit.get_function(name)).graph()).value_or_throw("graph_of_source");
}

torch::jit::Module module_of(const std::string& methods,
                             const std::vector<std::pair<std::string, c10::IValue>>& attributes) {
  torch::jit::Module module("TestModule");
  for (const auto& [name, value] : attributes) {
    if (value.isTensor() && value.toTensor().requires_grad()) {
      module.register_parameter(name, value.toTensor(), /*is_buffer=*/false);
    } else if (value.isTensor()) {
      module.register_buffer(name, value.toTensor());
    } else {
      module.register_attribute(name, value.type(), value);
    }
  }
  module.define(methods);
  return module;
}

std::vector<c10::IValue> run(const Graph& graph, std::vector<c10::IValue> arguments, const Options& options) {
  GraphExecutor executor(graph.clone(), "test", Options(options).exact(true));
  executor.run(arguments);
  return arguments;
}

std::vector<c10::IValue> run(std::string_view text, std::vector<c10::IValue> arguments, const Options& options) {
  return run(*graph_of(text), std::move(arguments), options);
}

namespace {

::testing::AssertionResult tensors_agree(const at::Tensor& a, const at::Tensor& b, double tolerance) {
  if (a.defined() != b.defined()) {
    return ::testing::AssertionFailure() << "one tensor is undefined";
  }
  if (!a.defined()) {
    return ::testing::AssertionSuccess();
  }
  if (a.dtype() != b.dtype() || a.sizes() != b.sizes() || a.requires_grad() != b.requires_grad()) {
    return ::testing::AssertionFailure() << a.toString() << a.sizes() << " requires_grad=" << a.requires_grad() << " and "
                                         << b.toString() << b.sizes() << " requires_grad=" << b.requires_grad();
  }
  const bool equal = tolerance == 0 ? at::allclose(a.detach(), b.detach(), 0, 0, true)
                                    : at::allclose(a.detach(), b.detach(), tolerance, tolerance, true);
  if (!equal) {
    return ::testing::AssertionFailure() << a << "\nand\n" << b;
  }
  return ::testing::AssertionSuccess();
}

}  // namespace

::testing::AssertionResult agree(const c10::IValue& a, const c10::IValue& b, double tolerance) {
  if (a.tagKind() != b.tagKind()) {
    return ::testing::AssertionFailure() << a.tagKind() << " and " << b.tagKind();
  }
  if (a.isTensor()) {
    return tensors_agree(a.toTensor(), b.toTensor(), tolerance);
  }
  if (a.isTuple()) {
    return agree(a.toTupleRef().elements().vec(), b.toTupleRef().elements().vec(), tolerance);
  }
  if (a.isList()) {
    return agree(a.toListRef().vec(), b.toListRef().vec(), tolerance);
  }
  if (a.isDouble() && std::abs(a.toDouble() - b.toDouble()) <= tolerance) {
    return ::testing::AssertionSuccess();
  }
  if (a.isGenericDict() || a.isObject()) {
    return ::testing::AssertionFailure() << "comparison of " << a.tagKind() << " is not written";
  }
  if (!(a == b)) {
    return ::testing::AssertionFailure() << a << " and " << b;
  }
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult agree(const std::vector<c10::IValue>& a, const std::vector<c10::IValue>& b, double tolerance) {
  if (a.size() != b.size()) {
    return ::testing::AssertionFailure() << a.size() << " and " << b.size() << " values";
  }
  for (size_t i = 0; i < a.size(); ++i) {
    if (auto result = agree(a[i], b[i], tolerance); !result) {
      return result << " (value " << i << ")";
    }
  }
  return ::testing::AssertionSuccess();
}

Node* find_node(const Graph& graph, const char* kind) {
  Node* found = nullptr;
  for_each_node(graph.body(), [&](Node* node) {
    if (found == nullptr && node->kind() == c10::Symbol::fromQualString(kind)) {
      found = node;
    }
  });
  if (found == nullptr) {
    throw std::logic_error(std::string("the graph has no ") + kind + "\n" + print(graph));
  }
  return found;
}

size_t count_nodes(const Graph& graph, const char* kind) {
  size_t count = 0;
  for_each_node(graph.body(), [&](Node* node) { count += node->kind() == c10::Symbol::fromQualString(kind) ? 1 : 0; });
  return count;
}

Value* find_value(const Graph& graph, std::string_view name) {
  Value* found = nullptr;
  const auto visit = [&](c10::ArrayRef<Value*> values) {
    for (Value* value : values) {
      found = value->name() == name ? value : found;
    }
  };
  visit(graph.inputs());
  for_each_node(graph.body(), [&](Node* node) {
    visit(node->outputs());
    for (const Block* block : node->blocks()) {
      visit(block->params());
    }
  });
  if (found == nullptr) {
    throw std::logic_error("the graph has no %" + std::string(name) + "\n" + print(graph));
  }
  return found;
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& error) {
    return sconce::message_of(error);
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

namespace {
std::string from_environment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}
}  // namespace

std::string tests_dir() { return from_environment("SCONCE_TESTS_DIR", "tests"); }
std::string models_dir() { return from_environment("SCONCE_MODELS_DIR", "build/models"); }
std::string plugin_file(const std::string& name) {
  return from_environment("SCONCE_PLUGINS_DIR", "build/release/tests/plugins") + "/" + name + ".so";
}

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(file.good()) << path;
  return text.str();
}

}  // namespace sconce::testing
