// Walking through the values that a model takes and gives.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

namespace sconce::cli {

struct NamedTensor {
  std::string path;
  at::Tensor tensor;
};

enum class Objects { kEnter, kSkip };

// The defined tensors inside the value, depth first; `path` names the value itself. Each object is entered once.
std::vector<NamedTensor> tensors_in(const c10::IValue& value, const std::string& path, Objects objects);

// Which tensors share memory, as text: for each tensor of `values` that shares its storage with one named before it
// (`before` first, then `values` in their order), "out[1] shares memory with inputs[0]", with the first such tensor only.
std::vector<std::string> sharing_of(const std::vector<NamedTensor>& before, const std::vector<NamedTensor>& values);

}  // namespace sconce::cli
