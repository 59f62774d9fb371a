#include "tools/sconce/train/loss.h"

#include "base/nearest_name.h"
#include "tools/sconce/report/errors.h"
#include "tools/sconce/values/compare.h"
#include "tools/sconce/values/fit_arguments.h"

#include <ATen/Functions.h>
#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace sconce::cli {
namespace {

at::Tensor loss_of(const std::string& name, const at::Tensor& output, const at::Tensor& target) {
  if (name == "cross_entropy" || name == "nll") {
    const bool has_scores = name == "cross_entropy" && output.sizes() == target.sizes();
    if (at::isFloatingType(target.scalar_type()) && !has_scores) {
      throw UserError("--loss " + name + ": the targets are " + describe_tensor_type(target) +
                      "; it takes the numbers of classes, as integers");
    }
    const at::Tensor classes =
        at::isIntegralType(target.scalar_type(), /*includeBool=*/false) ? target.to(at::kLong) : target;
    return name == "nll" ? at::nll_loss_nd(output, classes) : at::cross_entropy_loss(output, classes);
  }
  expect_equal_sizes("--loss " + name, output, target);
  // Autocast may have made the output less precise than targets are.
  const at::Tensor values = target.to(output.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  return name == "mse"     ? at::mse_loss(output, values)
         : name == "l1"    ? at::l1_loss(output, values)
         : name == "huber" ? at::huber_loss(output, values)
                           : at::binary_cross_entropy_with_logits(output, values);
}

std::string count_of(size_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

}  // namespace

void expect_equal_sizes(const std::string& option, const at::Tensor& output, const at::Tensor& target) {
  if (output.sizes() != target.sizes()) {
    throw UserError(option + ": the model returns " + describe_tensor_type(output) + " for targets " +
                    describe_tensor_type(target) + "; their sizes must be equal");
  }
}

std::vector<LossPart> loss_parts(const std::vector<std::string>& texts) {
  std::vector<LossPart> parts;
  for (const std::string& text : texts) {
    const size_t colon = text.find(':');
    LossPart part{text.substr(0, colon)};
    if (std::find(kLossNames.begin(), kLossNames.end(), part.name) == kLossNames.end()) {
      throw UserError("--loss: there is no '" + part.name + "'" +
                      did_you_mean(part.name, {kLossNames.begin(), kLossNames.end()}));
    }
    if (colon != std::string::npos) {
      const char* const end = text.data() + text.size();
      const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, part.weight);
      if (error != std::errc() || stop != end || !std::isfinite(part.weight) || part.weight <= 0) {
        throw UserError("--loss " + text + ": the weight after the colon must be a number above 0, as in mse:0.5");
      }
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

std::vector<at::Tensor> tensors_of_output(const c10::IValue& output) {
  if (output.isTensor()) {
    return {output.toTensor()};
  }
  std::vector<at::Tensor> tensors;
  if (output.isTuple() || output.isList()) {
    for (const c10::IValue& each : output.isTuple() ? output.toTupleRef().elements().vec() : output.toListRef().vec()) {
      if (!each.isTensor()) {
        throw UserError("the model returns " + kind_of_value(each) + " in " + kind_of_value(output) +
                        "; --loss takes tensors, so give a scripted loss with --loss-module");
      }
      tensors.push_back(each.toTensor());
    }
    return tensors;
  }
  throw UserError("the model returns " + kind_of_value(output) +
                  "; --loss takes a tensor or a tuple of tensors, so give a scripted loss with --loss-module");
}

TrainStep::GeneralLoss sum_of_losses(std::vector<LossPart> parts) {
  return [parts = std::move(parts)](const c10::IValue& output, const std::vector<c10::IValue>& targets) {
    const std::vector<at::Tensor> outputs = tensors_of_output(output);
    if (outputs.size() != parts.size() || targets.size() != parts.size()) {
      throw UserError("--loss: the model returns " + count_of(outputs.size(), "tensor") + ", the data have " +
                      count_of(targets.size(), "target") + ", and there " + (parts.size() == 1 ? "is " : "are ") +
                      count_of(parts.size(), "--loss") +
                      "; give one --loss for each result, in order, or a scripted loss with --loss-module");
    }
    at::Tensor sum;
    for (size_t i = 0; i < parts.size(); ++i) {
      at::Tensor loss = loss_of(parts[i].name, outputs[i], targets[i].toTensor());
      loss = parts[i].weight == 1 ? loss : loss * parts[i].weight;
      sum = sum.defined() ? sum + loss : loss;
    }
    return sum;
  };
}

TrainStep::GeneralLoss loss_of_module(Module module, const std::string& path) {
  // It judges the model, and is not trained.
  for (const at::Tensor& parameter : module.script_module().parameters()) {
    parameter.set_requires_grad(false);
  }
  const c10::FunctionSchema schema = module.script_module().get_method("forward").function().getSchema();
  const size_t taken = schema.arguments().size() - 1;  // without the module
  return
      [module = std::move(module), schema, taken, path](const c10::IValue& output, const std::vector<c10::IValue>& targets) {
        std::vector<c10::IValue> arguments;
        if (output.isTuple() && taken != 1 + targets.size()) {
          arguments = output.toTupleRef().elements().vec();
        } else {
          arguments = {output};
        }
        arguments.insert(arguments.end(), targets.begin(), targets.end());
        if (arguments.size() != taken) {
          throw UserError(path + ": " + describe_signature(schema) + " takes " + count_of(taken, "argument") +
                          ", and is given the model's result (" + kind_of_value(output) + ") and " +
                          count_of(targets.size(), "target") + "; let it take the result, then each target");
        }
        const c10::IValue loss = module.forward(std::move(arguments));
        if (!loss.isTensor() || loss.toTensor().numel() != 1) {
          throw UserError(path + ": forward returns " +
                          (loss.isTensor() ? describe_tensor_type(loss.toTensor()) : kind_of_value(loss)) +
                          "; a loss is a tensor with one element");
        }
        return loss.toTensor();
      };
}

}  // namespace sconce::cli
