// What the caller's autocast does to single operators: what sconce says of it, and what plans make of it.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/ScalarType.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

namespace sconce::testing {

// While it exists, autocast to bfloat16 is on for the CPU.
class AutocastToBFloat16 {
 public:
  AutocastToBFloat16();
  ~AutocastToBFloat16();
  AutocastToBFloat16(const AutocastToBFloat16&) = delete;
  AutocastToBFloat16& operator=(const AutocastToBFloat16&) = delete;
};

// Makes the call with autocast on. Returns the operators with an autocast kernel for the CPU that it calls.
std::set<std::string> operators_cast_in(const std::function<void()>& call);

// Returns copies of the values, floating tensors among them of another dtype.
std::vector<c10::IValue> with_floating_dtype(const std::vector<c10::IValue>& values, c10::ScalarType dtype);

}  // namespace sconce::testing
