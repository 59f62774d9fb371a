// Executors timed side by side in one process.
#pragma once

#include "tools/peers/peer.h"
#include "tools/sconce/compare.h"

#include <torch/csrc/jit/api/module.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sconce::cli {

struct MeasureSettings {
  std::function<torch::jit::Module()> load;  // the model afresh
  std::string method;
  std::vector<c10::IValue> arguments;
  uint64_t seed = 0;
  double seconds = 1.0;  // of steady state, per executor
  size_t loads = 3;      // fresh loads, for the first calls
  size_t threads = 1;    // that call at the same time in steady state
  bool with_grad = false;
  CompareOptions tolerance{1e-3, 1e-4, /*requires_grad=*/false};
};

constexpr size_t kFirstCalls = 10;  // fewer of slow models

// One executor's row.
struct Measurement {
  std::string name;
  std::optional<std::string> not_available;  // why it cannot run the model
  std::optional<std::string> wrong;          // how its results differ from eager ones
  // Medians over the loads. The first call includes what the executor does to a model that was just read.
  std::vector<double> first_calls;
  std::vector<double> steady;   // of each call, seconds
  double calls_per_second = 0;  // of all threads together
  double memory_bytes = 0;      // growth of the process by the loaded model and its first calls
};

struct Contestant {
  std::string name;
  std::function<std::unique_ptr<peers::Peer>()> make;
};

// Called after each piece of work, `pieces_of_work` times in all.
using MeasureProgress = std::function<void(const std::string& executor)>;
size_t pieces_of_work(size_t contestants, const MeasureSettings& settings);

// The rows in the order of the contestants. Loads and rounds of steady state go round all executors in turn, so that the
// drift of a machine (heat, other load) meets all alike. Results of the first and last of the first calls are compared with
// those of eager LibTorch before anything is timed for long. A model that writes into its arguments gets copies for every
// call, made outside the timed part.
std::vector<Measurement> measure(const std::vector<Contestant>& contestants, const MeasureSettings& settings,
                                 const MeasureProgress& progress);

}  // namespace sconce::cli
