// Ranks of a test: threads of this process, each with a group of its own on one store.
#pragma once

#include <sconce/data_parallel.h>

#include <functional>
#include <string>
#include <vector>

namespace sconce::testing {

// Calls the function for each rank at the same time. Returns the message of each rank's exception; empty without one.
std::vector<std::string> run_ranks(int world, const std::function<void(const DataParallel& ranks)>& run,
                                   const DataParallelSettings& settings = {.timeout = std::chrono::seconds(60)});

// The same where no rank may raise.
void run_all_ranks(int world, const std::function<void(const DataParallel& ranks)>& run,
                   const DataParallelSettings& settings = {.timeout = std::chrono::seconds(60)});

}  // namespace sconce::testing
