// sconce::lstm_layer_backward: the gradients of an LSTM's gates and first states. decompose_recorded_lstm (passes/matmul/)
// makes it; the gradients of weights and input are products of its results.
#include "kernels/float32_precision.h"
#include "kernels/kernel_table.h"
#include "kernels/loops/forks.h"
#include "kernels/loops/recurrent_cells.h"
#include "kernels/packed/scratch.h"
#include "kernels/packed/tiled_product.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

namespace sconce {
namespace {

// The operands:
//   kept       time steps x rows x 5 * hidden: what sconce::lstm_layer_for_gradients has kept
//   weight     4 * hidden x hidden, of the state
//   c          rows x hidden, before the first time step
//   gradient   time steps x rows x hidden, of the results; of_last_h, of_last_c: rows x hidden
//   reverse    the layer goes from the last time step to the first
// Results: the gradients of the sums whose gates are computed, time steps x rows x 4 * hidden; of the first h, and of the
// first c.

// ---- the operator: what LibTorch computes, operator by operator

using OptionalTensor = std::optional<at::Tensor>;

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_layer_backward(const at::Tensor& kept, const at::Tensor& weight,
                                                                   const at::Tensor& c, const OptionalTensor& gradient,
                                                                   const OptionalTensor& of_last_h,
                                                                   const OptionalTensor& of_last_c, bool reverse) {
  TORCH_CHECK(kept.dim() == 3 && c.dim() == 2 && kept.size(2) == kPartsKeptOfLstm * c.size(1),
              "expected what a layer keeps, with five times as many columns as c has, but got ", kept.sizes(), " and ",
              c.sizes());
  const int64_t steps = kept.size(0);
  const auto time_of = [&](int64_t step) { return reverse ? steps - 1 - step : step; };
  at::Tensor of_h = of_last_h ? *of_last_h : at::zeros_like(c);
  at::Tensor of_c = of_last_c ? *of_last_c : at::zeros_like(c);
  std::vector<at::Tensor> of_sums(static_cast<size_t>(steps));
  for (int64_t step = steps - 1; step >= 0; --step) {
    const auto parts = kept[time_of(step)].chunk(kPartsKeptOfLstm, 1);
    const auto& [i, f, g, o, now] = std::tie(parts[0], parts[1], parts[2], parts[3], parts[4]);
    const at::Tensor before = step == 0 ? c : kept[time_of(step - 1)].chunk(kPartsKeptOfLstm, 1)[4];
    of_h = gradient ? of_h + (*gradient)[time_of(step)] : of_h;
    const at::Tensor tanh_c = now.tanh();
    of_c = of_c + of_h * o * (1 - tanh_c * tanh_c);
    const at::Tensor of_gates = at::cat(
        {of_c * g * i * (1 - i), of_c * before * f * (1 - f), of_c * i * (1 - g * g), of_h * tanh_c * o * (1 - o)}, 1);
    of_sums[static_cast<size_t>(time_of(step))] = of_gates;
    of_c = of_c * f;
    of_h = of_gates.mm(weight);
  }
  return {at::stack(of_sums), of_h, of_c};
}

// ---- the kernel

// Rows of a batch do not depend on each other: threads share them, and walk through all time steps by themselves. A weight
// that is large for few rows is shared instead, in each time step.
class LstmGradientKernel final : public ReusableKernel {
 public:
  bool prepare(const KernelArguments& arguments, KernelResults results) override {
    const at::Tensor& kept = arguments.tensor(kKept);
    const at::Tensor& c = arguments.tensor(kC);
    if (arguments.is_exact() || kept.dim() != 3 || c.dim() != 2 || !computes_in_float32(at::Float32Op::RNN) ||
        !computes_in_float32(at::Float32Op::MATMUL)) {
      return false;
    }
    steps_ = kept.size(0);
    rows_ = c.size(0);
    const int64_t hidden = c.size(1);
    if (steps_ == 0 || rows_ == 0 || hidden == 0 ||
        !is_dense(arguments, kKept, {steps_, rows_, kPartsKeptOfLstm * hidden}) ||
        !is_dense(arguments, kWeight, {4 * hidden, hidden}) || !is_dense(arguments, kC, {rows_, hidden}) ||
        (arguments.is_tensor(kGradient) && !is_dense(arguments, kGradient, {steps_, rows_, hidden})) ||
        (arguments.is_tensor(kOfLastH) && !is_dense(arguments, kOfLastH, {rows_, hidden})) ||
        (arguments.is_tensor(kOfLastC) && !is_dense(arguments, kOfLastC, {rows_, hidden}))) {
      return false;
    }
    if (hidden != hidden_) {
      hidden_ = hidden;
      product_ = TiledProduct(Panels(tile_kernels(), 1, hidden, 1, 1, gates()), {0}, gates());
    }
    is_reversed_ = arguments.value(kReverse).toBool();
    results[0].place({steps_, rows_, gates()}, {}, at::kFloat);
    results[1].place({rows_, hidden_}, {}, at::kFloat);
    results[2].place({rows_, hidden_}, {}, at::kFloat);
    return true;
  }

  void run(const KernelArguments& arguments, KernelResults results) override {
    const auto operand = [&](size_t i) {
      return arguments.is_tensor(i) ? static_cast<const float*>(arguments.data(i)) : nullptr;
    };
    float* const packed = packed_.of(product_.panels().elements());
    product_.panels().pack({.data = operand(kWeight), .column_distance = 1, .channel_distance = hidden_}, packed);
    const Layer layer = {.kept = operand(kKept),
                         .packed = packed,
                         .first_c = operand(kC),
                         .gradient = operand(kGradient),
                         .of_last_h = operand(kOfLastH),
                         .of_last_c = operand(kOfLastC),
                         .of_sums = static_cast<float*>(results[0].data),
                         .of_h = static_cast<float*>(results[1].data),
                         .of_c = static_cast<float*>(results[2].data)};
    const int64_t of_step = std::max<int64_t>(rows_, 4) * gates() * hidden_;
    const int64_t threads =
        at::in_parallel_region() || steps_ * of_step < kMultiplicationsWorthAFork ? 1 : at::get_num_threads();
    const int64_t parts = std::clamp<int64_t>(threads, 1, std::max<int64_t>(1, rows_ / kRowsOfPart));
    if (parts < threads && of_step >= kMultiplicationsWorthAFork) {
      run_sharing_weights(layer);
      return;
    }
    at::parallel_for(0, parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        run_rows_of(layer, rows_ * part / parts, rows_ * (part + 1) / parts);
      }
    });
  }

 private:
  enum Argument : size_t { kKept, kWeight, kC, kGradient, kOfLastH, kOfLastC, kReverse };

  // A part of the rows reads all weights in each time step.
  static constexpr int64_t kRowsOfPart = 8;

  struct Layer {
    const float* kept = nullptr;
    const float* packed = nullptr;
    const float* first_c = nullptr;
    const float* gradient = nullptr;
    const float* of_last_h = nullptr;
    const float* of_last_c = nullptr;
    float* of_sums = nullptr;
    float* of_h = nullptr;  // what the gradients of a step's sums add to that of the h before it
    float* of_c = nullptr;
  };

  static bool is_dense(const KernelArguments& arguments, size_t position, c10::IntArrayRef sizes) {
    const at::Tensor& tensor = arguments.tensor(position);
    return tensor.scalar_type() == at::kFloat && tensor.is_contiguous() && tensor.sizes() == sizes;
  }

  int64_t gates() const { return 4 * hidden_; }
  // Where the row of a time step is, of which the first is the last one of a layer that is reversed.
  int64_t row_of(int64_t step, int64_t row) const { return (is_reversed_ ? steps_ - 1 - step : step) * rows_ + row; }
  const float* kept_of(const Layer& layer, int64_t step, int64_t row) const {
    return layer.kept + row_of(step, row) * kPartsKeptOfLstm * hidden_;
  }

  void begin(const Layer& layer, int64_t first, int64_t last) const {
    if (layer.of_last_c != nullptr) {
      std::copy(layer.of_last_c + first * hidden_, layer.of_last_c + last * hidden_, layer.of_c + first * hidden_);
    } else {
      std::fill(layer.of_c + first * hidden_, layer.of_c + last * hidden_, 0.0F);
    }
    compute_gradients(layer, steps_ - 1, layer.of_last_h, first, last);
  }

  void compute_gradients(const Layer& layer, int64_t step, const float* of_next, int64_t first, int64_t last) const {
    for (int64_t row = first; row < last; ++row) {
      const int64_t at = row_of(step, row);
      recurrent_cells().lstm_gradient(
          {.kept = kept_of(layer, step, row),
           .c = step == 0 ? layer.first_c + row * hidden_ : kept_of(layer, step - 1, row) + gates(),
           .of_out = layer.gradient != nullptr ? layer.gradient + at * hidden_ : nullptr,
           .of_next = of_next != nullptr ? of_next + row * hidden_ : nullptr,
           .of_c = layer.of_c + row * hidden_,
           .of_sums = layer.of_sums + at * gates(),
           .hidden = hidden_});
    }
  }

  void find_sums(const Layer& layer, int64_t step, int64_t from, int64_t to, const float** rows) const {
    for (int64_t row = from; row < to; ++row) {
      *rows++ = layer.of_sums + row_of(step, row) * gates();
    }
  }

  // Calls multiply(step, then) for each time step, from the last: it multiplies the gradients of the step's sums with the
  // weight, to `of_h`, and calls `then` with rows that are complete.
  template <typename Multiply>
  void walk_back(const Layer& layer, int64_t first, int64_t last, const Multiply& multiply) const {
    begin(layer, first, last);
    for (int64_t step = steps_ - 1; step >= 0; --step) {
      multiply(step, [&](int64_t from, int64_t to) {
        if (step > 0) {
          compute_gradients(layer, step - 1, layer.of_h, from, to);
        }
      });
    }
  }

  // Computes all time steps of some rows on this thread.
  void run_rows_of(const Layer& layer, int64_t first, int64_t last) const {
    const auto panels = static_cast<int64_t>(product_.panels().panels().size());
    walk_back(layer, first, last, [&](int64_t step, const RowsFunction& then) {
      const auto find = [&](int64_t from, int64_t to, const float** rows) { find_sums(layer, step, from, to, rows); };
      product_.run_part(layer.packed, {.count = rows_, .elements = gates(), .find = find}, layer.of_h,
                        {.first_row = first, .last_row = last, .last_panel = panels}, then);
    });
  }

  // Computes all rows, time step by time step, in each on all threads.
  void run_sharing_weights(const Layer& layer) const {
    walk_back(layer, 0, rows_, [&](int64_t step, const RowsFunction& then) {
      const auto find = [&](int64_t from, int64_t to, const float** rows) { find_sums(layer, step, from, to, rows); };
      product_.run(layer.packed, {.count = rows_, .elements = gates(), .find = find}, layer.of_h, /*bounds=*/nullptr, then);
    });
  }

  bool is_reversed_ = false;
  int64_t steps_ = 0;
  int64_t rows_ = 0;
  int64_t hidden_ = 0;
  TiledProduct product_;
  Scratch packed_;
};

TORCH_LIBRARY_FRAGMENT(sconce, library) {
  library.def(
      "lstm_layer_backward(Tensor kept, Tensor weight, Tensor c, Tensor? gradient, Tensor? of_last_h, Tensor? of_last_c, "
      "bool reverse) -> (Tensor, Tensor, Tensor)",
      {at::Tag::pt2_compliant_tag});
  library.impl("lstm_layer_backward", lstm_layer_backward);
}

}  // namespace

void add_recurrent_gradient_kernels(KernelTable& table) {
  table[{"sconce::lstm_layer_backward", ""}] = {.make = make_kernel<LstmGradientKernel>};
}

}  // namespace sconce
