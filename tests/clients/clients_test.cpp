// Random programs of clients, run op by op with LibTorch and by sconce, and compared after each statement.
//
// SCONCE_CLIENTS: how many programs. SCONCE_SEED: runs the program of that number alone.
#include "tests/clients/client_world.h"
#include "tests/support/environment_number.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <string>

namespace sconce::clients {
namespace {

constexpr double kTolerance = 4e-3;        // a step of Adam turns the sign of a gradient near 0 into its length
constexpr double kToleranceOfSums = 1e-2;  // of results, which add up what such steps have changed

// Elements that a step function takes from rounded numbers are far off.
bool is_close_on_average(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor wide = b.to(at::kFloat);
  const at::Tensor length = wide.abs().mean() + 0.1;
  return (wide.isnan() == a.to(at::kFloat).isnan()).all().item<bool>() &&
         !((a.to(at::kFloat) - wide).abs().mean() > length * 0.15).item<bool>();
}

bool have_equal_strides(const at::Tensor& a, const at::Tensor& b) {
  for (int64_t i = 0; i < a.dim() && a.numel() != 0; ++i) {
    if (a.size(i) != 1 && a.stride(i) != b.stride(i)) {
      return false;
    }
  }
  return true;
}

std::string difference_of_values(const at::Tensor& found, const at::Tensor& expected, bool is_rounded, double tolerance) {
  const at::Tensor a = found.detach();
  const at::Tensor b = expected.detach();
  if (!a.is_floating_point()) {
    return at::equal(a, b) ? "" : "differs";
  }
  if (a.numel() == 0) {
    return {};
  }
  const double length = b.abs().max().item<double>();
  // Training may diverge: the rounding errors of numbers near 20,000 are large for an element near 0.
  const double least = std::isfinite(length) ? tolerance + 1e-4 * length : tolerance;
  if (at::allclose(a, b, tolerance, least, /*equal_nan=*/true) || (is_rounded && is_close_on_average(a, b))) {
    return {};
  }
  return "differs by " + std::to_string((a - b).abs().max().item<double>()) + " of " + std::to_string(length);
}

std::string difference(const at::Tensor& found, const at::Tensor& expected, bool is_rounded, double tolerance) {
  if (found.defined() != expected.defined()) {
    return found.defined() ? "is defined, LibTorch's is not" : "is undefined, LibTorch's is not";
  }
  if (!found.defined()) {
    return {};
  }
  if (found.sizes() != expected.sizes() || found.scalar_type() != expected.scalar_type()) {
    return "has another form";
  }
  if (!have_equal_strides(found, expected)) {
    return "has other strides";
  }
  if (found.is_inference() != expected.is_inference()) {
    return found.is_inference() ? "is an inference tensor, LibTorch's is not" : "is no inference tensor, LibTorch's is";
  }
  if (found.requires_grad() != expected.requires_grad()) {
    return found.requires_grad() ? "requires a gradient, LibTorch's does not" : "requires no gradient, LibTorch's does";
  }
  if (found.is_leaf() != expected.is_leaf()) {
    return found.is_leaf() ? "is a leaf, LibTorch's is not" : "is no leaf, LibTorch's is";
  }
  if (found.retains_grad() != expected.retains_grad()) {
    return found.retains_grad() ? "retains its gradient, LibTorch's does not" : "retains no gradient, LibTorch's does";
  }
  const std::string how = difference_of_values(found, expected, is_rounded, tolerance);
  if (how.empty() && (found.is_leaf() || found.retains_grad())) {
    const std::string of_gradient = difference(found.grad(), expected.grad(), is_rounded, tolerance);
    return of_gradient.empty() ? "" : "has a gradient that " + of_gradient;
  }
  return how;
}

// `least_tolerance`: of all values.
std::string difference(const Observed& found, const Observed& expected, double least_tolerance = 0) {
  if (found.error.empty() != expected.error.empty()) {
    return found.error.empty() ? "LibTorch raises: " + expected.error : "raises, LibTorch does not: " + found.error;
  }
  // A node of a plan stands for several of LibTorch's, of which one may find what was written and one what was freed.
  const auto is_of_saved = [](const std::string& error) {
    return error.starts_with("one of the variables needed for gradient computation has been modified") ||
           error.starts_with("Trying to backward through the graph a second time");
  };
  if (found.error != expected.error && !(is_of_saved(found.error) && is_of_saved(expected.error))) {
    return "raises '" + found.error + "', LibTorch '" + expected.error + "'";
  }
  if (found.numbers.size() != expected.numbers.size() || found.tensors.size() != expected.tensors.size()) {
    return "raises elsewhere: " + found.error;
  }
  for (size_t i = 0; i < expected.numbers.size(); ++i) {
    if (found.numbers[i] != expected.numbers[i]) {
      return found.numbers[i].first + " is " + std::to_string(found.numbers[i].second) + ", LibTorch's is " +
             std::to_string(expected.numbers[i].second);
    }
  }
  for (size_t i = 0; i < expected.tensors.size(); ++i) {
    const double tolerance = expected.tensors[i].first.starts_with("a result") ? kToleranceOfSums : kTolerance;
    const std::string how = difference(found.tensors[i].second, expected.tensors[i].second, expected.is_rounded,
                                       std::max(tolerance, least_tolerance));
    if (!how.empty()) {
      return expected.tensors[i].first + " " + how;
    }
  }
  return {};
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined() || a.numel() == 0 || a.sizes() != b.sizes()) {
    return 0;
  }
  const double of_gradients = a.is_leaf() || a.retains_grad() ? distance(a.grad(), b.grad()) : 0;
  return std::max(of_gradients, (a.detach().to(at::kDouble) - b.detach().to(at::kDouble)).abs().max().item<double>());
}

// Training that diverges, or attention that saturates, turns rounding errors into differences of any size. Returns whether
// the values found differ from LibTorch's no more than its own do after a nudge of the parameters.
bool is_within_rounding(const ClientProgram& program, size_t index, const Observed& found, const Observed& expected) {
  constexpr double kAnyValue = 1e30;
  if (!difference(found, expected, kAnyValue).empty()) {
    return false;
  }
  World nudged(program, /*by_sconce=*/false, /*nudge=*/1e-6);
  for (size_t i = 0; i < index; ++i) {
    nudged.run(program.statements[i], i);
  }
  const Observed others = nudged.run(program.statements[index], index);
  if (others.tensors.size() != expected.tensors.size()) {
    return false;
  }
  for (size_t i = 0; i < expected.tensors.size(); ++i) {
    const at::Tensor& tensor = expected.tensors[i].second;
    const double length = tensor.defined() && tensor.numel() != 0 ? tensor.detach().abs().max().item<double>() : 0;
    const double allowed = std::max(4 * distance(others.tensors[i].second, tensor), kTolerance * length);
    if (distance(found.tensors[i].second, tensor) > allowed) {
      return false;
    }
  }
  return true;
}

// Returns where a program goes wrong; empty if it does not.
std::string failure_of(const ClientProgram& program, uint64_t* by_plan = nullptr) {
  World eager(program, /*by_sconce=*/false);
  World ours(program, /*by_sconce=*/true);
  for (size_t i = 0; i < program.statements.size(); ++i) {
    const Observed expected = eager.run(program.statements[i], i);
    const Observed found = ours.run(program.statements[i], i);
    const std::string how = difference(found, expected);
    if (!how.empty() && is_within_rounding(program, i, found, expected)) {
      return {};  // later values say no more
    }
    if (!how.empty()) {
      return "statement " + std::to_string(i) + ": " + how;
    }
  }
  if (by_plan != nullptr) {
    *by_plan += ours.runs_by_plan();
  }
  return {};
}

// Removes elements as long as the program still goes wrong.
template <typename Element>
bool shrink(ClientProgram& program, std::vector<Element> ClientProgram::* part, size_t least) {
  bool is_smaller = false;
  for (size_t i = (program.*part).size(); i-- > 0 && (program.*part).size() > least;) {
    ClientProgram smaller = program;
    (smaller.*part).erase((smaller.*part).begin() + static_cast<std::ptrdiff_t>(i));
    if (!failure_of(smaller).empty()) {
      program = std::move(smaller);
      is_smaller = true;
    }
  }
  return is_smaller;
}

TEST(ClientPrograms, DoAsWithLibTorch) {
  using testing::environment_number;
  const uint64_t alone = environment_number("SCONCE_SEED", 0);
  const uint64_t first = alone == 0 ? 1 : alone;
  const uint64_t end = first + environment_number("SCONCE_CLIENTS", alone == 0 ? 80 : 1);
  uint64_t by_plan = 0;
  uint64_t failures = 0;
  for (uint64_t seed = first; seed < end && failures < 5; ++seed) {
    ClientProgram program = random_program(seed);
    if (end == first + 1) {
      std::cout << text_of(program) << std::endl;  // a crash shows no more
    }
    if (failure_of(program, &by_plan).empty()) {
      continue;
    }
    ++failures;
    while (shrink(program, &ClientProgram::statements, 1) || shrink(program, &ClientProgram::effects, 0) ||
           shrink(program, &ClientProgram::function, 1) || shrink(program, &ClientProgram::loss, 1)) {
    }
    ADD_FAILURE() << "program " << seed << ", made smaller: " << failure_of(program) << "\n" << text_of(program);
  }
  std::cout << end - first << " programs, " << by_plan << " calls by recorded plans\n";
  EXPECT_TRUE(alone != 0 || by_plan > end - first) << "plans serve too few calls";
}

}  // namespace
}  // namespace sconce::clients
