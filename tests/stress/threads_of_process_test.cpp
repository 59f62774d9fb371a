// The threads that calls start: no pool beside LibTorch's, whose threads spin after their work.
#include "tests/support/model_files.h"

#include <sconce/sconce.h>

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>

namespace sconce::testing {
namespace {

// How many threads the process has, by name. A thread without a name of its own has the program's.
std::map<std::string, int> threads_by_name() {
  std::map<std::string, int> threads;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    ++threads[name];
  }
  return threads;
}

TEST(ThreadsOfProcess, AreLibTorchsOneTbbsAndTheCompileThread) {
  const at::NoGradGuard no_grad;
  const int threads_before = at::get_num_threads();
  constexpr int kThreads = 7;  // so many that a second pool of that size would stand out
  at::set_num_threads(kThreads);
  for (const std::string& name : model_names()) {
    SCOPED_TRACE(name);
    const torch::jit::Module cases = torch::jit::load(cases_file(name));
    const std::string method = cases.hasattr("method") ? cases.attr("method").toStringRef() : "forward";
    const Module module = load(model_file(name));
    for (int call = 0; call < 4; ++call) {
      const c10::IValue inputs = cases.attr("inputs").toListRef()[0].deepcopy();
      torch::jit::Stack stack = inputs.toTupleRef().elements().vec();
      module.method(method).run(stack);
    }
  }
  std::map<std::string, int> threads = threads_by_name();
  EXPECT_LE(threads["sconce-compile"], 1);
  threads.erase("sconce-compile");
  int others = 0;
  for (const auto& [name, count] : threads) {
    others += count;
  }
  const int of_tbb = std::max(0, static_cast<int>(std::thread::hardware_concurrency()) - 1);
  EXPECT_LE(others, kThreads + of_tbb);
  EXPECT_GE(others, kThreads) << "some call forks";
  at::set_num_threads(threads_before);
}

}  // namespace
}  // namespace sconce::testing
