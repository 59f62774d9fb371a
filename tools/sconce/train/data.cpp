#include "tools/sconce/train/data.h"

#include "load/load_module.h"
#include "tools/sconce/report/errors.h"
#include "tools/sconce/values/cases.h"
#include "tools/sconce/values/compare.h"

#include <torch/csrc/jit/api/module.h>

namespace sconce::cli {
namespace {

constexpr const char* kRemedy = "; write the file with torch.save((inputs, targets), FILE)";

std::vector<c10::IValue> read_pair(const std::string& path) {
  if (!is_script_archive(path)) {
    const std::vector<c10::IValue> values = load_arguments(path);
    return values.size() == 1 && values.front().isList() ? values.front().toListRef().vec() : values;
  }
  const torch::jit::Module module = load_script_module(path, std::nullopt);
  if (!module.hasattr("inputs") || !module.hasattr("targets")) {
    throw UserError(path + ": is a TorchScript archive without the attributes 'inputs' and 'targets'" + kRemedy);
  }
  return {module.attr("inputs"), module.attr("targets")};
}

at::Tensor checked(const std::string& path, const std::string& name, const c10::IValue& value) {
  if (!value.isTensor() || !value.toTensor().defined()) {
    throw UserError(path + ": " + name + " is " + kind_of_value(value) + ", not a tensor" + kRemedy);
  }
  const at::Tensor& tensor = value.toTensor();
  if (tensor.layout() != at::kStrided || tensor.is_quantized() || !tensor.device().is_cpu()) {
    throw UserError(path + ": " + name + " is a sparse, quantized or non-CPU tensor; train takes dense tensors on the CPU");
  }
  if (tensor.dim() == 0) {
    throw UserError(path + ": " + name + " is " + describe_tensor_type(tensor) +
                    ", without a first dimension that counts the examples");
  }
  return tensor.detach();
}

std::vector<std::pair<std::string, c10::IValue>> inputs_of(const std::string& path, const c10::IValue& value) {
  if (value.isTensor()) {
    return {{"inputs", value}};
  }
  if (!value.isTuple() && !value.isList()) {
    throw UserError(path + ": inputs is " + kind_of_value(value) + ", not a tensor or a tuple of tensors" + kRemedy);
  }
  std::vector<std::pair<std::string, c10::IValue>> named;
  for (const c10::IValue& each : value.isTuple() ? value.toTupleRef().elements().vec() : value.toListRef().vec()) {
    named.emplace_back("inputs[" + std::to_string(named.size()) + "]", each);
  }
  return named;
}

}  // namespace

TrainData read_train_data(const std::string& path) {
  const std::vector<c10::IValue> pair = read_pair(path);
  if (pair.size() != 2) {
    throw UserError(path + ": holds " + std::to_string(pair.size()) + (pair.size() == 1 ? " value" : " values") +
                    " instead of two, inputs and targets" + kRemedy);
  }
  TrainData data;
  data.targets = checked(path, "targets", pair[1]);
  for (const auto& [name, value] : inputs_of(path, pair[0])) {
    data.inputs.push_back(checked(path, name, value));
    if (data.inputs.back().size(0) != data.examples()) {
      throw UserError(path + ": " + name + " has " + std::to_string(data.inputs.back().size(0)) +
                      " examples (the first dimension), targets has " + std::to_string(data.examples()));
    }
  }
  if (data.examples() == 0) {
    throw UserError(path + ": has no examples: the first dimension of targets is 0");
  }
  return data;
}

TrainBatch batch_of(const TrainData& data, const at::Tensor& indices) {
  TrainBatch batch;
  for (const at::Tensor& input : data.inputs) {
    batch.inputs.emplace_back(input.index_select(0, indices));
  }
  batch.targets.emplace_back(data.targets.index_select(0, indices));
  return batch;
}

}  // namespace sconce::cli
