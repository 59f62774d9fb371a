// Convolutions of images and rows.
#include "ir/constant_operands.h"
#include "kernels/clamped_convolution.h"
#include "kernels/convolution_form.h"
#include "kernels/kernel_table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

namespace sconce {
namespace {

// Where an operator has its arguments. The image, the weight and the bias come first, then stride, padding and dilation.
struct Positions {
  size_t groups;
  std::optional<size_t> transposed = {};
};
constexpr Positions kConv = {.groups = 6};
constexpr Positions kConvolution = {.groups = 8, .transposed = 6};
constexpr size_t kBias = 2;
constexpr size_t kStride = 3;
constexpr size_t kPadding = 4;
constexpr size_t kDilation = 5;

bool is_bias(const at::Tensor& tensor, int64_t channels) {
  return tensor.scalar_type() == at::kFloat && tensor.is_contiguous() && tensor.sizes() == c10::IntArrayRef{channels};
}

// A kernel with a packed convolution. The weights that are packed stay so when operands have other sizes.
class PackedConvolutionKernel : public ReusableKernel {
 public:
  PackedConvolutionKernel(ConvolutionOperands operands, Bounds bounds) : operands_(operands), bounds_(bounds) {}

  bool prepare(const KernelArguments& arguments, KernelResults results) final {
    const at::Tensor& input = arguments.tensor(operands_.image);
    const at::Tensor& weight = arguments.tensor(operands_.weight);
    const auto found = arguments.is_exact() ? std::nullopt : form_of_convolution(input, weight, numbers_of(arguments));
    if (!found || (operands_.bias && arguments.is_tensor(*operands_.bias) &&
                   !is_bias(arguments.tensor(*operands_.bias), weight.size(0)))) {
      return false;
    }
    const ConvolutionForm& form = *found;
    const bool is_row = input.dim() == 3;
    const bool is_last = lies_channels_last(input, weight);
    const bool packs = arguments.packs_weights() && arguments.weight(operands_.weight).tensor != nullptr;
    const ConvolutionKernels kernels = fastest_kernels(form, packs);
    if (packed_ == nullptr || kernels != kernels_) {
      packed_ = make_packed_convolution(kernels, bounds_);
      kernels_ = kernels;
    }
    if (packed_ == nullptr) {
      return false;
    }
    packed_->set_form(form);
    rows_ = form.result_is_channels_last ? form.images * form.pixels_out() : 0;
    const std::vector<int64_t> sizes = sizes_of_result(form, is_row);
    // LibTorch's clamp of a result with one channel or one pixel returns a contiguous tensor.
    const bool is_ambiguous = form.channels_out == 1 || form.pixels_out() == 1;
    const bool has_clamp = bounds_.least != Bounds().least || bounds_.most != Bounds().most;
    const bool keeps_format = is_last && !(has_clamp && is_ambiguous);
    results[0].place(sizes, keeps_format ? c10::get_channels_last_strides_2d(sizes) : std::vector<int64_t>(), at::kFloat);
    return true;
  }

  bool may_have_to_wait() const final { return true; }
  bool can_run(const KernelArguments& arguments) const final { return packed_->is_ready(arguments, operands_); }
  int64_t rows() const final { return rows_; }
  void run(const KernelArguments& arguments, KernelResults results) final { run_by_rows(arguments, results, nullptr); }
  void run_by_rows(const KernelArguments& arguments, KernelResults results, const RowsFunction& then) final {
    packed_->run(static_cast<const float*>(arguments.data(operands_.image)), static_cast<float*>(results[0].data), then);
  }

 private:
  virtual ConvolutionNumbers numbers_of(const KernelArguments& arguments) const = 0;

  const ConvolutionOperands operands_;
  const Bounds bounds_;
  ConvolutionKernels kernels_ = ConvolutionKernels::kLibTorch;
  std::unique_ptr<PackedConvolution> packed_;
  int64_t rows_ = 0;  // pixels of the result; 0 if it is not channels-last
};

// conv1d, conv2d, or convolution: (input, weight, bias?, stride, padding, dilation, …, groups, …)
template <const Positions& kPositions>
class ConvolutionKernel final : public PackedConvolutionKernel {
 public:
  ConvolutionKernel() : PackedConvolutionKernel(ConvolutionOperands{}, Bounds{}) {}

 private:
  ConvolutionNumbers numbers_of(const KernelArguments& arguments) const override {
    return {arguments.value(kStride), arguments.value(kPadding), arguments.value(kDilation),
            arguments.value(kPositions.groups).toInt(),
            kPositions.transposed && arguments.value(*kPositions.transposed).toBool()};
  }
};

class ClampedConvolution final : public PackedConvolutionKernel {
 public:
  ClampedConvolution(ConvolutionOperands operands, Bounds bounds, ConvolutionNumbers numbers)
      : PackedConvolutionKernel(operands, bounds), numbers_(std::move(numbers)) {}

 private:
  ConvolutionNumbers numbers_of(const KernelArguments& /*arguments*/) const override { return numbers_; }
  const ConvolutionNumbers numbers_;
};

// Returns null for an operator that is no convolution.
const Positions* positions_of(const Node& node) {
  const KernelRow* row = node.schema() == nullptr ? nullptr : find_kernel_row(node.op());
  return row == nullptr                                              ? nullptr
         : row->make == make_kernel<ConvolutionKernel<kConv>>        ? &kConv
         : row->make == make_kernel<ConvolutionKernel<kConvolution>> ? &kConvolution
                                                                     : nullptr;
}

// Returns the number of a constant; `fallback` for the constant None. Returns nothing for numbers that LibTorch does not
// convert to float32.
std::optional<float> bound_of(const Value& value, float fallback) {
  const c10::IValue* constant = value.constant();
  if (constant == nullptr || constant->isNone()) {
    return constant == nullptr ? std::nullopt : std::optional(fallback);
  }
  if (!constant->isInt() && !constant->isDouble()) {
    return std::nullopt;
  }
  const double number = constant->isInt() ? static_cast<double>(constant->toInt()) : constant->toDouble();
  const bool fits = std::abs(number) <= std::numeric_limits<float>::max();
  return fits ? std::optional(static_cast<float>(number)) : std::nullopt;
}

}  // namespace

std::optional<Bounds> clamping_bounds(const Node& node) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::optional<float> least;
  std::optional<float> most;
  if (node.kind() == aten::relu || node.kind() == aten::relu6) {
    least = 0;
    most = node.kind() == aten::relu ? kInfinity : 6;
  } else if (node.kind() == aten::hardtanh || (node.kind() == aten::clamp && node.schema()->overload_name().empty())) {
    least = bound_of(*node.input(1), -kInfinity);
    most = bound_of(*node.input(2), kInfinity);
  }
  // LibTorch rejects calls without a bound. Bounds that cross, and NaN, have rules of their own.
  const bool are_bounds = least && most && *least < *most && (*least != -kInfinity || *most != kInfinity);
  return are_bounds ? std::optional(Bounds{*least, *most}) : std::nullopt;
}

bool is_known_convolution(const Node& node) {
  const Positions* positions = positions_of(node);
  if (positions == nullptr || node.attribute(attr::kAutocast) != nullptr) {
    return false;
  }
  const auto* facts = node.output()->facts();
  const auto is_constant = [&](size_t position) { return node.input(position)->constant() != nullptr; };
  return facts != nullptr && facts->dtype == at::kFloat && facts->device == c10::Device(c10::kCPU) && is_constant(kStride) &&
         is_constant(kPadding) && is_constant(kDilation) && is_constant(positions->groups) &&
         (!positions->transposed || constant_bool(*node.input(*positions->transposed)) == false) &&
         (is_none(*node.input(kBias)) || is_tensor(*node.input(kBias)));
}

KernelPtr make_clamped_convolution(const NodeGroup& group) {
  if (group.nodes.size() != 2 || !is_known_convolution(*group.nodes.front())) {
    return nullptr;
  }
  const Node& node = *group.nodes.front();
  const auto bounds = clamping_bounds(*group.nodes.back());
  if (!bounds || group.nodes.back()->input(0) != node.output()) {
    return nullptr;
  }
  const auto place_of = [&](size_t position) {
    const auto found = std::find(group.operands.begin(), group.operands.end(), node.input(position));
    return static_cast<size_t>(found - group.operands.begin());
  };
  const auto number = [&](size_t position) { return *node.input(position)->constant(); };
  const ConvolutionOperands operands = {place_of(0), place_of(1),
                                        is_none(*node.input(kBias)) ? std::nullopt : std::optional(place_of(kBias))};
  return std::make_unique<ClampedConvolution>(
      operands, *bounds,
      ConvolutionNumbers{number(kStride), number(kPadding), number(kDilation), number(positions_of(node)->groups).toInt()});
}

void add_convolution_kernels(KernelTable& table) {
  table[{"aten::conv1d", ""}] = {.make = make_kernel<ConvolutionKernel<kConv>>, .has_rows = true};
  table[{"aten::conv2d", ""}] = {.make = make_kernel<ConvolutionKernel<kConv>>, .has_rows = true};
  table[{"aten::convolution", ""}] = {.make = make_kernel<ConvolutionKernel<kConvolution>>, .has_rows = true};
  table[{"aten::_convolution", ""}] = {.make = make_kernel<ConvolutionKernel<kConvolution>>, .has_rows = true};
  table[{"aten::_convolution", "deprecated"}] = {.make = make_kernel<ConvolutionKernel<kConvolution>>, .has_rows = true};
}

}  // namespace sconce
