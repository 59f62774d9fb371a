// Attention and its gradients, by products of blocks of queries with all keys.
#include "kernels/float32_precision.h"
#include "kernels/kernel_table.h"
#include "kernels/loops/forks.h"
#include "kernels/loops/softmax_rows.h"
#include "kernels/packed/gemm.h"
#include "kernels/packed/scratch.h"

#include <ATen/ExpandUtils.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace sconce {
namespace {

// The scores of a block of queries stay in the second level of the cache.
constexpr int64_t kMaxScores = 1 << 16;
constexpr int64_t kMinQueries = 32;

thread_local Scratch attention_scratch;

// A tensor of batches, heads, positions and features, or a mask that is broadcast to its sizes.
struct Heads {
  std::array<int64_t, 4> strides = {};

  static Heads of(const at::Tensor& tensor) {
    Heads heads;
    std::copy_n(tensor.strides().begin(), 4, heads.strides.begin());
    return heads;
  }
  ptrdiff_t offset(int64_t batch, int64_t head, int64_t position = 0) const {
    return batch * strides[0] + head * strides[1] + position * strides[2];
  }
  Matrix matrix() const { return {.leading = static_cast<int>(strides[2])}; }
  Matrix transposed() const { return {.is_transposed = true, .leading = static_cast<int>(strides[2])}; }
};

// The arguments (query, key, value, …, dropout_p, is_causal, attn_mask?, scale?).
class AttentionForm {
 public:
  // Returns false for what LibTorch computes.
  bool read(const KernelArguments& arguments, size_t query, size_t dropout) {
    const at::Tensor& of_queries = arguments.tensor(query);
    const at::Tensor& of_keys = arguments.tensor(query + 1);
    const at::Tensor& of_values = arguments.tensor(query + 2);
    if (arguments.is_exact() || !computes_in_float32(at::Float32Op::MATMUL) || !is_operand(of_queries) ||
        !is_operand(of_keys) || !is_operand(of_values) || arguments.value(dropout).toDouble() != 0 || !tiles_are_faster()) {
      return false;
    }
    batches = of_queries.size(0);
    heads = of_queries.size(1);
    queries = of_queries.size(2);
    keys = of_keys.size(2);
    features = of_queries.size(3);
    if (of_keys.sizes() != of_values.sizes() || of_keys.size(0) != batches || of_keys.size(1) != heads ||
        of_keys.size(3) != features) {
      return false;
    }
    q = Heads::of(of_queries);
    k = Heads::of(of_keys);
    v = Heads::of(of_values);
    is_causal = arguments.value(dropout + 1).toBool();
    mask_argument = dropout + 2;
    has_mask = arguments.is_tensor(mask_argument);
    if (has_mask && (is_causal || !read_mask(arguments.tensor(mask_argument)))) {
      return false;
    }
    const c10::IValue& given = arguments.value(dropout + 3);
    scale = given.isNone() ? 1.0F / std::sqrt(static_cast<float>(features)) : static_cast<float>(given.toDouble());
    block = std::clamp(kMaxScores / keys, std::min(kMinQueries, queries), queries);
    return true;
  }

  static bool is_operand(const at::Tensor& tensor) {
    return tensor.scalar_type() == at::kFloat && tensor.dim() == 4 && tensor.numel() > 0 && tensor.stride(3) == 1 &&
           tensor.stride(2) >= tensor.size(3) && tensor.stride(2) <= std::numeric_limits<int>::max() &&
           tensor.size(2) <= std::numeric_limits<int>::max();
  }

  // The queries of each block (`last`: 0), or of the last one (1), which may have fewer.
  int64_t rows_of_block(size_t last) const {
    const int64_t rest = queries % block;
    return last == 0 || rest == 0 ? block : rest;
  }
  // Calls the function for each batch and head, on LibTorch's intra-op threads.
  template <typename Function>
  void for_each_head(const Function& function) const {
    fork_by_multiplications(batches * heads, 2 * queries * keys * features, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        function(i / heads, i % heads);
      }
    });
  }
  // The scores of a query, scaled and masked; returns how many keys it attends to.
  int64_t finish_scores(float* row, int64_t query, const float* mask) const {
    const int64_t seen = is_causal ? std::min(query + 1, keys) : keys;
    softmax_rows().prepare(row, seen, scale, mask, mask_strides[3]);
    return seen;
  }
  const float* mask_of(const KernelArguments& arguments, int64_t batch, int64_t head, int64_t query) const {
    return has_mask ? static_cast<const float*>(arguments.data(mask_argument)) + batch * mask_strides[0] +
                          head * mask_strides[1] + query * mask_strides[2]
                    : nullptr;
  }

  int64_t batches = 0, heads = 0, queries = 0, keys = 0, features = 0;
  int64_t block = 0;  // of queries
  Heads q, k, v;
  bool is_causal = false;
  bool has_mask = false;
  size_t mask_argument = 0;
  std::array<int64_t, 4> mask_strides = {};
  float scale = 1;

 private:
  bool read_mask(const at::Tensor& mask) {
    if (mask.scalar_type() != at::kFloat || (mask.dim() != 2 && mask.dim() != 4)) {
      return false;
    }
    const std::array<int64_t, 4> sizes = {batches, heads, queries, keys};
    const auto missing = static_cast<size_t>(4 - mask.dim());
    for (size_t i = 0; i < 4; ++i) {
      const bool is_there = i >= missing;
      const int64_t size = is_there ? mask.sizes()[i - missing] : 1;
      if (size != 1 && size != sizes[i]) {
        return false;
      }
      mask_strides[i] = size == 1 ? 0 : mask.strides()[i - missing];
    }
    return true;
  }
};

Gemm product(const Matrix& left, const Matrix& right, int64_t m, int64_t n, int64_t k) {
  return {left, right, static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), /*is_exact=*/false};
}

Matrix dense(int64_t columns) { return {.leading = static_cast<int>(columns)}; }
Matrix dense_transposed(int64_t columns) { return {.is_transposed = true, .leading = static_cast<int>(columns)}; }

// Gradients as LibTorch places them: positions before heads.
std::vector<int64_t> heads_last(const AttentionForm& form, int64_t positions) {
  return {positions * form.heads * form.features, form.features, form.heads * form.features, 1};
}

class AttentionKernel final : public PreparedKernel {
 public:
  bool prepare(const KernelArguments& arguments, KernelResults results) override {
    if (!form_.read(arguments, 0, 3)) {
      return false;
    }
    const std::vector<int64_t> sizes = {form_.batches, form_.heads, form_.queries, form_.features};
    // As at::empty_like places it.
    const at::Tensor& q = arguments.tensor(0);
    const std::vector<int64_t> strides =
        q.is_non_overlapping_and_dense() ? q.strides().vec() : at::infer_dense_strides(q.sizes(), q.strides());
    out_ = Heads::of(results[0].place(sizes, strides, at::kFloat));
    results[1].place({form_.batches, form_.heads, form_.queries}, {form_.queries * form_.heads, 1, form_.heads}, at::kFloat);
    for (size_t i = 0; i < 2; ++i) {
      const int64_t rows = form_.rows_of_block(i);
      scores_[i] = product(form_.q.matrix(), form_.k.transposed(), rows, form_.keys, form_.features);
      values_[i] = product(dense(form_.keys), form_.v.matrix(), rows, form_.features, form_.keys);
    }
    return true;
  }

  void run(const KernelArguments& arguments, KernelResults results) override {
    const auto* q = static_cast<const float*>(arguments.data(0));
    const auto* k = static_cast<const float*>(arguments.data(1));
    const auto* v = static_cast<const float*>(arguments.data(2));
    auto* out = static_cast<float*>(results[0].data);
    auto* log_sums = static_cast<float*>(results[1].data);
    form_.for_each_head([&](int64_t batch, int64_t head) {
      float* const scores = attention_scratch.of(form_.block * (form_.keys + form_.features + 1));
      float* const values = scores + form_.block * form_.keys;
      float* const sums = values + form_.block * form_.features;
      for (int64_t first = 0; first < form_.queries; first += form_.block) {
        const int64_t rows = std::min(form_.block, form_.queries - first);
        const size_t last = rows < form_.block ? 1 : 0;
        scores_[last].run(q + form_.q.offset(batch, head, first), k + form_.k.offset(batch, head), nullptr, scores);
        for (int64_t row = 0; row < rows; ++row) {
          const int64_t query = first + row;
          float* const of_query = scores + row * form_.keys;
          const int64_t seen = form_.finish_scores(of_query, query, form_.mask_of(arguments, batch, head, query));
          const SoftmaxRows::Sum sum = softmax_rows().exponentiate(of_query, seen);
          std::fill(of_query + seen, of_query + form_.keys, 0.0F);
          sums[row] = sum.sum == 0 ? 1 : sum.sum;
          log_sums[(batch * form_.queries + query) * form_.heads + head] = sum.sum == 0 ? 0 : sum.most + std::log(sum.sum);
        }
        values_[last].run(scores, v + form_.v.offset(batch, head), nullptr, values);
        for (int64_t row = 0; row < rows; ++row) {
          float* const to = out + out_.offset(batch, head, first + row);
          const float factor = 1 / sums[row];
          for (int64_t i = 0; i < form_.features; ++i) {
            to[i] = values[row * form_.features + i] * factor;
          }
        }
      }
    });
  }

 private:
  AttentionForm form_;
  Heads out_;
  std::array<Gemm, 2> scores_;
  std::array<Gemm, 2> values_;
};

// (grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, attn_mask?, scale?). With probabilities
// P = exp(scores - logsumexp) and dP = grad_out value':
//   dS = P (dP - rows of sum(grad_out out)) scale     grad_value = P' grad_out     grad_query = dS key     grad_key = dS'
//   query
class AttentionGradientKernel final : public PreparedKernel {
 public:
  bool prepare(const KernelArguments& arguments, KernelResults results) override {
    const at::Tensor& grad = arguments.tensor(0);
    const at::Tensor& out = arguments.tensor(4);
    const at::Tensor& log_sums = arguments.tensor(5);
    if (!form_.read(arguments, 1, 6) || !AttentionForm::is_operand(grad) || !AttentionForm::is_operand(out) ||
        grad.sizes() != arguments.tensor(1).sizes() || out.sizes() != grad.sizes() || log_sums.scalar_type() != at::kFloat ||
        log_sums.sizes() != grad.sizes().slice(0, 3)) {
      return false;
    }
    grad_ = Heads::of(grad);
    out_ = Heads::of(out);
    std::copy_n(log_sums.strides().begin(), 3, log_sums_.begin());
    const int64_t d = form_.features;
    for (size_t i = 0; i < 3; ++i) {
      const int64_t positions = i == 0 ? form_.queries : form_.keys;
      results[i].place({form_.batches, form_.heads, positions, d}, heads_last(form_, positions), at::kFloat);
    }
    for (size_t i = 0; i < 2; ++i) {
      const int64_t rows = form_.rows_of_block(i);
      products_[i] = {.scores = product(form_.q.matrix(), form_.k.transposed(), rows, form_.keys, d),
                      .of_scores = product(grad_.matrix(), form_.v.transposed(), rows, form_.keys, d),
                      .of_query = product(dense(form_.keys), form_.k.matrix(), rows, d, form_.keys),
                      .of_key = product(dense_transposed(form_.keys), form_.q.matrix(), form_.keys, d, rows),
                      .of_value = product(dense_transposed(form_.keys), grad_.matrix(), form_.keys, d, rows)};
    }
    return true;
  }

  void run(const KernelArguments& arguments, KernelResults results) override {
    form_.for_each_head([&](int64_t batch, int64_t head) { run_head(arguments, results, batch, head); });
  }

 private:
  struct Products {
    Gemm scores;
    Gemm of_scores;
    Gemm of_query;
    Gemm of_key;
    Gemm of_value;
  };

  void run_head(const KernelArguments& arguments, KernelResults results, int64_t batch, int64_t head) const {
    const auto* grad = static_cast<const float*>(arguments.data(0)) + grad_.offset(batch, head);
    const auto* q = static_cast<const float*>(arguments.data(1)) + form_.q.offset(batch, head);
    const auto* k = static_cast<const float*>(arguments.data(2)) + form_.k.offset(batch, head);
    const auto* v = static_cast<const float*>(arguments.data(3)) + form_.v.offset(batch, head);
    const auto* out = static_cast<const float*>(arguments.data(4)) + out_.offset(batch, head);
    const auto* log_sums = static_cast<const float*>(arguments.data(5)) + batch * log_sums_[0] + head * log_sums_[1];
    const int64_t d = form_.features;
    float* const scores = attention_scratch.of(2 * form_.block * form_.keys + form_.block * d + 2 * form_.keys * d);
    float* const of_scores = scores + form_.block * form_.keys;
    float* const of_query = of_scores + form_.block * form_.keys;
    float* const of_key = of_query + form_.block * d;
    float* const of_value = of_key + form_.keys * d;
    for (int64_t first = 0; first < form_.queries; first += form_.block) {
      const int64_t rows = std::min(form_.block, form_.queries - first);
      const Products& products = products_[rows < form_.block ? 1 : 0];
      const float* const of_block = q + first * form_.q.strides[2];
      const float* const grads = grad + first * grad_.strides[2];
      products.scores.run(of_block, k, nullptr, scores);
      products.of_scores.run(grads, v, nullptr, of_scores);
      for (int64_t row = 0; row < rows; ++row) {
        const int64_t query = first + row;
        float* const of_row = scores + row * form_.keys;
        float* const gradients = of_scores + row * form_.keys;
        const int64_t seen = form_.finish_scores(of_row, query, form_.mask_of(arguments, batch, head, query));
        const float mean = softmax_rows().dot(grad + query * grad_.strides[2], out + query * out_.strides[2], d);
        softmax_rows().differentiate(of_row, gradients, seen, log_sums[query * log_sums_[2]], mean, form_.scale);
        std::fill(of_row + seen, of_row + form_.keys, 0.0F);
        std::fill(gradients + seen, gradients + form_.keys, 0.0F);
      }
      if (first == 0) {
        products.of_key.run(of_scores, of_block, nullptr, of_key);
        products.of_value.run(scores, grads, nullptr, of_value);
      } else {
        products.of_key.add(of_scores, of_block, of_key);
        products.of_value.add(scores, grads, of_value);
      }
      products.of_query.run(of_scores, k, nullptr, of_query);
      hand_out(of_query, results[0], form_.queries, batch, head, first, rows);
    }
    hand_out(of_key, results[1], form_.keys, batch, head, 0, form_.keys);
    hand_out(of_value, results[2], form_.keys, batch, head, 0, form_.keys);
  }

  void hand_out(const float* from, const KernelResult& result, int64_t positions, int64_t batch, int64_t head, int64_t first,
                int64_t rows) const {
    auto* const to = static_cast<float*>(result.data);
    for (int64_t row = 0; row < rows; ++row) {
      std::memcpy(to + ((batch * positions + first + row) * form_.heads + head) * form_.features,
                  from + row * form_.features, static_cast<size_t>(form_.features) * sizeof(float));
    }
  }

  AttentionForm form_;
  Heads grad_;
  Heads out_;
  std::array<int64_t, 3> log_sums_ = {};
  std::array<Products, 2> products_;
};

}  // namespace

void add_attention_kernels(KernelTable& table) {
  table[{"aten::_scaled_dot_product_flash_attention_for_cpu", ""}] = {.make = make_kernel<AttentionKernel>};
  table[{"aten::_scaled_dot_product_flash_attention_for_cpu_backward", ""}] = {.make = make_kernel<AttentionGradientKernel>};
}

}  // namespace sconce
