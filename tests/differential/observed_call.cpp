#include "tests/differential/observed_call.h"

#include "base/exception_message.h"
#include "tools/sconce/check/gradients.h"
#include "tools/sconce/values/deep_copy.h"
#include "tools/sconce/values/value_walk.h"

#include <ATen/ATen.h>

namespace sconce::testing {
namespace {

std::vector<cli::NamedTensor> tensors_in_all(const std::vector<c10::IValue>& values, const std::string& name) {
  std::vector<cli::NamedTensor> all;
  for (size_t i = 0; i < values.size(); ++i) {
    for (cli::NamedTensor& tensor : cli::tensors_in(values[i], name + "[" + std::to_string(i) + "]", cli::Objects::kEnter)) {
      all.push_back(std::move(tensor));
    }
  }
  return all;
}

void take_gradients(ObservedCall& call) {
  std::vector<at::Tensor> wanted;
  for (const cli::NamedTensor& argument : tensors_in_all(call.arguments, "inputs")) {
    if (argument.tensor.requires_grad() && argument.tensor.is_leaf()) {
      wanted.push_back(argument.tensor);
    }
  }
  std::vector<at::Tensor> differentiable;
  for (const c10::IValue& output : call.outputs) {
    for (const at::Tensor& tensor : cli::differentiable_tensors(output)) {
      differentiable.push_back(tensor);
    }
  }
  const auto loss = cli::mean_square_loss(differentiable);
  if (!loss || wanted.empty()) {
    return;
  }
  try {
    call.gradients = cli::gradients(*loss, wanted);
  } catch (const std::exception& failure) {
    call.gradient_error = one_line_message(failure);
  }
}

class Differences {
 public:
  void add(const std::string& line) { lines_.push_back(line); }

  void compare_values(const std::vector<c10::IValue>& got, const std::vector<c10::IValue>& expected, const std::string& name,
                      const cli::CompareOptions& options) {
    if (got.size() != expected.size()) {
      add(name + ": " + std::to_string(got.size()) + " values instead of " + std::to_string(expected.size()));
      return;
    }
    for (size_t i = 0; i < got.size(); ++i) {
      for (const cli::Mismatch& mismatch :
           cli::compare(got[i], expected[i], options, name + "[" + std::to_string(i) + "]")) {
        add(cli::to_string(mismatch));
      }
    }
  }

  void compare_texts(const std::string& what, const std::optional<std::string>& got,
                     const std::optional<std::string>& expected) {
    if (got.has_value() != expected.has_value()) {
      add(what + (got ? " raises: " + *got : " does not raise: " + *expected));
    }
  }

  void compare_layouts(const std::vector<c10::IValue>& got, const std::vector<c10::IValue>& expected,
                       const std::string& name, std::string (*describe)(const at::Tensor&)) {
    const auto got_tensors = tensors_in_all(got, name);
    const auto expected_tensors = tensors_in_all(expected, name);
    for (size_t i = 0; i < got_tensors.size() && i < expected_tensors.size(); ++i) {
      const std::string a = describe(got_tensors[i].tensor);
      const std::string b = describe(expected_tensors[i].tensor);
      if (a != b) {
        add(got_tensors[i].path + " has " + a + " instead of " + b);
      }
    }
  }

  std::vector<std::string> take() { return std::move(lines_); }

 private:
  std::vector<std::string> lines_;
};

std::vector<std::string> sharing(const ObservedCall& call) {
  return cli::sharing_of(tensors_in_all(call.arguments, "inputs"), tensors_in_all(call.outputs, "out"));
}

}  // namespace

ObservedCall observe_call(const std::vector<c10::IValue>& arguments, uint64_t seed, const RunGraph& run) {
  ObservedCall call;
  call.arguments = cli::deep_copy(arguments);
  torch::jit::Stack stack(call.arguments);
  at::manual_seed(seed);
  try {
    run(stack);
    call.outputs = std::move(stack);
  } catch (const std::exception& failure) {
    call.error = one_line_message(failure);
  }
  call.generator_state = at::globalContext().defaultGenerator(c10::kCPU).get_state();
  take_gradients(call);
  return call;
}

std::vector<std::string> differences(const ObservedCall& got, const ObservedCall& expected, Strictness strictness,
                                     const cli::CompareOptions& options,
                                     const std::optional<cli::CompareOptions>& gradients) {
  Differences found;
  found.compare_texts("the call", got.error, expected.error);
  if (got.error || expected.error) {
    return found.take();
  }
  found.compare_values(got.outputs, expected.outputs, "out", options);
  found.compare_values(got.arguments, expected.arguments, "inputs", options);
  if (strictness == Strictness::kEverything) {
    found.compare_layouts(got.outputs, expected.outputs, "out", describe_layout);
    found.compare_layouts(got.arguments, expected.arguments, "inputs", describe_argument);
    if (sharing(got) != sharing(expected)) {
      found.add("other tensors share memory: " + c10::str(sharing(got)) + " instead of " + c10::str(sharing(expected)));
    }
    if (!got.generator_state.equal(expected.generator_state)) {
      found.add("the generator is left in another state");
    }
  }
  found.compare_texts("backward", got.gradient_error, expected.gradient_error);
  if (!got.gradient_error && !expected.gradient_error) {
    found.compare_values({got.gradients.begin(), got.gradients.end()},
                         {expected.gradients.begin(), expected.gradients.end()}, "gradient", gradients.value_or(options));
  }
  return found.take();
}

std::string describe_form(const at::Tensor& tensor) {
  const bool has_strides = tensor.layout() == c10::kStrided && !tensor.is_mkldnn();
  return has_strides ? "strides " + c10::str(tensor.strides()) + ", offset " + std::to_string(tensor.storage_offset()) : "";
}

std::string describe_layout(const at::Tensor& tensor) {
  std::string text = describe_form(tensor);
  text += tensor.is_view() ? ", a view" : "";
  text += tensor.is_leaf() ? ", a leaf" : "";
  return text + (tensor.is_inference() ? ", inference" : "");
}

std::string describe_argument(const at::Tensor& tensor) {
  return describe_layout(tensor) + (tensor.is_inference() ? "" : ", version " + std::to_string(tensor._version()));
}

}  // namespace sconce::testing
