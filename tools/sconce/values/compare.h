// Compares two results of a model.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sconce::cli {

struct CompareOptions {
  double rtol = 1e-3;
  double atol = 1e-4;
  // Compare requires_grad of tensors; recorded answers do not have it.
  bool requires_grad = true;
};

// One place where two values differ.
struct Mismatch {
  std::string path;  // `out[1]["x"].weight`
  std::string what;  // "dtype is float64 instead of float32", "3 of 40 elements differ"
  // For tensors and numbers with different elements: the largest errors, and the first element that is out of bounds.
  std::optional<double> max_absolute_error;
  std::optional<double> max_relative_error;
  std::vector<int64_t> first_index;
  // Whether an element is finite in one value and not in the other; the errors above are those of the other elements.
  bool differs_in_finiteness = false;
};

// Returns the difference in one line.
std::string to_string(const Mismatch& mismatch);

// Returns every place where `got` differs from `expected`, outermost first, at most `limit`. Empty if they agree.
//
// Compared by structure: kind of value, lengths and keys in their order, names of classes without the part that a
// compilation unit adds, attributes of objects. Floating values agree when |got - expected| <= atol + rtol * |expected|,
// or both are NaN, or equal infinities; everything else agrees if it is equal. Tensors may be on different devices. Opaque
// values (custom C++ classes, generators, futures) agree if they have one type.
std::vector<Mismatch> compare(const c10::IValue& got, const c10::IValue& expected, const CompareOptions& options,
                              const std::string& path = "out", size_t limit = 8);

// "float32[2, 3]", "undefined".
std::string describe_tensor_type(const at::Tensor& tensor);
// "float32".
std::string dtype_name(c10::ScalarType dtype);
// "a tensor", "a list", "an int", "None".
std::string kind_of_value(const c10::IValue& value);
// "__torch__.___torch_mangle_3.model.Pair" → "__torch__.model.Pair": a compilation unit makes names unique that way.
std::string unmangled(const std::string& qualified_name);

}  // namespace sconce::cli
