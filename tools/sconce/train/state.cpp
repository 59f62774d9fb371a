#include "tools/sconce/train/state.h"

#include "tools/sconce/report/errors.h"
#include "tools/sconce/values/compare.h"
#include "tools/sconce/values/deep_copy.h"
#include "tools/sconce/values/fit_arguments.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize/input-archive.h>
#include <torch/serialize/output-archive.h>

#include <algorithm>
#include <memory>

namespace sconce::cli {
namespace {

// Whether a file holds the value: tensors, numbers and texts, and containers of them.
bool is_data(const c10::IValue& value) {
  if (value.isTuple()) {
    const auto& elements = value.toTupleRef().elements();
    return std::all_of(elements.begin(), elements.end(), is_data);
  }
  if (value.isList()) {
    const auto elements = value.toListRef();
    return std::all_of(elements.begin(), elements.end(), is_data);
  }
  if (value.isGenericDict()) {
    const auto entries = value.toGenericDict();
    return std::all_of(entries.begin(), entries.end(),
                       [](const auto& entry) { return is_data(entry.key()) && is_data(entry.value()); });
  }
  return value.isTensor() || value.isNone() || value.isBool() || value.isInt() || value.isDouble() || value.isString();
}

at::Tensor archive_of(torch::optim::Optimizer& optimizer) {
  for (const auto& [parameter, state] : optimizer.state()) {
    if (auto* const lbfgs = dynamic_cast<torch::optim::LBFGSParamState*>(state.get())) {
      lbfgs->al(std::nullopt);  // each iteration computes it anew; LibTorch cannot save the undefined tensors in it
    }
  }
  torch::serialize::OutputArchive archive;
  optimizer.save(archive);
  auto bytes = std::make_unique<std::string>();
  archive.save_to([&bytes](const void* data, size_t size) {
    bytes->append(static_cast<const char*>(data), size);
    return size;
  });
  char* const data = bytes->data();
  const auto size = static_cast<int64_t>(bytes->size());
  return at::from_blob(data, {size}, [owner = std::shared_ptr<std::string>(std::move(bytes))](void* /*data*/) {}, at::kByte);
}

void restore_optimizer(const at::Tensor& archived, torch::optim::Optimizer& optimizer) {
  std::vector<std::unique_ptr<torch::optim::OptimizerOptions>> options;
  for (const torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    options.push_back(group.options().clone());
  }
  torch::serialize::InputArchive archive;
  const c10::Device device = optimizer.param_groups().front().params().front().device();
  archive.load_from(static_cast<const char*>(archived.const_data_ptr()), archived.numel(), device);
  optimizer.state().clear();
  optimizer.load(archive);
  for (size_t i = 0; i < options.size(); ++i) {
    optimizer.param_groups()[i].set_options(std::move(options[i]));
  }
}

void restore_tensor(const std::string& name, const at::Tensor& saved, const at::Tensor& current) {
  if (saved.sizes() != current.sizes() || saved.scalar_type() != current.scalar_type()) {
    throw UserError("is of another model: '" + name + "' is " + describe_tensor_type(saved) + " there, and " +
                    describe_tensor_type(current) + " in this model");
  }
  const at::NoGradGuard no_grad;
  current.copy_(saved);
}

// The object that holds an attribute, and the attribute's own name.
std::pair<torch::jit::Module, std::string> owner_of(const torch::jit::Module& module, const std::string& name) {
  torch::jit::Module owner = module;
  size_t begin = 0;
  for (size_t point = name.find('.'); point != std::string::npos; point = name.find('.', begin)) {
    owner = owner.attr(name.substr(begin, point - begin)).toModule();
    begin = point + 1;
  }
  return {owner, name.substr(begin)};
}

void restore_attribute(const torch::jit::Module& module, const std::string& name, const c10::IValue& saved,
                       const c10::IValue& current) {
  const bool are_tensors = saved.isTensor() && current.isTensor();
  if (are_tensors && saved.toTensor().defined() && current.toTensor().defined()) {
    restore_tensor(name, saved.toTensor(), current.toTensor());
    return;
  }
  auto [owner, own_name] = owner_of(module, name);
  // A file's lists and dicts lack the types of their elements.
  const auto fitted = fit_value(saved, owner.type()->getAttribute(own_name));
  if (!fitted) {
    throw UserError("is of another model: '" + name + "' is " + kind_of_value(saved) + " there, and " +
                    kind_of_value(current) + " in this model");
  }
  // Plans hold for the attributes that they were made with.
  if (!compare(*fitted, current, {.rtol = 0, .atol = 0, .requires_grad = false}).empty()) {
    owner.setattr(own_name, deep_copy(*fitted));
  }
}

}  // namespace

TrainState state_of(const torch::jit::Module& module, torch::optim::Optimizer& optimizer) {
  TrainState state{c10::impl::GenericDict(c10::StringType::get(), c10::AnyType::get()), archive_of(optimizer)};
  for (const auto& attribute : module.named_attributes()) {
    if (is_data(attribute.value)) {
      const bool is_tensor = attribute.value.isTensor() && attribute.value.toTensor().defined();
      state.module.insert(attribute.name,
                          is_tensor ? c10::IValue(attribute.value.toTensor().detach().cpu()) : attribute.value);
    }
  }
  return state;
}

TrainState copy_of(const TrainState& state) {
  TrainState copy{c10::impl::GenericDict(c10::StringType::get(), c10::AnyType::get()), state.optimizer};
  for (const auto& entry : state.module) {
    const bool is_tensor = entry.value().isTensor() && entry.value().toTensor().defined();
    copy.module.insert(entry.key(), is_tensor ? c10::IValue(entry.value().toTensor().clone()) : deep_copy(entry.value()));
  }
  return copy;
}

void restore(const TrainState& state, torch::jit::Module& module, torch::optim::Optimizer& optimizer) {
  for (const auto& attribute : module.named_attributes()) {
    if (!is_data(attribute.value)) {
      continue;
    }
    const auto saved = state.module.find(attribute.name);
    if (saved == state.module.end()) {
      throw UserError("is of another model: it has no '" + attribute.name + "'");
    }
    restore_attribute(module, attribute.name, saved->value(), attribute.value);
  }
  restore_optimizer(state.optimizer, optimizer);
}

}  // namespace sconce::cli
