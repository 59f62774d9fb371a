// The threads that calls start: no pool beside LibTorch's, whose threads spin after their work.
#include "tests/support/model_files.h"

#include <sconce/sconce.h>

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace sconce::testing {
namespace {

// Counts the threads of the process but the compile thread, which has a name of its own.
int count_threads() {
  int threads = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    threads += name == "sconce-compile" ? 0 : 1;
  }
  return threads;
}

TEST(ThreadsOfProcess, AreLibTorchsOneTbbsAndTheCompileThread) {
  const at::NoGradGuard no_grad;
  const int threads_before = at::get_num_threads();
  constexpr int kThreads = 7;     // so many that a second pool of that size would stand out
  at::set_num_threads(kThreads);  // also starts threads, of a pool that nothing uses
  const int before = count_threads();
  for (const std::string& name : model_names()) {
    SCOPED_TRACE(name);
    const torch::jit::Module cases = torch::jit::load(cases_file(name));
    const std::string method = cases.hasattr("methods")  ? cases.attr("methods").toListRef()[0].toStringRef()
                               : cases.hasattr("method") ? cases.attr("method").toStringRef()
                                                         : "forward";
    const Module module = load(model_file(name));
    const auto& parameters = module.script_module().get_method(method).function().getSchema().arguments();
    for (int call = 0; call < 4; ++call) {
      const c10::IValue inputs = cases.attr("inputs").toListRef()[0].deepcopy();
      torch::jit::Stack stack = inputs.isTuple() ? inputs.toTupleRef().elements().vec() : inputs.toListRef().vec();
      for (size_t i = stack.size() + 1; i < parameters.size(); ++i) {  // the first is `self`
        stack.push_back(parameters[i].default_value().value());
      }
      module.method(method).run(stack);
    }
  }
  const int of_tbb = std::max(0, static_cast<int>(std::thread::hardware_concurrency()) - 1);
  const int started = count_threads() - before;
  EXPECT_LE(started, kThreads - 1 + of_tbb);
  EXPECT_GE(started, 1) << "some calls fork";
  at::set_num_threads(threads_before);
}

}  // namespace
}  // namespace sconce::testing
