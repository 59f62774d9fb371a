// The examples of a training.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

namespace sconce::cli {

// The first dimension of each tensor counts the examples.
struct TrainData {
  std::vector<at::Tensor> inputs;
  at::Tensor targets;

  int64_t examples() const { return targets.size(0); }
};

// Reads what `torch.save((inputs, targets), path)` wrote, or a TorchScript archive with the attributes `inputs` and
// `targets`. Inputs are a tensor, or a tuple or list of tensors: the arguments of the model. Throws UserError, or c10::Error
// from the loader, with one line that begins with the path.
TrainData read_train_data(const std::string& path);

struct TrainBatch {
  std::vector<c10::IValue> inputs;
  std::vector<c10::IValue> targets;
};

// Copies the examples with these indices.
TrainBatch batch_of(const TrainData& data, const at::Tensor& indices);

}  // namespace sconce::cli
