#include "tests/differential/composed/program_check.h"

#include "base/exception_message.h"
#include "tools/peers/executor_settings.h"
#include "tools/sconce/values/compare.h"
#include "tools/sconce/values/deep_copy.h"
#include "tools/sconce/values/value_walk.h"

#include <sconce/sconce.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <regex>

namespace sconce::testing::composed {
namespace {

using Tensors = std::vector<at::Tensor>;
using Run = std::function<c10::IValue(std::vector<c10::IValue>)>;

struct Observed {
  std::optional<std::string> error;
  std::string error_line;  // of the source
  c10::IValue output;
  std::vector<c10::IValue> arguments;  // after the call
  std::vector<c10::IValue> attributes;
  at::Tensor generator;
  std::vector<std::string> sharing;
  std::optional<std::string> backward_error;
  Tensors gradients;  // undefined ones included
  std::optional<std::string> second_error;
  Tensors second_gradients;
};

std::vector<cli::NamedTensor> tensors_in_all(const std::vector<c10::IValue>& values, const std::string& name) {
  std::vector<cli::NamedTensor> all;
  for (size_t i = 0; i < values.size(); ++i) {
    for (auto& each : cli::tensors_in(values[i], name + std::to_string(i), cli::Objects::kSkip)) {
      all.push_back(std::move(each));
    }
  }
  return all;
}

Tensors leaves_among(const std::vector<c10::IValue>& values) {
  Tensors leaves;
  for (const cli::NamedTensor& each : tensors_in_all(values, "")) {
    const at::Tensor& tensor = each.tensor;
    if (tensor.requires_grad() && std::ranges::none_of(leaves, [&](const at::Tensor& t) { return t.is_same(tensor); })) {
      leaves.push_back(tensor);
    }
  }
  return leaves;
}

// Asks for the gradients of the outputs that the call names, then for those of the sum of their squares.
void take_gradients(const Call& call, const Tensors& leaves, Observed& seen) {
  Tensors asked;
  Tensors incoming;
  const auto& outputs = seen.output.toTupleRef().elements();
  at::manual_seed(call.seed + 1);
  for (size_t i = 0; i < outputs.size(); ++i) {
    for (const cli::NamedTensor& each : cli::tensors_in(outputs[i], "", cli::Objects::kSkip)) {
      const bool is_real = each.tensor.is_floating_point();
      const at::Tensor gradient = is_real ? at::rand_like(each.tensor, at::MemoryFormat::Contiguous) : at::Tensor();
      if (call.asked[i] && is_real && each.tensor.requires_grad()) {
        asked.push_back(each.tensor);
        incoming.push_back(gradient);
      }
    }
  }
  if (asked.empty() || leaves.empty()) {
    return;
  }
  try {
    seen.gradients = torch::autograd::grad(asked, leaves, incoming, /*retain_graph=*/call.second_order,
                                           /*create_graph=*/call.second_order, /*allow_unused=*/true);
  } catch (const std::exception& failure) {
    seen.backward_error = one_line_message(failure);
    return;
  }
  if (!call.second_order) {
    return;
  }
  try {
    at::Tensor sum;
    for (const at::Tensor& gradient : seen.gradients) {
      if (gradient.defined() && gradient.requires_grad()) {
        const at::Tensor term = gradient.square().sum();
        sum = sum.defined() ? sum + term : term;
      }
    }
    if (sum.defined()) {
      seen.second_gradients = torch::autograd::grad({sum}, leaves, {}, false, false, /*allow_unused=*/true);
    }
  } catch (const std::exception& failure) {
    seen.second_error = one_line_message(failure);
  }
}

Tensors attributes_of(const torch::jit::Module& module) {
  Tensors all;
  for (const at::Tensor& parameter : module.parameters()) {
    all.push_back(parameter);
  }
  for (const at::Tensor& buffer : module.buffers()) {
    all.push_back(buffer);
  }
  return all;
}

// Returns the line of the source that a message of LibTorch's interpreter marks; empty if it marks none.
std::string marked_line(const std::string& message) {
  const size_t mark = message.find("<--- HERE");
  const size_t end = mark == std::string::npos ? mark : message.rfind('\n', mark);
  const size_t begin = end == std::string::npos || end == 0 ? end : message.rfind('\n', end - 1);
  if (begin == std::string::npos) {
    return "";
  }
  const std::string line = message.substr(begin + 1, end - begin - 1);
  return line.substr(std::min(line.find_first_not_of(' '), line.size()));
}

// Returns a copy whose tensors require a gradient where the value's do.
c10::IValue kept(const c10::IValue& value) {
  const c10::IValue copy = cli::deep_copy(value);
  const auto from = cli::tensors_in(value, "", cli::Objects::kSkip);
  const auto to = cli::tensors_in(copy, "", cli::Objects::kSkip);
  for (size_t i = 0; i < from.size(); ++i) {
    const at::Tensor tensor = to[i].tensor;
    if (from[i].tensor.requires_grad() && tensor.is_leaf()) {
      tensor.requires_grad_(true);
    }
  }
  return copy;
}

Observed observe(const Call& call, const torch::jit::Module& module, const Run& run,
                 const std::vector<c10::IValue>& arguments) {
  Observed seen;
  seen.arguments = arguments;
  const Tensors attributes = attributes_of(module);
  std::vector<c10::IValue> inputs = arguments;
  inputs.insert(inputs.end(), attributes.begin(), attributes.end());
  const Tensors leaves = leaves_among(inputs);
  at::manual_seed(call.seed);
  try {
    const at::AutoGradMode grad_mode(call.records_gradients);
    seen.output = run(arguments);
  } catch (const std::exception& failure) {
    seen.error = one_line_message(failure);
    seen.error_line = marked_line(failure.what());
  }
  seen.generator = at::globalContext().defaultGenerator(c10::kCPU).get_state();
  if (!seen.error) {
    if (call.records_gradients) {
      take_gradients(call, leaves, seen);
    }
    seen.sharing =
        cli::sharing_of(tensors_in_all(inputs, "inputs"), cli::tensors_in(seen.output, "out", cli::Objects::kSkip));
  }
  // Later calls write attributes, and what shares memory with them.
  seen.output = kept(seen.output);
  for (const at::Tensor& attribute : attributes) {
    seen.attributes.push_back(kept(attribute));
  }
  return seen;
}

at::Tensor detached(const Tensors& tensors, size_t at) {
  return at < tensors.size() && tensors[at].defined() ? tensors[at].detach() : at::Tensor();
}

// A gradient that does not depend on a leaf is undefined or 0, depending on how its derivative is written. The same holds
// for whether gradients of first order require one.
Tensors zeros_if_undefined(const Observed& seen) {
  Tensors second = seen.second_gradients;
  second.resize(seen.gradients.size());
  for (size_t i = 0; i < second.size(); ++i) {
    second[i] = !second[i].defined() && seen.gradients[i].defined() ? at::zeros_like(seen.gradients[i].detach()) : second[i];
    second[i] = second[i].defined() && seen.gradients[i].defined() ? second[i] : at::Tensor();
  }
  return second;
}

struct Difference {
  std::string kind;
  cli::Mismatch mismatch;
};

// Everything that differs, the most telling first.
std::vector<Difference> differences_between(const Observed& got, const Observed& expected,
                                            const cli::CompareOptions& options) {
  std::vector<Difference> found;
  const auto add_text = [&](const std::string& kind, const std::string& text) {
    found.push_back({kind, {kind, text, {}, {}, {}}});
  };
  const auto compare_errors = [&](const std::string& what, const std::optional<std::string>& ours,
                                  const std::optional<std::string>& theirs) {
    if (ours.has_value() != theirs.has_value()) {
      add_text(what + (ours ? " raises, LibTorch does not" : " does not raise, LibTorch does"), ours ? *ours : *theirs);
    } else if (ours && *ours != *theirs) {
      add_text(what + " raises another message", *ours + " INSTEAD OF " + *theirs);
    }
    return ours || theirs;
  };
  const auto compare = [&](const std::string& kind, const c10::IValue& ours, const c10::IValue& theirs) {
    for (cli::Mismatch& mismatch : cli::compare(ours, theirs, options, kind)) {
      found.push_back({kind + (mismatch.max_absolute_error ? "" : " form"), std::move(mismatch)});
    }
  };
  const bool raised = compare_errors("call", got.error, expected.error);
  if (!raised) {
    compare("output", got.output, expected.output);
  }
  for (size_t i = 0; i < got.arguments.size(); ++i) {
    compare("argument", got.arguments[i], expected.arguments[i]);
  }
  for (size_t i = 0; i < got.attributes.size(); ++i) {
    compare("attribute", got.attributes[i], expected.attributes[i]);
  }
  if (raised || !found.empty()) {
    return found;
  }
  if (!got.generator.equal(expected.generator)) {
    add_text("generator", "is left in another state");
  }
  if (got.sharing != expected.sharing) {
    add_text("sharing", c10::str(got.sharing) + " INSTEAD OF " + c10::str(expected.sharing));
  }
  const auto compare_gradients = [&](const std::string& kind, const Tensors& ours, const Tensors& theirs) {
    for (size_t i = 0; i < std::max(ours.size(), theirs.size()); ++i) {
      compare(kind, detached(ours, i), detached(theirs, i));
    }
  };
  if (!compare_errors("backward", got.backward_error, expected.backward_error)) {
    compare_gradients("gradient", got.gradients, expected.gradients);
    if (!compare_errors("second backward", got.second_error, expected.second_error)) {
      compare_gradients("second gradient", zeros_if_undefined(got), zeros_if_undefined(expected));
    }
  }
  return found;
}

bool contains(const std::optional<std::string>& text, const char* part) {
  return text && text->find(part) != std::string::npos;
}

// Returns why differences do not count, or nothing.
std::string excuse_of(const std::vector<Difference>& differences, const Observed& expected, const std::string& source) {
  const bool is_of_backward = std::ranges::all_of(differences, [](const Difference& difference) {
    return difference.kind.find("backward") != std::string::npos || difference.kind.find("gradient") != std::string::npos;
  });
  const bool is_of_second_order =
      std::ranges::all_of(differences, [](const Difference& difference) { return difference.kind == "second gradient"; });
  const bool has_loss = std::ranges::any_of(std::array{"mse_loss(", "smooth_l1_loss(", "huber_loss("},
                                            [&](const char* loss) { return source.find(loss) != std::string::npos; });
  if (is_of_second_order && has_loss) {
    return "LibTorch's second derivative of a loss that broadcasts follows another formula than its first";
  }
  if (is_of_backward && (contains(expected.backward_error, "modified by an inplace operation") ||
                         contains(expected.second_error, "modified by an inplace operation"))) {
    return "backward finds a value as it was, where LibTorch finds that a later operator wrote it";
  }
  if (is_of_backward && contains(source, "std(") && contains(source, "expand")) {
    return "rounding decides the gradient of the deviation of equal elements";
  }
  if (is_of_backward &&
      (contains(expected.backward_error, "is not implemented") || contains(expected.second_error, "is not implemented"))) {
    return "LibTorch has no derivative of its own gradient";
  }
  return "";
}

// LibTorch's results when floating inputs move by one unit in the last place.
void move_by_one_ulp(const std::vector<c10::IValue>& values) {
  const at::NoGradGuard no_grad;
  for (const cli::NamedTensor& each : tensors_in_all(values, "")) {
    if (each.tensor.is_floating_point() && each.tensor.numel() > 0) {
      const at::Tensor base = each.tensor.detach();
      const bool overlaps = std::ranges::any_of(base.strides(), [](int64_t stride) { return stride == 0; });
      const at::Tensor whole = overlaps ? base.as_strided({1}, {1}) : base;
      const double infinity = std::numeric_limits<double>::infinity();
      whole.copy_(at::nextafter(whole, at::where(at::rand_like(whole) < 0.5, -infinity, infinity).to(whole.scalar_type())));
    }
  }
}

class Check {
 public:
  Check(const Program& program, const std::function<void(const std::string&)>& phase) : program_(program), phase_(phase) {}

  Verdict run() {
    phase_("LibTorch");
    const peers::ExecutorScope eager({.optimize = false});
    if (!observe_reference()) {
      verdict_.is_rejected = true;
      return verdict_;
    }
    phase_("sconce");
    check_sconce("tier 0", Options().compile(CompileMode::kNever));
    if (!verdict_.finding) {
      check_sconce("tier 1", Options().compile(CompileMode::kBlocking));
    }
    return verdict_;
  }

 private:
  bool observe_reference() {
    try {
      const torch::jit::Module module = module_of(program_);
      for (const Call& call : program_.calls) {
        expected_.push_back(observe_reference_call(call, module, arguments_of(program_, call)));
        verdict_.calls += 1;
        verdict_.calls_that_raise += expected_.back().error ? 1 : 0;
        verdict_.gradients += expected_.back().gradients.size();
        verdict_.second_gradients += expected_.back().second_gradients.size();
        find_dtypes(expected_.back());
      }
      return true;
    } catch (const std::exception& failure) {
      return false;
    }
  }

  Observed observe_reference_call(const Call& call, const torch::jit::Module& module,
                                  const std::vector<c10::IValue>& arguments) const {
    torch::jit::Method method = module.get_method("forward");
    return observe(call, module, [&](std::vector<c10::IValue> values) { return method(std::move(values)); }, arguments);
  }

  // Kernels round narrower dtypes at other places.
  void find_dtypes(const Observed& seen) {
    const auto note = [&](const at::Tensor& tensor) {
      has_float_ |= tensor.defined() && (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kComplexFloat);
      is_low_ |= tensor.defined() && (tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16);
    };
    for (const cli::NamedTensor& each : cli::tensors_in(seen.output, "", cli::Objects::kSkip)) {
      note(each.tensor);
    }
    for (const cli::NamedTensor& each : tensors_in_all(seen.arguments, "")) {
      note(each.tensor);
    }
  }

  cli::CompareOptions tolerance() const {
    const std::string source = source_of(program_);
    const auto has = [&](const char* text) { return source.find(text) != std::string::npos; };
    const bool is_low = is_low_ || has("dtype=5") || has("reduced");
    const bool casts = has_float_ || has(", 6") || has("to(6)") || has("float()");
    // LibTorch multiplies by 1/6 in float. Without an epsilon, rms_norm divides a row of rounding errors by the root of
    // 2e-16.
    static const std::regex without_epsilon(R"(rms_norm\(\w+, \[[^\]]*\](, \w+)?\))");
    const bool amplifies = std::regex_search(source, without_epsilon);
    const double bound = is_low ? 3e-2 : casts ? 2e-4 : amplifies ? 1e-5 : has("hardsigmoid") ? 1e-6 : 1e-8;
    return {.rtol = bound, .atol = bound};
  }

  void check_sconce(const std::string& tier, const Options& options) {
    const Module module = accelerate(module_of(program_), options);
    for (size_t i = 0; i < program_.calls.size() && !verdict_.finding; ++i) {
      const Call& call = program_.calls[i];
      const Run run = [&](std::vector<c10::IValue> values) { return module.forward(std::move(values)); };
      const Observed got = observe(call, module.script_module(), run, arguments_of(program_, call));
      const auto differences = differences_between(got, expected_[i], tolerance());
      if (differences.empty()) {
        continue;
      }
      if (const std::string excuse = excuse_of(differences, expected_[i], source_of(program_)); !excuse.empty()) {
        verdict_.excuse = excuse;
        continue;
      }
      if (expected_[i].error && differences_between(got, observe_without_dead_lines(i), tolerance()).empty()) {
        verdict_.excuse = "LibTorch raises in an operator whose results are unused";
        continue;
      }
      if (expected_[i].error && reads_no_element(program_, expected_[i].error_line)) {
        verdict_.excuse = "LibTorch raises in an operator of whose results no element is read";
        continue;
      }
      if (differs_from_itself(i)) {
        verdict_.excuse = "LibTorch's own results differ from run to run";
        return;
      }
      if (is_explained_by_rounding(differences, i)) {
        verdict_.excuse = "rounding";
        return;  // attributes may have gone astray
      }
      std::string text = tier + ", call " + std::to_string(i + 1) + ":";
      for (const Difference& difference : differences) {
        text += "\n    " + cli::to_string(difference.mismatch);
      }
      verdict_.finding = {differences.front().kind, text};
    }
  }

  // LibTorch's results of a call of the program without lines whose results are unused.
  Observed observe_without_dead_lines(size_t last) const {
    Program program = program_;
    remove_dead_lines(program);
    const torch::jit::Module module = module_of(program);
    for (size_t i = 0; i < last; ++i) {
      observe_reference_call(program_.calls[i], module, arguments_of(program_, program_.calls[i]));
    }
    return observe_reference_call(program_.calls[last], module, arguments_of(program_, program_.calls[last]));
  }

  // Whether LibTorch's results of the same calls differ. Its median along an expanded dimension reads memory that nobody
  // wrote.
  bool differs_from_itself(size_t last) const {
    constexpr int kRuns = 8;
    for (int run = 0; run < kRuns; ++run) {
      const torch::jit::Module module = module_of(program_);
      for (size_t i = 0; i <= last; ++i) {
        const Call& call = program_.calls[i];
        const Observed again = observe_reference_call(call, module, arguments_of(program_, call));
        if (!differences_between(again, expected_[i], tolerance()).empty()) {
          return true;
        }
      }
    }
    return false;
  }

  // Whether LibTorch's own results change as much when the arguments move by one unit in the last place. Returns false where
  // a difference is not of values.
  bool is_explained_by_rounding(const std::vector<Difference>& differences, size_t last) const {
    constexpr double kFactor = 32;
    constexpr int kMoves = 12;
    std::map<std::string, double> changes;
    for (int move = 0; move < kMoves; ++move) {
      const torch::jit::Module module = module_of(program_);
      for (size_t i = 0; i <= last; ++i) {
        const Call& call = program_.calls[i];
        const std::vector<c10::IValue> arguments = arguments_of(program_, call);
        at::manual_seed(static_cast<uint64_t>(move));
        move_by_one_ulp(arguments);
        const Observed moved = observe_reference_call(call, module, arguments);
        for (const Difference& difference : differences_between(moved, expected_[i], {.rtol = 0, .atol = 0})) {
          double& change = changes[difference.kind + difference.mismatch.path];
          change = std::max(change, difference.mismatch.max_absolute_error.value_or(0));
        }
      }
    }
    return std::ranges::all_of(differences, [&](const Difference& difference) {
      const auto change = changes.find(difference.kind + difference.mismatch.path);
      return difference.mismatch.max_absolute_error && !difference.mismatch.differs_in_finiteness &&
             change != changes.end() && *difference.mismatch.max_absolute_error <= kFactor * change->second;
    });
  }

  const Program& program_;
  const std::function<void(const std::string&)>& phase_;
  std::vector<Observed> expected_;
  Verdict verdict_;
  bool has_float_ = false;
  bool is_low_ = false;
};

}  // namespace

Verdict check_program(const Program& program, const std::function<void(const std::string&)>& phase) {
  return Check(program, phase).run();
}

}  // namespace sconce::testing::composed
