// Texts of rows, and prepared kernels, call what composite operators call inside. Such an operator may check and prepare
// less than the composite did before it. tests/ops/inner_operators.txt lists every such call with where the rest is done.
#include "tests/support/graphs.h"

#include "load/compile_op_row.h"
#include "ops/rows.h"

#include <gtest/gtest.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

namespace sconce {
namespace {

// "aten::batch_norm forward: aten::native_batch_norm"
using Calls = std::set<std::string>;

// Returns whether users do not call the operator: others call it, or autograd. The operator's own derivative is left out, as
// LibTorch's formula calls it with the arguments themselves.
bool is_inner(const std::string& name, const std::string& of) {
  const std::string plain = name.substr(name.find("::") + 2);
  if (plain.starts_with("__") || name == of || name == of + "_backward") {
    return false;
  }
  return plain.starts_with("_") || plain.starts_with("native_") || plain.ends_with("_forward") ||
         plain.ends_with("_with_indices") || plain.find("_backward") != std::string::npos;
}

void add_inner_calls(const Op& op, const char* text, const Graph* graph, Calls& calls) {
  if (graph == nullptr) {
    return;
  }
  for_each_node(graph->body(), [&](Node* node) {
    const std::string name = node->kind().toQualString();
    if (name.starts_with("aten::") && is_inner(name, std::string(op.name))) {
      calls.insert(std::string(op.name) + " " + text + ": " + name);
    }
  });
}

// The calls in the texts of all rows.
Calls calls_of_texts() {
  Calls calls;
  for_each_row([&](const OpRow& row) {
    for (const auto& registered : torch::jit::getAllOperatorsFor(c10::Symbol::fromQualString(std::string(row.name)))) {
      const auto& schema = registered->schema();
      if (find_op_row(row.name, schema.overload_name()) != &row) {
        continue;
      }
      const Op& op = op_of(schema);
      if (const OpGradient* gradient = row.backward.empty() ? nullptr : gradient_of(op)) {
        add_inner_calls(op, "forward", gradient->forward.get(), calls);
        add_inner_calls(op, "backward", gradient->backward.get(), calls);
      }
      if (!row.body.empty() && !schema.is_mutable()) {
        add_inner_calls(op, "body", compile_body(op).get(), calls);
      }
    }
  });
  return calls;
}

// The functions of LibTorch's kernels that prepared kernels call. The structured classes are left out: their `meta` is the
// operator's own check, and PlacedOp calls it.
Calls calls_of_kernels() {
  static const std::regex kCall(R"((?:at::native::(\w+)|\b(\w+_stub)\b|\b(sgemm_)\())");
  Calls calls;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(testing::tests_dir() + "/../src/kernels")) {
    if (entry.path().extension() != ".cpp") {
      continue;
    }
    const std::string text = testing::read_text(entry.path().string());
    for (std::sregex_iterator at(text.begin(), text.end(), kCall), end; at != end; ++at) {
      const std::string name = (*at)[1].matched ? (*at)[1].str() : (*at)[2].matched ? (*at)[2].str() : (*at)[3].str();
      if (!name.starts_with("structured_")) {
        calls.insert("kernel: " + name);
      }
    }
  }
  return calls;
}

// The lines of the list: a call, then " = " and what does the rest of the composite's work.
std::map<std::string, std::string> listed() {
  std::map<std::string, std::string> lines;
  std::istringstream text(testing::read_text(testing::tests_dir() + "/ops/inner_operators.txt"));
  for (std::string line; std::getline(text, line);) {
    const size_t equals = line.find(" = ");
    if (!line.empty() && line.front() != '#') {
      EXPECT_NE(equals, std::string::npos) << line;
      EXPECT_TRUE(lines.emplace(line.substr(0, equals), line.substr(equals + 3)).second) << line << " stands twice";
    }
  }
  return lines;
}

TEST(InnerOperators, AreListedWithWhatTheirCallersCheckAndPrepare) {
  Calls calls = calls_of_texts();
  calls.merge(calls_of_kernels());
  std::map<std::string, std::string> lines = listed();
  for (const std::string& call : calls) {
    EXPECT_TRUE(lines.contains(call)) << call << " is not in inner_operators.txt";
  }
  for (const auto& [call, why] : lines) {
    EXPECT_TRUE(calls.contains(call)) << call << " is listed, but there is no such call";
    if (why.starts_with("asserts")) {
      const OpRow* row = find_op_row(call.substr(0, call.find(' ')), "");
      EXPECT_TRUE(row != nullptr && row->forward.find("assert ") != std::string_view::npos) << call;
    }
  }
}

}  // namespace
}  // namespace sconce
