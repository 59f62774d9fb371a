#include "tests/support/ranks.h"

#include "base/exception_message.h"

#include <gtest/gtest.h>
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
        messages[static_cast<size_t>(rank)] = sconce::message_of(error);
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

}  // namespace sconce::testing
