// Walks through a model's arguments and results.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <string>
#include <vector>

namespace sconce::cli {

struct NamedTensor {
  std::string path;
  at::Tensor tensor;
};

enum class Objects { kEnter, kSkip };

// Returns the defined tensors inside the value, depth first. `path` names the value itself. Enters each object once.
std::vector<NamedTensor> tensors_in(const c10::IValue& value, const std::string& path, Objects objects);

// Describes which tensors share memory. For each tensor of `values` that shares its storage with an earlier one (`before`
// first, then `values` in their order), says "out[1] shares memory with inputs[0]", naming the first such tensor only.
std::vector<std::string> sharing_of(const std::vector<NamedTensor>& before, const std::vector<NamedTensor>& values);

}  // namespace sconce::cli
