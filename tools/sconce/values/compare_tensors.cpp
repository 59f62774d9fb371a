#include "tools/sconce/values/compare_tensors.h"

#include "report/number_format.h"
#include "tools/sconce/values/spec_dtypes.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/grad_mode.h>

namespace sconce::cli {
namespace {

Mismatch difference(const std::string& path, std::string what) { return {path, std::move(what), {}, {}, {}}; }

// Returns the tensor as a dense one on the CPU, outside autograd.
at::Tensor plain(const at::Tensor& tensor) {
  at::Tensor result = tensor.detach();
  if (result.is_quantized()) {
    result = result.dequantize();
  }
  if (result.layout() != c10::kStrided) {
    result = result.to_dense();
  }
  if (result.scalar_type() == c10::kComplexHalf) {
    result = result.to(c10::kComplexFloat);  // LibTorch has almost no operators for it
  }
  return result.to(c10::kCPU).resolve_conj().resolve_neg();
}

bool identical(const at::Tensor& a, const at::Tensor& b) { return a.numel() == 0 || a.equal(b); }

std::vector<int64_t> index_of(int64_t linear, at::IntArrayRef sizes) {
  std::vector<int64_t> index(sizes.size());
  for (size_t i = sizes.size(); i-- > 0;) {
    index[i] = linear % sizes[i];
    linear /= sizes[i];
  }
  return index;
}

std::optional<Mismatch> compare_elements(const at::Tensor& got, const at::Tensor& expected, const CompareOptions& options,
                                         const std::string& path) {
  const bool inexact = got.is_floating_point() || got.is_complex();
  const auto wide = [&](const at::Tensor& tensor) {
    return tensor.to(got.is_complex() ? c10::kComplexDouble : c10::kDouble);
  };
  at::Tensor differs = got.ne(expected);
  const at::Tensor a = wide(got);
  const at::Tensor b = wide(expected);
  const at::Tensor error = (a - b).abs();
  if (inexact) {
    // Written so that NaN on one side only counts as a difference: no comparison with NaN holds.
    const at::Tensor within = error.le(b.abs() * options.rtol + options.atol);
    differs = differs.logical_and(within.logical_not()).logical_and(a.isnan().logical_and(b.isnan()).logical_not());
    // Infinities agree only with themselves: inf - 1 is within inf * rtol.
    differs = differs.logical_or(got.ne(expected).logical_and(a.isinf().logical_or(b.isinf())));
  }
  if (!differs.any().item<bool>()) {
    return std::nullopt;
  }
  const int64_t count = differs.sum().item<int64_t>();
  Mismatch mismatch = difference(path, std::to_string(count) + " of " + std::to_string(got.numel()) + " elements differ");
  mismatch.first_index = index_of(differs.flatten().to(c10::kByte).argmax().item<int64_t>(), got.sizes());

  at::Tensor first_got = got;
  at::Tensor first_expected = expected;
  for (const int64_t i : mismatch.first_index) {
    first_got = first_got.select(0, i);
    first_expected = first_expected.select(0, i);
  }
  const auto text = [](const at::Tensor& scalar) {
    return scalar.is_complex() ? c10::str(scalar.item()) : format_number(scalar.item<double>(), 8);
  };
  mismatch.what += ", the first is " + text(first_got) + " instead of " + text(first_expected);

  // Errors over the elements that are numbers: one NaN must not hide the rest.
  const at::Tensor finite = error.isfinite();
  mismatch.differs_in_finiteness = differs.logical_and(a.isfinite().ne(b.isfinite())).any().item<bool>();
  if (finite.any().item<bool>()) {
    mismatch.max_absolute_error = error.masked_select(finite).max().item<double>();
    const at::Tensor relative = (error / b.abs()).masked_select(finite.logical_and(b.ne(0)));
    if (relative.numel() > 0) {
      mismatch.max_relative_error = relative.max().item<double>();
    }
  }
  return mismatch;
}

}  // namespace

std::optional<Mismatch> compare_tensors(const at::Tensor& got, const at::Tensor& expected, const CompareOptions& options,
                                        const std::string& path) {
  if (got.defined() != expected.defined()) {
    return difference(path, got.defined() ? "is a tensor instead of undefined" : "is undefined instead of a tensor");
  }
  if (!got.defined() || got.is_same(expected)) {
    return std::nullopt;
  }
  if (got.scalar_type() != expected.scalar_type()) {
    return difference(path,
                      "dtype is " + dtype_name(got.scalar_type()) + " instead of " + dtype_name(expected.scalar_type()));
  }
  if (got.sizes() != expected.sizes()) {
    return difference(path, "shape is " + c10::str(got.sizes()) + " instead of " + c10::str(expected.sizes()));
  }
  if (options.requires_grad && got.requires_grad() != expected.requires_grad()) {
    return difference(path, got.requires_grad() ? "requires grad, and should not" : "does not require grad, and should");
  }
  const torch::autograd::AutoGradMode no_grad(false);
  const at::Tensor a = plain(got);
  const at::Tensor b = plain(expected);
  return identical(a, b) ? std::nullopt : compare_elements(a, b, options, path);
}

std::string dtype_name(c10::ScalarType dtype) {
  // If a dtype has several names, the first is Python's.
  for (const SpecDtype& known : spec_dtypes()) {
    if (known.dtype == dtype) {
      return std::string(known.name);
    }
  }
  return c10::toString(dtype);
}

std::string describe_tensor_type(const at::Tensor& tensor) {
  return tensor.defined() ? dtype_name(tensor.scalar_type()) + c10::str(tensor.sizes()) : "undefined";
}

}  // namespace sconce::cli
