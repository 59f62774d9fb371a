// What most tests begin with: graphs from text or TorchScript source, runs of them, comparison of what they give.
#pragma once

#include "ir/graph.h"

#include <sconce/graph_executor.h>

#include <ATen/core/ivalue.h>

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace torch::jit {
struct CompilationUnit;
struct Module;
}  // namespace torch::jit

namespace sconce::testing {

// The graph of the text; a text that is malformed or does not verify fails the test.
std::unique_ptr<Graph> graph_of(std::string_view text);

// The graph's text without source locations: equal for equal graphs from different places.
std::string text_of(const Graph& graph);

// The graph of the function `name` of TorchScript source, calls not inlined.
std::unique_ptr<Graph> graph_of_source(const std::string& source, const std::string& name = "f");

// A module whose methods are the definitions of the source; `attributes` become buffers when they are tensors.
torch::jit::Module module_of(const std::string& methods,
                             const std::vector<std::pair<std::string, c10::IValue>>& attributes = {});

// One run of a fresh executor of the graph.
std::vector<c10::IValue> run(const Graph& graph, std::vector<c10::IValue> arguments, const Options& options = {});
std::vector<c10::IValue> run(std::string_view text, std::vector<c10::IValue> arguments, const Options& options = {});

// Equal types, structure, numbers, and tensors that agree within the tolerance (and in dtype, size, requires_grad).
::testing::AssertionResult agree(const c10::IValue& a, const c10::IValue& b, double tolerance = 0);
::testing::AssertionResult agree(const std::vector<c10::IValue>& a, const std::vector<c10::IValue>& b, double tolerance = 0);

// The first node of the kind ("aten::add"), nested blocks included; fails the test when there is none.
Node* find_node(const Graph& graph, const char* kind);
size_t count_nodes(const Graph& graph, const char* kind);
// The value of the name, a graph input or a node's output; fails the test when there is none.
Value* find_value(const Graph& graph, std::string_view name);

// The text of what `action` throws, without LibTorch's stack trace; empty (and a failed test) when it throws nothing.
std::string message_of(const std::function<void()>& action);

// Folders from the environment, with the place in the source tree as default.
std::string tests_dir();
std::string models_dir();
// The library that tests/plugins/NAME.cpp becomes.
std::string plugin_file(const std::string& name);
std::string read_text(const std::string& path);

}  // namespace sconce::testing
