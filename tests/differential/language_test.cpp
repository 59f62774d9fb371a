// A snippet per feature of the language (tests/models/snippets/): results, printed text and exceptions are
// LibTorch's.
#include "base/exception_message.h"
#include "tests/differential/observed_call.h"
#include "tests/support/graphs.h"
#include "tests/support/model_files.h"

#include "tools/peers/executor_settings.h"

#include "load/load_module.h"

#include <sconce/sconce.h>

#include <ATen/ATen.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/jit_exception.h>
#include <torch/csrc/jit/runtime/print_handler.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <regex>

namespace sconce::testing {
namespace {

constexpr cli::CompareOptions kLanguageTolerance{.rtol = 0, .atol = 0};

std::filesystem::path language_dir() { return std::filesystem::path(models_dir()) / "language"; }

std::vector<std::string> language_files() {
  std::vector<std::string> names;
  std::error_code missing;  // reported by LanguageFiles.AreThere
  for (const auto& entry : std::filesystem::directory_iterator(language_dir(), missing)) {
    names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// What scripts print while the object lives.
class PrintedText {
 public:
  PrintedText() : before_(torch::jit::getPrintHandler()) {
    text().clear();
    torch::jit::setPrintHandler([](const std::string& printed) { text() += printed; });
  }
  ~PrintedText() { torch::jit::setPrintHandler(before_); }
  std::string take() const { return std::exchange(text(), {}); }

 private:
  static std::string& text() {
    static std::string printed;
    return printed;
  }
  torch::jit::PrintHandler before_;
};

struct Outcome {
  ObservedCall call;
  std::string printed;
  std::string exception;  // "builtins.ValueError: too large", or an operator's message
  std::string last_line;  // of what() of an exception that the script itself raised
};

// LibTorch puts the message after the script's stack: "RuntimeError: …" stands on the first line after the last marker.
std::string message_behind_traceback(const std::string& text) {
  const size_t marker = text.rfind("<--- HERE");
  const std::string tail = marker == std::string::npos ? text : text.substr(marker);
  static const std::regex kMessage("\\n(RuntimeError|[A-Za-z_.]*Error|[A-Za-z_.]*Exception): ([^\\n]*)");
  std::smatch match;
  return std::regex_search(tail, match, kMessage) ? match[2].str() : text.substr(0, text.find('\n'));
}

std::string last_line(std::string text) {
  text.erase(text.find_last_not_of('\n') + 1);
  return text.substr(text.rfind('\n') + 1);
}

std::string describe_exception(const std::exception& exception) {
  if (const auto* raised = dynamic_cast<const torch::jit::JITException*>(&exception)) {
    // What an awaitable raises carries the traceback of LibTorch's interpreter that ran it.
    const std::string message = raised->getOriginalMsg().value_or(raised->what());
    return raised->getPythonClassName().value_or("(no class)") + ": " +
           (message.find("<--- HERE") == std::string::npos ? message : message_behind_traceback(message));
  }
  if (const auto* error = dynamic_cast<const c10::Error*>(&exception)) {
    return error->what_without_backtrace() == nullptr ? "" : one_line_message(*error);
  }
  return message_behind_traceback(exception.what());
}

Outcome observe(const PrintedText& printed, const std::vector<c10::IValue>& arguments, const RunGraph& run) {
  Outcome outcome;
  outcome.call = observe_call(arguments, 1, [&](torch::jit::Stack& stack) {
    try {
      run(stack);
    } catch (const std::exception& exception) {
      outcome.exception = describe_exception(exception);
      outcome.last_line = dynamic_cast<const torch::jit::JITException*>(&exception) ? last_line(exception.what()) : "";
      throw;
    }
  });
  outcome.printed = printed.take();
  return outcome;
}

bool is_snippet(const torch::jit::Method& method) {
  const std::string& name = method.name();
  const auto& arguments = method.function().getSchema().arguments();
  return !name.starts_with("_") && !name.starts_with("helper_") && name != "forward" && arguments.size() == 3 &&
         arguments[1].name() == "x" && arguments[2].name() == "n";
}

// Calls with every n on one module of each side, so that the state they leave behind counts too.
void check_snippet(const std::string& file, const std::string& name, CompileMode mode) {
  SCOPED_TRACE(name + (mode == CompileMode::kBlocking ? ", specialized" : ""));
  const Module module = load(file, Options().exact(true).compile(mode));
  const torch::jit::Module reference = load_script_module(file, std::nullopt);
  const auto expected_method = reference.get_method(name);
  const PrintedText printed;
  for (const int64_t n : {-1, 0, 3}) {
    SCOPED_TRACE("n = " + std::to_string(n));
    const std::vector<c10::IValue> arguments = {at::arange(6.0F).reshape({2, 3}) - 2, n};
    const Outcome expected =
        observe(printed, arguments, [&](torch::jit::Stack& stack) { stack = {expected_method(std::move(stack))}; });
    const Outcome got =
        observe(printed, arguments, [&](torch::jit::Stack& stack) { stack = {module.run_method(name, std::move(stack))}; });
    EXPECT_THAT(differences(got.call, expected.call, Strictness::kEverything, kLanguageTolerance), ::testing::IsEmpty());
    EXPECT_EQ(got.printed, expected.printed);
    // LibTorch loses the class of what a task raises.
    static const std::regex kClass("^[A-Za-z_.]*Error: ");
    EXPECT_EQ(std::regex_search(expected.exception, kClass) ? got.exception : std::regex_replace(got.exception, kClass, ""),
              expected.exception);
    if (got.exception == expected.exception && !expected.last_line.empty()) {
      EXPECT_EQ(got.last_line, expected.last_line);
    }
  }
}

class LanguageTest : public ::testing::TestWithParam<std::string> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LanguageTest);
INSTANTIATE_TEST_SUITE_P(Files, LanguageTest, ::testing::ValuesIn(language_files()),
                         [](const auto& file) { return file.param; });

TEST_P(LanguageTest, EverySnippetDoesAsInLibTorch) {
  const std::string file = (language_dir() / (GetParam() + ".pt")).string();
  const peers::ExecutorScope eager({.optimize = false});
  size_t snippets = 0;
  for (const auto& method : load_script_module(file, std::nullopt).get_methods()) {
    if (is_snippet(method)) {
      ++snippets;
      check_snippet(file, method.name(), CompileMode::kNever);
      check_snippet(file, method.name(), CompileMode::kBlocking);
    }
  }
  EXPECT_GT(snippets, 0U);
  std::cout << snippets << " snippets\n";
}

TEST(LanguageFiles, HoldAtLeast150Snippets) {
  size_t snippets = 0;
  for (const std::string& name : language_files()) {
    for (const auto& method : load_script_module((language_dir() / (name + ".pt")).string(), std::nullopt).get_methods()) {
      snippets += is_snippet(method) ? 1 : 0;
    }
  }
  EXPECT_GE(snippets, 150U) << "in " << language_dir() << ": run tests/models/write_models.py";
}

}  // namespace
}  // namespace sconce::testing
