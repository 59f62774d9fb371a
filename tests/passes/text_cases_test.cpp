// Runs every case of tests/passes/*/<pass>.ir:
//
//   # case: name            then, if needed:  # runs: no (why)   # changes: no   # throws: part of the message
//   graph(…): …             the input
//   ---
//   graph(…): …             expected; nothing when `changes: no` or `throws`
//
// SCONCE_UPDATE_EXPECTATIONS=1 rewrites the expectations; review reads the diff.
#include "tests/support/graphs.h"

#include "ir/text/parse.h"
#include "ir/text/print.h"
#include "ir/verify/verify.h"
#include "pipeline/pass_list.h"

#include <ATen/ATen.h>
#include <ATen/core/jit_type.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

namespace sconce {
namespace {

using testing::agree;
using testing::message_of;

struct TextCase {
  std::string pass;
  std::string name;
  std::vector<std::string> header;  // its comment lines
  bool runs = true;
  bool changes = true;
  std::string throws;
  std::string input;
  std::string expected;
};

void PrintTo(const TextCase& test, std::ostream* out) { *out << test.pass << ", " << test.name; }

// The text files below tests/passes, by the name of their pass.
const std::map<std::string, std::string>& text_files() {
  static const auto files = [] {
    std::map<std::string, std::string> paths;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(testing::tests_dir() + "/passes")) {
      if (entry.path().extension() == ".ir") {
        paths.emplace(entry.path().stem().string(), entry.path().string());
      }
    }
    return paths;
  }();
  return files;
}

std::vector<TextCase> read_cases(const std::string& pass) {
  std::vector<TextCase> cases;
  std::istringstream lines(testing::read_text(text_files().at(pass)));
  bool expected = false;
  for (std::string line; std::getline(lines, line);) {
    const auto value_of = [&](std::string_view key) -> std::optional<std::string> {
      const std::string prefix = "# " + std::string(key) + ": ";
      return line.starts_with(prefix) ? std::optional(line.substr(prefix.size())) : std::nullopt;
    };
    if (const auto name = value_of("case")) {
      cases.push_back({pass, *name, {line}});
      expected = false;
      continue;
    }
    if (cases.empty()) {
      continue;  // the file's own comment
    }
    TextCase& current = cases.back();
    const bool in_header = current.input.empty() && line.starts_with("#");
    if (in_header) {
      current.header.push_back(line);
      current.runs = current.runs && !value_of("runs").value_or("yes").starts_with("no");
      current.changes = current.changes && value_of("changes").value_or("yes") != "no";
      current.throws = value_of("throws").value_or(current.throws);
    } else if (line == "---") {
      expected = true;
    } else if (!line.empty()) {
      (expected ? current.expected : current.input) += line + "\n";
    }
  }
  return cases;
}

// The file's comment before its first case, to be kept.
std::string preamble(const std::string& pass) {
  const std::string text = testing::read_text(text_files().at(pass));
  return text.substr(0, text.find("# case: "));
}

bool updating() { return std::getenv("SCONCE_UPDATE_EXPECTATIONS") != nullptr; }

std::string text_of(const Graph& graph) { return print(graph); }

// Arguments that fit the graph's inputs; tensors are 3x3 doubles, or of the sizes and dtype that the facts know.
std::vector<c10::IValue> seeded_arguments(const Graph& graph) {
  at::manual_seed(7);
  std::vector<c10::IValue> arguments;
  const std::function<c10::IValue(const c10::TypePtr&, const TensorFacts*)> make =
      [&](const c10::TypePtr& type, const TensorFacts* facts) -> c10::IValue {
    switch (type->kind()) {
      case c10::TypeKind::TensorType: {
        if (facts != nullptr && facts->defined && !*facts->defined) {
          return at::Tensor();
        }
        std::vector<int64_t> sizes = {3, 3};
        if (facts != nullptr && facts->sizes) {
          sizes.clear();
          for (const Dim& dim : *facts->sizes) {
            sizes.push_back(dim.is_known() ? dim.value() : 3);
          }
        }
        const at::ScalarType dtype = facts != nullptr && facts->dtype ? *facts->dtype : at::kDouble;
        at::Tensor made = at::rand(sizes, at::kDouble).to(dtype);
        if (facts != nullptr && facts->is_wrapped_number) {
          made.unsafeGetTensorImpl()->set_wrapped_number(true);
        }
        return made;
      }
      case c10::TypeKind::IntType: return 3;
      case c10::TypeKind::FloatType: return 0.5;
      case c10::TypeKind::BoolType: return true;
      case c10::TypeKind::ListType: {
        const c10::TypePtr element = type->expectRef<c10::ListType>().getElementType();
        c10::impl::GenericList list(element);
        list.push_back(make(element, nullptr));
        list.push_back(make(element, nullptr));
        return list;
      }
      case c10::TypeKind::OptionalType: return make(type->expectRef<c10::OptionalType>().getElementType(), nullptr);
      default: throw std::logic_error("the driver makes no argument of type " + type->str() + "; say `# runs: no`");
    }
  };
  for (const Value* input : graph.inputs()) {
    arguments.push_back(make(input->type(), input->facts()));
  }
  return arguments;
}

struct Ran {
  std::vector<c10::IValue> outputs;
  std::vector<c10::IValue> arguments;  // after the run: writes to inputs count too
};

Ran run_seeded(const Graph& graph) {
  Ran ran;
  ran.arguments = seeded_arguments(graph);
  at::manual_seed(11);
  ran.outputs = testing::run(graph, ran.arguments);
  return ran;
}

class PassTextCase : public ::testing::TestWithParam<TextCase> {};

TEST_P(PassTextCase, GivesTheExpectedGraph) {
  const TextCase& test = GetParam();
  const PassInfo* pass = find_pass(test.pass);
  ASSERT_NE(pass, nullptr);
  const auto before = testing::graph_of(test.input);
  const auto graph = testing::graph_of(test.input);
  const std::string input_text = text_of(*graph);

  if (!test.throws.empty()) {
    EXPECT_THAT(message_of([&] { pass->function(*graph); }), ::testing::HasSubstr(test.throws));
    return;
  }
  const bool changed = pass->function(*graph);
  for (const Violation& violation : find_violations(*graph)) {
    ADD_FAILURE() << violation.check << ": " << violation.message << "\n" << text_of(*graph);
  }
  const std::string once = text_of(*graph);
  EXPECT_EQ(changed, once != input_text) << "the pass returned " << changed << "\n" << once;
  EXPECT_EQ(changed, test.changes);
  if (test.changes && !updating()) {
    const std::string expected = text_of(*parse(test.expected));
    // Nameless values are numbered by creation: both texts go through the parser, which keeps the names.
    EXPECT_EQ(text_of(*parse(once)), expected);
  }
  EXPECT_FALSE(pass->function(*graph)) << "the pass is not idempotent:\n" << once << "became\n" << text_of(*graph);
  EXPECT_EQ(text_of(*graph), once);

  if (test.runs) {
    const Ran plain = run_seeded(*before);
    const Ran passed = run_seeded(*graph);
    EXPECT_TRUE(agree(plain.outputs, passed.outputs, 1e-12));
    EXPECT_TRUE(agree(plain.arguments, passed.arguments, 1e-12));
  }
}

std::vector<TextCase> all_cases() {
  std::vector<TextCase> cases;
  for (const PassInfo& pass : all_passes()) {
    if (text_files().contains(std::string(pass.name))) {
      for (TextCase& test : read_cases(std::string(pass.name))) {
        cases.push_back(std::move(test));
      }
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Passes, PassTextCase, ::testing::ValuesIn(all_cases()),
                         [](const auto& test) { return test.param.pass + "__" + test.param.name; });

TEST(PassTextFiles, ExistForEveryPassAndBeginWithAnUnrelatedGraph) {
  for (const PassInfo& pass : all_passes()) {
    ASSERT_TRUE(text_files().contains(std::string(pass.name))) << pass.name << ".ir is missing";
    const std::string& path = text_files().at(std::string(pass.name));
    const std::vector<TextCase> cases = read_cases(std::string(pass.name));
    ASSERT_FALSE(cases.empty()) << path;
    EXPECT_EQ(cases.front().name, "leaves_unrelated_graph_unchanged") << path;
    EXPECT_FALSE(cases.front().changes) << path;
    EXPECT_GE(cases.size(), 2) << path << " has no case in which the pass does something";
  }
}

TEST(PassTextFiles, AreOfPassesThatExist) {
  for (const auto& [pass, path] : text_files()) {
    EXPECT_NE(find_pass(pass), nullptr) << path;
  }
}

// Not a test of its own: with SCONCE_UPDATE_EXPECTATIONS=1 it rewrites the files, else nothing happens.
TEST(PassTextFiles, AreRewrittenOnlyWhenAsked) {
  if (!updating()) {
    GTEST_SKIP() << "set SCONCE_UPDATE_EXPECTATIONS=1 to rewrite the expectations";
  }
  for (const PassInfo& pass : all_passes()) {
    const std::string name(pass.name);
    std::string text = preamble(name);
    for (const TextCase& test : read_cases(name)) {
      for (const std::string& line : test.header) {
        text += line + "\n";
      }
      text += test.input;
      if (test.changes && test.throws.empty()) {
        const auto graph = parse(test.input);
        pass.function(*graph);
        text += "---\n" + text_of(*parse(text_of(*graph)));
      }
      text += "\n";
    }
    std::ofstream(text_files().at(name)) << text.substr(0, text.size() - 1);
  }
}

}  // namespace
}  // namespace sconce
