// The loss of a training: functions by name, one for each result of the model, or a scripted module.
#pragma once

#include "tools/sconce/train/settings.h"

#include <sconce/module.h>
#include <sconce/train_step.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace sconce::cli {

inline constexpr std::array kLossNames = {"mse", "cross_entropy", "bce_with_logits", "l1", "nll", "huber"};

// A --loss, "cross_entropy" or "mse:0.5".
struct LossPart {
  std::string name;
  double weight = 1;
};
// Throws UserError, with the nearest names, for a name that is not known, and for a weight that is no positive number.
std::vector<LossPart> loss_parts(const std::vector<std::string>& texts);

// Returns the tensors of a result: itself, or the elements of a tuple or list. Throws UserError if there is anything else.
std::vector<at::Tensor> tensors_of_output(const c10::IValue& output);

// Returns the sum of the parts. The function throws UserError if the module does not return one tensor for each part, or the
// sizes of one do not fit its target. Targets are converted to the dtype that the loss takes.
TrainStep::GeneralLoss sum_of_losses(std::vector<LossPart> parts);

// Returns the result of the module's forward for the result of the model and the targets. A result that is a tuple is one
// argument, or several, as forward takes them. Throws UserError if forward takes neither.
TrainStep::GeneralLoss loss_of_module(Module module, const std::string& path);

// Throws UserError, which begins with the option ("--loss mse"), if output and target differ in sizes.
void expect_equal_sizes(const std::string& option, const at::Tensor& output, const at::Tensor& target);

}  // namespace sconce::cli
