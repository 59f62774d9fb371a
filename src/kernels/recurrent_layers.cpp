// sconce::lstm_layer and recurrent_layer: what is left of an LSTM, a GRU or a simple recurrent layer after the products of
// all time steps with the input weights. decompose_rnn (passes/matmul/) makes it. lstm_layer_for_gradients is one direction
// of an LSTM, which keeps what its gradients need. decompose_recorded_lstm makes it.
#include "kernels/float32_precision.h"
#include "kernels/kernel_table.h"
#include "kernels/loops/forks.h"
#include "kernels/loops/recurrent_cells.h"
#include "kernels/packed/packed_weights.h"
#include "kernels/packed/scratch.h"
#include "kernels/packed/tiled_product.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <tuple>

namespace sconce {
namespace {

// The operands: `back_` is the direction from the last time step to the first.
//   input    time steps x rows x gates * hidden: the product of the input, with its bias
//   weight   gates * hidden x hidden, of the state; bias: gates * hidden
//   h, c     directions x rows x hidden
//   reverse  the direction goes from the last time step to the first
// Results: time steps x rows x directions * hidden, then the last h, and of an LSTM the last c. For gradients, also what
// each time step has computed, time steps x rows x 5 * hidden: sigmoid or tanh of each gate, and c. There, h and c are rows
// x hidden.

// ---- the operator: what LibTorch computes, operator by operator

// Returns 0 for what is no kind of layer.
int64_t gates_of(std::string_view kind) {
  return kind == "lstm" ? 4 : kind == "gru" ? 3 : kind == "rnn_tanh" || kind == "rnn_relu" ? 1 : 0;
}

struct State {
  at::Tensor h;
  at::Tensor c;
};

State next_state(std::string_view kind, const at::Tensor& of_input, const at::Tensor& of_state, const State& now) {
  if (kind == "lstm") {
    const auto gates = (of_input + of_state).chunk(4, 1);
    const at::Tensor c = gates[1].sigmoid() * now.c + gates[0].sigmoid() * gates[2].tanh();
    return {gates[3].sigmoid() * c.tanh(), c};
  }
  if (kind == "gru") {
    const auto x = of_input.chunk(3, 1);
    const auto s = of_state.chunk(3, 1);
    const at::Tensor fresh = (x[2] + s[2] * (x[0] + s[0]).sigmoid()).tanh();
    return {(now.h - fresh) * (x[1] + s[1]).sigmoid() + fresh, {}};
  }
  const at::Tensor sum = of_input + of_state;
  return {kind == "rnn_tanh" ? sum.tanh() : sum.relu(), {}};
}

using OptionalTensor = std::optional<at::Tensor>;

// Returns the results, and of an LSTM the last c.
std::tuple<at::Tensor, at::Tensor, at::Tensor> run_layer(std::string_view kind, std::array<at::Tensor, 2> inputs,
                                                         std::array<at::Tensor, 2> weights,
                                                         std::array<OptionalTensor, 2> biases, const at::Tensor& h,
                                                         const OptionalTensor& c) {
  TORCH_CHECK(h.dim() == 3 && (h.size(0) == 1 || h.size(0) == 2),
              "expected states of one or two directions, but got h of sizes ", h.sizes());
  TORCH_CHECK(gates_of(kind) > 0, "expected lstm, gru, rnn_tanh or rnn_relu, but got '", kind, "'");
  const int64_t steps = inputs[0].size(0);
  std::vector<at::Tensor> results;
  std::vector<at::Tensor> last_h;
  std::vector<at::Tensor> last_c;
  for (int64_t direction = 0; direction < h.size(0); ++direction) {
    const auto d = static_cast<size_t>(direction);
    const int64_t columns = gates_of(kind) * h.size(2);
    TORCH_CHECK(inputs[d].defined() && inputs[d].dim() == 3 && inputs[d].size(2) == columns,
                "expected products of the input with ", columns, " columns");
    TORCH_CHECK(weights[d].defined() && weights[d].sizes() == c10::IntArrayRef({columns, h.size(2)}),
                "expected weights of the state of ", columns, " x ", h.size(2), " elements");
    State state = {h[direction], c ? (*c)[direction] : at::Tensor()};
    std::vector<at::Tensor> out(static_cast<size_t>(steps));
    for (int64_t step = 0; step < steps; ++step) {
      const int64_t t = direction == 0 ? step : steps - 1 - step;
      state = next_state(kind, inputs[d][t], at::linear(state.h, weights[d], biases[d]), state);
      out[static_cast<size_t>(t)] = state.h;
    }
    results.push_back(at::stack(out));
    last_h.push_back(state.h);
    last_c.push_back(state.c);
  }
  return {at::cat(results, 2), at::stack(last_h), c ? at::stack(last_c) : at::Tensor()};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_layer(const at::Tensor& input, const at::Tensor& weight,
                                                          const OptionalTensor& bias, const OptionalTensor& back_input,
                                                          const OptionalTensor& back_weight, const OptionalTensor& back_bias,
                                                          const at::Tensor& h, const at::Tensor& c) {
  return run_layer("lstm", {input, back_input.value_or(at::Tensor())}, {weight, back_weight.value_or(at::Tensor())},
                   {bias, back_bias}, h, c);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> lstm_layer_for_gradients(const at::Tensor& input,
                                                                                    const at::Tensor& weight,
                                                                                    const OptionalTensor& bias,
                                                                                    const at::Tensor& h, const at::Tensor& c,
                                                                                    bool reverse) {
  TORCH_CHECK(h.dim() == 2 && input.dim() == 3 && input.size(2) == 4 * h.size(1),
              "expected products of the input with four times as many columns as h has, but got ", input.sizes(), " and ",
              h.sizes());
  const int64_t steps = input.size(0);
  std::vector<at::Tensor> out(static_cast<size_t>(steps));
  std::vector<at::Tensor> kept(static_cast<size_t>(steps));
  State state = {h, c};
  for (int64_t step = 0; step < steps; ++step) {
    const auto t = static_cast<size_t>(reverse ? steps - 1 - step : step);
    const auto gates = (input[static_cast<int64_t>(t)] + at::linear(state.h, weight, bias)).chunk(4, 1);
    const at::Tensor i = gates[0].sigmoid();
    const at::Tensor f = gates[1].sigmoid();
    const at::Tensor g = gates[2].tanh();
    const at::Tensor o = gates[3].sigmoid();
    const at::Tensor new_c = f * state.c + i * g;
    state = {o * new_c.tanh(), new_c};
    out[t] = state.h;
    kept[t] = at::cat({i, f, g, o, new_c}, 1);
  }
  return {at::stack(out), state.h.clone(), state.c.clone(), at::stack(kept)};
}

std::tuple<at::Tensor, at::Tensor> recurrent_layer(const at::Tensor& input, const at::Tensor& weight,
                                                   const OptionalTensor& bias, const OptionalTensor& back_input,
                                                   const OptionalTensor& back_weight, const OptionalTensor& back_bias,
                                                   const at::Tensor& h, c10::string_view kind) {
  auto [out, last_h, none] = run_layer(kind, {input, back_input.value_or(at::Tensor())},
                                       {weight, back_weight.value_or(at::Tensor())}, {bias, back_bias}, h, std::nullopt);
  return {out, last_h};
}

// ---- the kernel

// The weights of one direction, packed for tiles.
class StateWeights final : public PackedOperator {
 public:
  void set_sizes(int64_t gates, int64_t hidden, int64_t multiplications) {
    set_multiplications(multiplications);
    if (gates * hidden != columns_ || hidden != hidden_) {
      columns_ = gates * hidden;
      hidden_ = hidden;
      product_ = TiledProduct(Panels(tile_kernels(), 1, columns_, 1, 1, hidden), {0}, hidden);
      set_form({0, columns_, hidden, 1});  // a linear layer's
    }
  }
  const TiledProduct& product() const { return product_; }
  // Returns the packed weights. Packs them for this run alone if no copy is kept.
  const float* packed(const KernelArguments& arguments, size_t weight, size_t bias) {
    if (arguments.packs_weights() && find(arguments, weight, bias)) {
      return packed_;
    }
    float* const packed = of_run_.of(product_.panels().elements());
    const bool has_bias = arguments.is_tensor(bias);
    pack({.weight = static_cast<const float*>(arguments.data(weight)),
          .bias = has_bias ? static_cast<const float*>(arguments.data(bias)) : nullptr},
         packed);
    return packed;
  }

 private:
  void pack(WeightElements elements, float* to) const {
    product_.panels().pack(
        {.data = elements.weight, .bias = elements.bias, .column_distance = hidden_, .channel_distance = 1}, to);
  }
  bool make(PackedWeights& packed, WeightTensors tensors) override {
    of_run_ = {};
    packed_ = packed.fill_once(tensors, product_.panels().elements(), [&](float* to) { pack(elements_of(tensors), to); });
    return true;
  }
  void drop() override { packed_ = nullptr; }

  int64_t columns_ = 0;
  int64_t hidden_ = 0;
  TiledProduct product_;
  const float* packed_ = nullptr;
  Scratch of_run_;
};

// Rows of a batch do not depend on each other, nor do directions: threads share these, and walk through all time steps by
// themselves. Weights that are large for few rows are shared instead, in each time step.
class RecurrentLayerKernel final : public ReusableKernel {
 public:
  bool prepare(const KernelArguments& arguments, KernelResults results) override {
    keeps_ = results.size() == 4;
    has_c_ = keeps_ || arguments.is_tensor(kC);
    is_reversed_ = keeps_ && arguments.value(kReverse).toBool();
    const std::string kind = has_c_ ? "lstm" : arguments.value(kKind).toStringRef();
    gates_ = gates_of(kind);
    const RecurrentCells& cells = recurrent_cells();
    compute_ = keeps_               ? cells.lstm_kept
               : kind == "lstm"     ? cells.lstm
               : kind == "gru"      ? cells.gru
               : kind == "rnn_tanh" ? cells.tanh
                                    : cells.relu;
    const at::Tensor& h = arguments.tensor(place_of_h());
    if (arguments.is_exact() || gates_ == 0 || !is_dense_float(h) || h.dim() != (keeps_ ? 2 : 3) ||
        !computes_in_float32(at::Float32Op::RNN) || !computes_in_float32(at::Float32Op::MATMUL)) {
      return false;
    }
    directions_ = keeps_ ? 1 : h.size(0);
    rows_ = h.size(-2);
    hidden_ = h.size(-1);
    const at::Tensor& input = arguments.tensor(kInput);
    steps_ = input.dim() == 3 ? input.size(0) : 0;
    if (directions_ != (!keeps_ && arguments.is_tensor(kBackInput) ? 2 : 1) || steps_ == 0 || rows_ == 0 || hidden_ == 0) {
      return false;
    }
    if (has_c_ && !has_sizes(arguments.tensor(place_of_c()), h.sizes())) {
      return false;
    }
    for (size_t direction = 0; direction < static_cast<size_t>(directions_); ++direction) {
      const Places at = places(direction);
      if (!has_sizes(arguments.tensor(at.input), {steps_, rows_, columns()}) ||
          !has_sizes(arguments.tensor(at.weight), {columns(), hidden_}) ||
          (arguments.is_tensor(at.bias) && !has_sizes(arguments.tensor(at.bias), {columns()}))) {
        return false;
      }
      weights_[direction].set_sizes(gates_, hidden_, steps_ * multiplications_of_step());
    }
    results[0].place({steps_, rows_, directions_ * hidden_}, {}, at::kFloat);
    for (KernelResult& state : results.subspan(1, has_c_ ? 2 : 1)) {
      state.place(h.sizes(), {}, at::kFloat);
    }
    if (keeps_) {
      results[3].place({steps_, rows_, kPartsKeptOfLstm * hidden_}, {}, at::kFloat);
    }
    return true;
  }

  void run(const KernelArguments& arguments, KernelResults results) override {
    std::array<Direction, 2> directions;
    for (size_t i = 0; i < static_cast<size_t>(directions_); ++i) {
      const Places at = places(i);
      const ptrdiff_t state = static_cast<ptrdiff_t>(i) * rows_ * hidden_;
      directions[i] = {.number = i,
                       .of_input = static_cast<const float*>(arguments.data(at.input)),
                       .packed = weights_[i].packed(arguments, at.weight, at.bias),
                       .first_h = static_cast<const float*>(arguments.data(place_of_h())) + state,
                       .first_c = has_c_ ? static_cast<const float*>(arguments.data(place_of_c())) + state : nullptr,
                       .last_h = static_cast<float*>(results[1].data) + state,
                       .c = has_c_ ? static_cast<float*>(results[2].data) + state : nullptr,
                       .out = static_cast<float*>(results[0].data) + static_cast<ptrdiff_t>(i) * hidden_,
                       .kept = keeps_ ? static_cast<float*>(results[3].data) : nullptr};
    }
    const int64_t threads = at::in_parallel_region() ? 1 : at::get_num_threads();
    const bool pays = steps_ * std::max<int64_t>(rows_, 4) * columns() * hidden_ >= kMultiplicationsWorthAFork;
    const int64_t parts =
        pays ? std::clamp<int64_t>(threads / directions_, 1, std::max<int64_t>(1, rows_ / kRowsOfPart)) : 1;
    const int64_t tasks = directions_ * parts;
    if (tasks < threads && std::max<int64_t>(rows_, 4) * columns() * hidden_ >= kMultiplicationsWorthAFork) {
      for (int64_t i = 0; i < directions_; ++i) {
        run_sharing_weights(directions[static_cast<size_t>(i)]);
      }
      return;
    }
    at::parallel_for(0, tasks, pays ? 1 : tasks, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t part = task % parts;
        run_rows_of(directions[static_cast<size_t>(task / parts)], rows_ * part / parts, rows_ * (part + 1) / parts);
      }
    });
  }

 private:
  // The operators' arguments.
  enum Argument : size_t { kInput, kWeight, kBias, kBackInput, kBackWeight, kBackBias, kH, kC, kKind = kC };
  // Those of the operator that keeps what gradients need.
  static constexpr size_t kOneH = 3;
  static constexpr size_t kOneC = 4;
  static constexpr size_t kReverse = 5;

  size_t place_of_h() const { return keeps_ ? kOneH : size_t{kH}; }
  size_t place_of_c() const { return keeps_ ? kOneC : size_t{kC}; }

  // A part of the rows reads all weights in each time step.
  static constexpr int64_t kRowsOfPart = 8;

  struct Places {
    size_t input;
    size_t weight;
    size_t bias;
  };
  struct Direction {
    size_t number = 0;
    const float* of_input = nullptr;
    const float* packed = nullptr;
    const float* first_h = nullptr;
    const float* first_c = nullptr;
    float* last_h = nullptr;
    float* c = nullptr;
    float* out = nullptr;
    float* kept = nullptr;
  };

  static Places places(size_t direction) {
    return direction == 0 ? Places{kInput, kWeight, kBias} : Places{kBackInput, kBackWeight, kBackBias};
  }
  static bool is_dense_float(const at::Tensor& tensor) {
    return tensor.scalar_type() == at::kFloat && tensor.is_contiguous();
  }
  static bool has_sizes(const at::Tensor& tensor, c10::IntArrayRef sizes) {
    return is_dense_float(tensor) && tensor.sizes() == sizes;
  }

  int64_t columns() const { return gates_ * hidden_; }
  int64_t multiplications_of_step() const { return rows_ * columns() * hidden_; }
  int64_t row_distance() const { return directions_ * hidden_; }
  float* row_of(const Direction& direction, int64_t step, int64_t row) const {
    return direction.out + (step * rows_ + row) * row_distance();
  }
  int64_t time_of(const Direction& direction, int64_t step) const {
    return direction.number == 0 && !is_reversed_ ? step : steps_ - 1 - step;
  }
  // The state of a row before the step.
  const float* state_of(const Direction& direction, int64_t step, int64_t row) const {
    return step == 0 ? direction.first_h + row * hidden_ : row_of(direction, time_of(direction, step - 1), row);
  }

  void find_states(const Direction& direction, int64_t step, int64_t from, int64_t to, const float** rows) const {
    for (int64_t row = from; row < to; ++row) {
      *rows++ = state_of(direction, step, row);
    }
  }

  void begin(const Direction& direction, int64_t first, int64_t last) const {
    if (has_c_) {
      std::copy(direction.first_c + first * hidden_, direction.first_c + last * hidden_, direction.c + first * hidden_);
    }
  }
  void end(const Direction& direction, int64_t first, int64_t last) const {
    for (int64_t row = first; row < last; ++row) {
      std::copy_n(state_of(direction, steps_, row), hidden_, direction.last_h + row * hidden_);
    }
  }

  // The row of the input that is read after this one: one below, or the first of the next time step.
  int64_t next_row(const Direction& direction, int64_t step, int64_t row, int64_t first, int64_t last) const {
    return row + 1 < last ? time_of(direction, step) * rows_ + row + 1
                          : time_of(direction, std::min(step + 1, steps_ - 1)) * rows_ + first;
  }

  // `of_state`: the product of all rows.
  void compute_cells(const Direction& direction, int64_t step, const float* of_state, int64_t first, int64_t last) const {
    const int64_t t = time_of(direction, step);
    for (int64_t row = first; row < last; ++row) {
      compute_({.of_input = direction.of_input + (t * rows_ + row) * columns(),
                .of_state = of_state + row * columns(),
                .h = state_of(direction, step, row),
                .c = has_c_ ? direction.c + row * hidden_ : nullptr,
                .out = row_of(direction, t, row),
                .kept = keeps_ ? direction.kept + (t * rows_ + row) * kPartsKeptOfLstm * hidden_ : nullptr,
                .next = direction.of_input + next_row(direction, step, row, first, last) * columns(),
                .hidden = hidden_});
    }
  }

  // Computes all time steps of some rows on this thread.
  void run_rows_of(const Direction& direction, int64_t first, int64_t last) const {
    static thread_local Scratch scratch;
    const TiledProduct& product = weights_[direction.number].product();
    const auto panels = static_cast<int64_t>(product.panels().panels().size());
    float* const room = scratch.of((last - first) * columns());
    float* const of_state = room - first * columns();
    begin(direction, first, last);
    for (int64_t step = 0; step < steps_; ++step) {
      const auto find = [&](int64_t from, int64_t to, const float** rows) { find_states(direction, step, from, to, rows); };
      product.run_part(direction.packed, {.count = rows_, .elements = hidden_, .find = find}, of_state,
                       {.first_row = first, .last_row = last, .last_panel = panels},
                       [&](int64_t from, int64_t to) { compute_cells(direction, step, of_state, from, to); });
    }
    end(direction, first, last);
  }

  // Computes all rows, time step by time step, in each on all threads.
  void run_sharing_weights(const Direction& direction) {
    float* const of_state = of_state_.of(rows_ * columns());
    begin(direction, 0, rows_);
    for (int64_t step = 0; step < steps_; ++step) {
      const auto find = [&](int64_t from, int64_t to, const float** rows) { find_states(direction, step, from, to, rows); };
      weights_[direction.number].product().run(
          direction.packed, {.count = rows_, .elements = hidden_, .find = find}, of_state, /*bounds=*/nullptr,
          [&](int64_t from, int64_t to) { compute_cells(direction, step, of_state, from, to); });
    }
    end(direction, 0, rows_);
  }

  RecurrentCells::Compute compute_ = nullptr;
  bool has_c_ = false;
  bool keeps_ = false;
  bool is_reversed_ = false;
  int64_t gates_ = 0;
  int64_t directions_ = 0;
  int64_t steps_ = 0;
  int64_t rows_ = 0;
  int64_t hidden_ = 0;
  std::array<StateWeights, 2> weights_;
  Scratch of_state_;
};

TORCH_LIBRARY_FRAGMENT(sconce, library) {
  const std::string common =
      "(Tensor input, Tensor weight, Tensor? bias, Tensor? back_input, Tensor? back_weight, "
      "Tensor? back_bias, Tensor h, ";
  library.def(("lstm_layer" + common + "Tensor c) -> (Tensor, Tensor, Tensor)").c_str(), {at::Tag::pt2_compliant_tag});
  library.def(("recurrent_layer" + common + "str kind) -> (Tensor, Tensor)").c_str(), {at::Tag::pt2_compliant_tag});
  library.def(
      "lstm_layer_for_gradients(Tensor input, Tensor weight, Tensor? bias, Tensor h, Tensor c, bool reverse) -> "
      "(Tensor, Tensor, Tensor, Tensor)",
      {at::Tag::pt2_compliant_tag});
  library.impl("lstm_layer", lstm_layer);
  library.impl("lstm_layer_for_gradients", lstm_layer_for_gradients);
  library.impl("recurrent_layer", recurrent_layer);
}

}  // namespace

void add_recurrent_kernels(KernelTable& table) {
  table[{"sconce::lstm_layer", ""}] = {.make = make_kernel<RecurrentLayerKernel>};
  table[{"sconce::lstm_layer_for_gradients", ""}] = {.make = make_kernel<RecurrentLayerKernel>};
  table[{"sconce::recurrent_layer", ""}] = {.make = make_kernel<RecurrentLayerKernel>};
}

}  // namespace sconce
