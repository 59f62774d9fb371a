// Other processes do as they like with the file of a model: overwrite it, cut it short, remove it, replace it. A module
// that was loaded goes on with its own weights. A file that changes while it is loaded gives an error that names it.
// SCONCE_ROUNDS: how often each is tried.
#include <sconce/module.h>

#include "base/compile_queue.h"
#include "load/check/archive.h"
#include "tests/support/environment_number.h"
#include "tests/support/graphs.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace sconce::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A convolution with a batch norm, and a product. `width`: models of one width have files of one size.
torch::jit::Module network(uint64_t seed, int64_t width) {
  at::manual_seed(seed);
  torch::jit::Module script = module_of(
      "def forward(self, x):\n"
      "    x = torch.conv2d(x, self.first, None, 1, 1)\n"
      "    assert x.dim() == 4\n"
      "    x = torch.batch_norm(x, self.scale, self.shift, self.mean, self.variance, False, 0.1, 1e-5, False)\n"
      "    x = torch.conv2d(torch.relu(x), self.second, None, 1, 1)\n"
      "    return torch.linear(torch.relu(x).mean([2, 3]), self.last)\n",
      {{"first", at::randn({width, 64, 3, 3}) / 20},
       {"scale", at::rand({width}) + 0.5},
       {"shift", at::randn({width})},
       {"mean", at::randn({width})},
       {"variance", at::rand({width}) + 0.5},
       {"second", at::randn({width, width, 3, 3}) / 20},
       {"last", at::randn({300, width})}});
  script.eval();
  return script;
}

class WrittenFile : public ::testing::Test {
 protected:
  WrittenFile() {
    fs::create_directory(folder_);
    for (const auto& [name, width] : {std::pair("model", 128), {"same", 128}, {"small", 64}, {"large", 256}}) {
      network(name[0] + name[1], width).save(file(name));
    }
    const at::NoGradGuard no_grad;
    torch::jit::Module script = torch::jit::load(file("model"));
    for (const auto& [batch, size] : {std::pair(1, 12), {3, 16}}) {
      images_.push_back(at::randn({batch, 64, size, size}));
      expected_.push_back(script.forward({images_.back()}));
    }
  }
  ~WrittenFile() override { fs::remove_all(folder_); }
  WrittenFile(const WrittenFile&) = delete;
  WrittenFile& operator=(const WrittenFile&) = delete;

  std::string file(const std::string& name) const { return folder_ + "/" + name + ".pt"; }
  void overwrite(const std::string& name) const {
    fs::copy_file(file(name), file("served"), fs::copy_options::overwrite_existing);
  }
  ::testing::AssertionResult gives_expected(const Module& module, size_t image) const {
    return agree(module.forward({images_[image]}), expected_[image], 1e-3);
  }

  const std::string folder_ = ::testing::TempDir() + "written_file_test_" + std::to_string(getpid());
  std::vector<at::Tensor> images_;
  std::vector<c10::IValue> expected_;
};

TEST_F(WrittenFile, DoesNotChangeAModuleThatWasLoaded) {
  const at::NoGradGuard no_grad;
  const std::vector<std::pair<const char*, std::function<void()>>> actions = {
      {"overwritten, same size", [&] { overwrite("same"); }},
      {"overwritten, smaller", [&] { overwrite("small"); }},
      {"overwritten, larger", [&] { overwrite("large"); }},
      {"cut to nothing", [&] { fs::resize_file(file("served"), 0); }},
      {"cut in the middle", [&] { fs::resize_file(file("served"), fs::file_size(file("served")) / 2); }},
      {"removed", [&] { fs::remove(file("served")); }},
      {"replaced", [&] { fs::copy_file(file("same"), file("new")), fs::rename(file("new"), file("served")); }},
      {"unreadable", [&] { fs::permissions(file("served"), fs::perms::none); }},
  };
  const std::vector<std::pair<const char*, int>> states = {{"after load", 0}, {"after one call", 1}, {"packed", 24}};
  const uint64_t rounds = std::max<uint64_t>(actions.size() * states.size(), environment_number("SCONCE_ROUNDS", 0));
  for (uint64_t round = 0; round < rounds; ++round) {
    const auto& [action, act] = actions[round % actions.size()];
    const auto& [state, calls] = states[round / actions.size() % states.size()];
    SCOPED_TRACE(std::string(action) + ", " + state);
    fs::remove(file("served"));
    overwrite("model");
    const Module module = load(file("served"), Options().frozen(round / 24 % 3 != 2));
    for (int call = 0; call < calls; ++call) {
      ASSERT_TRUE(gives_expected(module, 0)) << "call " << call;
    }
    if (calls > 1) {
      module.method("forward").wait_for_compiles();
      EXPECT_TRUE(gives_expected(module, 0));
      CompileQueue::of_process().wait_until_idle();
      EXPECT_EQ(module.method("forward").explain().weights.in_files_bytes > 0, module.options().frozen());
    }
    act();
    for (int call = 0; call < 4; ++call) {
      EXPECT_TRUE(gives_expected(module, 0));
      EXPECT_TRUE(gives_expected(module, 1));
    }
    EXPECT_TRUE(at::equal(module.script_module().attr("second").toTensor(),
                          torch::jit::load(file("model")).attr("second").toTensor()));
  }
}

// What the file gives after it was checked is checked again.
TEST_F(WrittenFile, ThatChangedAfterItsCheckIsNotRead) {
  const std::string path = file("served");
  const std::vector<std::pair<const char*, std::function<void()>>> actions = {
      {"overwritten", [&] { overwrite("same"); }},
      {"cut short", [&] { fs::resize_file(path, fs::file_size(path) / 2); }},
      {"cut to nothing", [&] { fs::resize_file(path, 0); }},
  };
  for (const auto& [action, act] : actions) {
    overwrite("model");
    const CheckedArchive checked = check_archive(path);
    act();
    EXPECT_ANY_THROW(torch::jit::load(checked.file)) << action;
    EXPECT_THAT(checked.file->damaged_entry(), HasSubstr("/data/")) << action;
  }
  overwrite("model");
  const CheckedArchive checked = check_archive(path);
  fs::rename(file("same"), path);
  EXPECT_TRUE(at::equal(torch::jit::load(checked.file).attr("second").toTensor(),
                        torch::jit::load(file("model")).attr("second").toTensor()));
}

TEST_F(WrittenFile, GivesAModelOrAnErrorWhileItIsWritten) {
  const at::NoGradGuard no_grad;
  const c10::IValue other = torch::jit::load(file("same")).forward({images_[0]});
  overwrite("model");
  std::atomic<bool> is_done = false;
  std::thread writer([&] {
    for (uint64_t i = 0; !is_done; ++i) {
      if (i % 4 == 3) {
        fs::resize_file(file("served"), fs::file_size(file("served")) / 3);
      } else {
        overwrite(i % 4 == 1 ? "same" : "model");
      }
      std::this_thread::sleep_for(std::chrono::microseconds(i * 3'700 % 20'000));
    }
  });
  const uint64_t rounds = environment_number("SCONCE_ROUNDS", 40);
  uint64_t loaded = 0;
  for (uint64_t round = 0; loaded < rounds; ++round) {
    try {
      const Module module = load(file("served"), Options().frozen(round % 2 == 0));
      ++loaded;
      const c10::IValue result = module.forward({images_[0]});
      EXPECT_TRUE(agree(result, expected_[0], 1e-3) || agree(result, other, 1e-3));
    } catch (const c10::Error& error) {
      const std::string message = error.what_without_backtrace();
      EXPECT_THAT(message, StartsWith(file("served") + ": "));
      EXPECT_THAT(message, AnyOf(HasSubstr("truncated or damaged"), HasSubstr("the file is empty"),
                                 HasSubstr("it became shorter while it was read")));
    }
  }
  is_done = true;
  writer.join();
}

// A limit of the size of files stands for a full disk.
TEST_F(WrittenFile, WithoutRoomForATemporaryFileWeightsStayInMemory) {
  const at::NoGradGuard no_grad;
  overwrite("model");
  const Module module = load(file("served"), Options().frozen(true));
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small = {1000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  for (int call = 0; call < 24; ++call) {
    EXPECT_TRUE(gives_expected(module, call % 2));
  }
  module.method("forward").wait_for_compiles();
  CompileQueue::of_process().wait_until_idle();
  EXPECT_TRUE(gives_expected(module, 0));
  const WeightsExplanation weights = module.method("forward").explain().weights;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_GT(weights.packed_bytes, 0U);
  EXPECT_EQ(weights.in_files_bytes, 0U);
}

}  // namespace
}  // namespace sconce::testing
