#include "tools/sconce/check/rounding.h"

#include "report/number_format.h"
#include "tools/sconce/check/gradients.h"
#include "tools/sconce/check/reference_calls.h"
#include "tools/sconce/values/deep_copy.h"
#include "tools/sconce/values/value_walk.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <map>

namespace sconce::cli {
namespace {

constexpr int kMoves = 3;
constexpr double kFactor = 4;

std::vector<c10::IValue> moved_by_one_ulp(const std::vector<c10::IValue>& arguments) {
  const at::NoGradGuard no_grad;
  std::vector<c10::IValue> moved = deep_copy(arguments);
  for (const c10::IValue& argument : moved) {
    for (const NamedTensor& named : tensors_in(argument, "", Objects::kSkip)) {
      const at::Tensor tensor = named.tensor;
      if (tensor.is_floating_point() && tensor.layout() == c10::kStrided && !tensor.is_quantized()) {
        const double infinity = std::numeric_limits<double>::infinity();
        const at::Tensor target = at::where(at::rand_like(tensor) < 0.5, -infinity, infinity).to(tensor.scalar_type());
        tensor.copy_(at::nextafter(tensor, target));
      }
    }
  }
  return moved;
}

CallGradients reference_gradients(const torch::jit::Module& reference, const std::string& method,
                                  const std::vector<c10::IValue>& arguments, uint64_t seed) {
  const torch::jit::Module copy = reference.deepcopy();  // a call in training mode changes statistics
  const CallOutcome outcome = call_reference(copy, method, arguments, seed);
  return outcome.error ? CallGradients{} : gradients_of_call(outcome.output, outcome.arguments, copy);
}

}  // namespace

RoundingCheck check_rounding(std::vector<Mismatch> mismatches, const torch::jit::Module& reference,
                             const std::string& method, const std::vector<c10::IValue>& arguments, uint64_t seed) {
  const CallGradients before = reference_gradients(reference, method, arguments, seed);
  std::map<std::string, double> change;  // by path, the largest
  for (int move = 0; move < kMoves; ++move) {
    at::manual_seed(seed + static_cast<uint64_t>(move));
    const CallGradients after = reference_gradients(reference, method, moved_by_one_ulp(arguments), seed);
    for (size_t i = 0; i < std::min(before.by_name.size(), after.by_name.size()); ++i) {
      if (before.by_name[i].tensor.numel() > 0) {
        double& largest = change[gradient_path(before.by_name[i])];
        largest = std::max(largest, (after.by_name[i].tensor - before.by_name[i].tensor).abs().max().item().toDouble());
      }
    }
  }
  RoundingCheck result;
  size_t explained = 0;
  const Mismatch* worst = nullptr;
  for (const Mismatch& mismatch : mismatches) {
    const auto own = change.find(mismatch.path);
    if (mismatch.differs_in_finiteness || !mismatch.max_absolute_error || own == change.end() ||
        !(*mismatch.max_absolute_error <= kFactor * own->second)) {
      result.beyond.push_back(mismatch);
      continue;
    }
    ++explained;
    if (worst == nullptr || *mismatch.max_absolute_error > *worst->max_absolute_error) {
      worst = &mismatch;
    }
  }
  if (worst != nullptr) {
    result.note = (explained == 1 ? "1 gradient differs" : std::to_string(explained) + " gradients differ") +
                  " by rounding, at most by " + format_number(*worst->max_absolute_error, 2) + " (" + worst->path +
                  "); LibTorch's own changes by " + format_number(change.at(worst->path), 2) +
                  " when the arguments move by one ulp";
  }
  return result;
}

}  // namespace sconce::cli
