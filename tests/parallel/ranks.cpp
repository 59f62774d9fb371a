#include "tests/parallel/ranks.h"

#include "base/exception_message.h"

#include <gtest/gtest.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <cstdlib>
#include <thread>

namespace sconce::testing {
namespace {

// c10d's record of collectives is one of the process, and not safe where several groups of gloo write it.
const int kNoRecord = setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/1);

}  // namespace

std::vector<std::string> run_ranks(int world, const std::function<void(const DataParallel& ranks)>& run,
                                   const DataParallelSettings& settings) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::string> messages(static_cast<size_t>(world));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        run(DataParallel(store, rank, world, settings));
      } catch (const std::exception& error) {
        messages[static_cast<size_t>(rank)] = message_of(error);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return messages;
}

void run_all_ranks(int world, const std::function<void(const DataParallel& ranks)>& run,
                   const DataParallelSettings& settings) {
  const std::vector<std::string> messages = run_ranks(world, run, settings);
  for (size_t rank = 0; rank < messages.size(); ++rank) {
    EXPECT_EQ(messages[rank], "") << "rank " << rank;
  }
}

std::vector<NamedOptimizer> optimizers() {
  using Tensors = std::vector<at::Tensor>;
  using namespace torch::optim;
  return {
      {"SGD with momentum", sgd},
      {"Adam", adam},
      {"Adam, amsgrad",
       [](Tensors parameters) { return std::make_unique<Adam>(std::move(parameters), AdamOptions(0.01).amsgrad(true)); }},
      {"AdamW", [](Tensors parameters) { return std::make_unique<AdamW>(std::move(parameters), AdamWOptions(0.01)); }},
      {"RMSprop",
       [](Tensors parameters) {
         return std::make_unique<RMSprop>(std::move(parameters), RMSpropOptions(0.001).eps(1e-3).momentum(0.5));
       }},
      {"Adagrad",
       [](Tensors parameters) { return std::make_unique<Adagrad>(std::move(parameters), AdagradOptions(0.01)); }}};
}

}  // namespace sconce::testing
