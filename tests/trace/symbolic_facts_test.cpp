// What a trace derives of sizes, strides and offsets, beside tensors of other sizes.
#include "trace/sizes/symbolic_facts.h"

#include "tests/support/graphs.h"

#include "trace/tracer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sconce::testing {
namespace {

using Dims = std::vector<Dim>;
using Code = std::function<at::Tensor(const at::Tensor&)>;

const Dim kBatch = Dim::symbol(1);

// A run of C++ code on a tensor of [batch, 8] whose first size is open, and on real ones beside it.
class OpenBatch {
 public:
  OpenBatch(const Code& code, int64_t batch, const std::string& name)
      : code_(code), name_(name), sizes_(std::make_shared<SymbolicSizes>(std::vector<int64_t>{batch})), tracer_(sizes_) {
    const at::Tensor real = input_of(batch);
    const at::Tensor x = tracer_.add_leaf(real, facts_of_sizes(real, {kBatch, Dim::known(8)}, sizes_->arithmetic()));
    const TracingScope scope(tracer_);
    result_ = code(x);
  }

  // Returns whether sizes, strides and offset of the result are known in every run that may use the trace.
  bool are_known() const {
    const TensorFacts* facts = tracer_.symbolic_facts(result_);
    if (facts == nullptr || !facts->sizes || !facts->strides) {
      return false;
    }
    Dims dims = *facts->sizes;
    dims.insert(dims.end(), facts->strides->begin(), facts->strides->end());
    dims.push_back(SymbolicSizes::dim_of(result_.sym_storage_offset()));
    return std::none_of(dims.begin(), dims.end(), [](const Dim& dim) { return dim.is_unknown(); });
  }

  // Compares what is known with the result for another batch. Returns whether that run may use the trace.
  bool agrees_with(int64_t batch) const {
    if (!sizes_->hold({batch})) {
      return false;
    }
    const at::Tensor real = code_(input_of(batch));
    const TensorFacts* facts = tracer_.symbolic_facts(result_);
    expect_numbers(facts != nullptr ? facts->sizes : std::nullopt, real.sizes(), batch, "sizes");
    expect_numbers(facts != nullptr ? facts->strides : std::nullopt, real.strides(), batch, "strides");
    expect_numbers(Dims{SymbolicSizes::dim_of(result_.sym_storage_offset())}, {real.storage_offset()}, batch, "offset");
    return true;
  }

  std::string refusal() const { return tracer_.refusal() ? tracer_.refusal()->reason : ""; }

 private:
  static at::Tensor input_of(int64_t batch) { return at::zeros({batch, 8}); }

  void expect_numbers(const std::optional<Dims>& dims, at::IntArrayRef numbers, int64_t batch, const char* what) const {
    const std::string where = name_ + ", " + what + " for a batch of " + std::to_string(batch);
    for (size_t i = 0; dims && i < numbers.size(); ++i) {
      ASSERT_EQ(dims->size(), numbers.size()) << where;
      if (!(*dims)[i].is_unknown()) {
        EXPECT_EQ(sizes_->evaluate((*dims)[i], std::vector<int64_t>{batch}), numbers[i]) << where << ", " << i;
      }
    }
  }

  const Code code_;
  const std::string name_;
  const std::shared_ptr<SymbolicSizes> sizes_;
  Tracer tracer_;
  at::Tensor result_;
};

struct Case {
  const char* name;
  Code code;
  int64_t least_later = 2;  // no smaller batch may use the trace
};

c10::SymInt batch_of(const at::Tensor& x) { return x.sym_size(0); }

const std::vector<Case>& view_cases() {
  static const std::vector<Case> cases = {
      {"t", [](const at::Tensor& x) { return x.t(); }},
      {"permuted", [](const at::Tensor& x) { return x.view({-1, 2, 4}).permute({2, 0, 1}); }},
      {"row", [](const at::Tensor& x) { return x.select(0, 1); }},
      {"last row", [](const at::Tensor& x) { return x.select(0, -1); }},
      {"column", [](const at::Tensor& x) { return x.select(1, 3); }},
      {"last column", [](const at::Tensor& x) { return x.t().select(0, -1); }},
      {"first rows", [](const at::Tensor& x) { return x.slice(0, 0, 2); }},
      {"rest", [](const at::Tensor& x) { return x.slice(0, 1); }},
      {"without last", [](const at::Tensor& x) { return x.slice(0, 0, -1); }},
      {"last two", [](const at::Tensor& x) { return x.slice(0, -2); }},
      {"more than there are", [](const at::Tensor& x) { return x.slice(0, -3, 100); }, 3},
      {"narrowed", [](const at::Tensor& x) { return at::narrow_symint(x, 0, 1, batch_of(x) - 1); }},
      {"unsqueezed", [](const at::Tensor& x) { return x.t().unsqueeze(1); }},
      {"unsqueezed at the end", [](const at::Tensor& x) { return x.t().unsqueeze(-1); }},
      {"squeezed", [](const at::Tensor& x) { return x.slice(1, 5, 6).squeeze(1); }},
      {"expanded", [](const at::Tensor& x) { return x.select(0, 0).unsqueeze(0).expand_symint({batch_of(x) * 2, 8}); }},
      {"flat", [](const at::Tensor& x) { return x.view({-1}); }},
      {"split in columns", [](const at::Tensor& x) { return x.view({-1, 2, 4}); }},
      {"joined columns", [](const at::Tensor& x) { return x.view({-1, 4}); }},
      {"diagonal", [](const at::Tensor& x) { return x.slice(0, 0, 2).diagonal(); }},
      {"second part of columns", [](const at::Tensor& x) { return x.split(3, 1)[1]; }},
      {"last part of columns", [](const at::Tensor& x) { return x.split_with_sizes({2, 5, 1}, 1)[2]; }},
      {"column of unbind", [](const at::Tensor& x) { return x.unbind(1)[5]; }},
      {"detached", [](const at::Tensor& x) { return x.slice(0, 1).t().detach(); }},
  };
  return cases;
}

const std::vector<Case>& new_tensor_cases() {
  static const std::vector<Case> cases = {
      {"pointwise", [](const at::Tensor& x) { return (x + 1).relu(); }},
      {"pointwise on columns", [](const at::Tensor& x) { return x.t().sigmoid() * x.t(); }},
      {"broadcast", [](const at::Tensor& x) { return x.unsqueeze(1) - x.unsqueeze(0); }},
      {"product", [](const at::Tensor& x) { return x.mm(at::ones({8, 3})); }},
      {"gram", [](const at::Tensor& x) { return x.mm(x.t()); }},
      {"joined rows", [](const at::Tensor& x) { return at::cat({x, x.slice(0, 1)}, 0); }},
      {"joined columns", [](const at::Tensor& x) { return at::cat({x, x}, 1); }},
      {"stacked", [](const at::Tensor& x) { return at::stack({x, x}, 1); }},
      {"sum of rows", [](const at::Tensor& x) { return x.sum(0); }},
      {"sum of columns", [](const at::Tensor& x) { return x.sum(1, /*keepdim=*/true); }},
      {"softmax of columns", [](const at::Tensor& x) { return x.t().softmax(0); }},
      {"flipped", [](const at::Tensor& x) { return x.flip(0); }},
      {"convolved", [](const at::Tensor& x) { return at::conv1d(x.unsqueeze(1), at::ones({4, 1, 3})); }},
      {"pooled", [](const at::Tensor& x) { return at::avg_pool1d(x.unsqueeze(0), 2); }},
      {"copied", [](const at::Tensor& x) { return x.t().contiguous(); }},
      {"reshaped copy", [](const at::Tensor& x) { return x.t().reshape({4, -1}); }},
      {"cloned", [](const at::Tensor& x) { return x.view({-1, 2, 4}).permute({2, 0, 1}).clone(); }},
      {"of that many", [](const at::Tensor& x) { return at::zeros_symint({batch_of(x) * 2, 3}, at::TensorOptions()); }},
      {"of the same sizes", [](const at::Tensor& x) { return at::ones_like(x.t()); }},
      {"lower triangle", [](const at::Tensor& x) { return x.tril(); }},
      {"sorted", [](const at::Tensor& x) { return std::get<1>(x.sort(1)); }},
      {"looked up", [](const at::Tensor& x) { return at::embedding(at::ones({3, 5}), x.to(at::kLong)); }},
      {"last rows in columns", [](const at::Tensor& x) { return x.slice(0, 1).t() * 2; }},
  };
  return cases;
}

// Sizes, strides or the offset are not derived, for want of a rule.
const std::vector<Case>& underived_cases() {
  static const std::vector<Case> cases = {
      {"as strided", [](const at::Tensor& x) { return x.as_strided_symint({batch_of(x), 2}, {8, 3}, 2); }},
      {"as strided from a later row",
       [](const at::Tensor& x) { return x.as_strided_symint({2, 2}, {8, 1}, (batch_of(x) - 3).max(0) * 8); }},
      {"unfolded", [](const at::Tensor& x) { return x.unfold(1, 3, 2); }},
      {"rest of rows", [](const at::Tensor& x) { return x.split_with_sizes_symint({2, batch_of(x) - 2}, 0)[1]; }},
      {"padded", [](const at::Tensor& x) { return at::constant_pad_nd(x, {1, 2, 3, 0}); }},
      {"repeated", [](const at::Tensor& x) { return x.repeat({2, 3}); }},
  };
  return cases;
}

// Sizes are quotients that leave a remainder in some runs.
const std::vector<Case>& quotient_cases() {
  static const std::vector<Case> cases = {
      {"every other row", [](const at::Tensor& x) { return x.slice(0, 1, std::nullopt, 2); }},
      {"columns", [](const at::Tensor& x) { return x.slice(1, 2, -1, 3); }},
      {"second half", [](const at::Tensor& x) { return x.slice_symint(0, batch_of(x) / 2); }},
      {"convolved along the batch",
       [](const at::Tensor& x) { return at::conv1d(x.t().unsqueeze(1), at::ones({4, 1, 2}), {}, 2, 1); }},
      {"second half of the rows", [](const at::Tensor& x) { return x.chunk(2, 0)[1]; }},
      {"first half of the rows", [](const at::Tensor& x) { return x.chunk(2, 0)[0].t() * 2; }},
      {"a half of the rows, twice", [](const at::Tensor& x) { return x.slice_symint(0, batch_of(x) / 2).t() * 2; }},
  };
  return cases;
}

enum class Derived { kAll, kSome };

void expect_agreement(const std::vector<Case>& cases, Derived derived = Derived::kAll) {
  for (const Case& each : cases) {
    for (const int64_t batch : {6, 3}) {
      const std::string name = std::string(each.name) + ", traced with " + std::to_string(batch);
      const OpenBatch traced(each.code, batch, name);
      EXPECT_EQ(traced.refusal(), "") << name;
      EXPECT_TRUE(derived == Derived::kSome || traced.are_known()) << name;
      for (int64_t later = 2; later < 14; ++later) {
        EXPECT_EQ(traced.agrees_with(later), later >= each.least_later) << name << ", in a run with " << later;
      }
    }
  }
}

TEST(SymbolicFacts, OfViewsAreThoseOfOtherRuns) { expect_agreement(view_cases()); }
TEST(SymbolicFacts, OfNewTensorsAreThoseOfOtherRuns) { expect_agreement(new_tensor_cases()); }
TEST(SymbolicFacts, ThatAreUnknownClaimNothing) { expect_agreement(underived_cases(), Derived::kSome); }

TEST(SymbolicFacts, OfQuotientsAreThoseOfOtherRuns) {
  expect_agreement(quotient_cases());
}

// In a run with two rows, one is left, and aten::squeeze removes its dim.
TEST(SymbolicFacts, OfSqueezedTensorsAreThoseOfOtherRuns) {
  for (const Code& code : std::vector<Code>{[](const at::Tensor& x) { return x.slice(0, 1).squeeze(0); },
                                            [](const at::Tensor& x) { return x.slice(0, 1).squeeze(); }}) {
    const OpenBatch traced(code, 4, "squeezed");
    EXPECT_TRUE(traced.agrees_with(3));
    EXPECT_FALSE(traced.agrees_with(2)) << "its result has another rank";
  }
}

// A node that unpacks a list has as many results as the run that is traced.
TEST(SymbolicFacts, OfPartsAreThoseOfRunsWithAsMany) {
  for (const Code& code : std::vector<Code>{[](const at::Tensor& x) { return x.split(2, 0)[0]; },
                                            [](const at::Tensor& x) { return x.unbind(0)[0]; },
                                            [](const at::Tensor& x) { return x.slice(0, 2).unbind(0)[3]; },
                                            [](const at::Tensor& x) { return x.chunk(5, 0)[1]; }}) {
    const OpenBatch traced(code, 6, "parts");
    EXPECT_TRUE(traced.agrees_with(6));
    EXPECT_FALSE(traced.agrees_with(4)) << "it has another number of parts";
  }
  const OpenBatch three([](const at::Tensor& x) { return x.split(2, 0)[2]; }, 6, "three parts");
  EXPECT_TRUE(three.agrees_with(5)) << "the last part is shorter";
  EXPECT_FALSE(three.agrees_with(7));
}

// ---- pieces -----------------------------------------------------------------------------------------------------------

TEST(SymbolicFacts, AreWrittenAsNodesThatComputeThem) {
  SymbolicFacts facts(std::make_shared<SymbolicSizes>(std::vector<int64_t>{6, 9}));
  SizeArithmetic& sizes = facts.sizes().arithmetic();
  const Dim columns = Dim::symbol(2);
  const std::vector<std::pair<Dim, std::function<int64_t(int64_t, int64_t)>>> written = {
      {sizes.subtract(sizes.multiply(kBatch, columns), Dim::known(4)), [](int64_t a, int64_t b) { return a * b - 4; }},
      {sizes.floor_divide(sizes.add(kBatch, Dim::known(3)), columns), [](int64_t a, int64_t b) { return (a + 3) / b; }},
      {sizes.remainder(sizes.multiply(kBatch, kBatch), Dim::known(4)), [](int64_t a, int64_t) { return a * a % 4; }},
      {sizes.maximum(kBatch, columns), [](int64_t a, int64_t b) { return std::max(a, b); }},
      {sizes.minimum(kBatch, sizes.multiply(columns, Dim::known(2))),
       [](int64_t a, int64_t b) { return std::min(a, 2 * b); }},
      {Dim::known(7), [](int64_t, int64_t) { return 7; }},
  };
  const auto graph = graph_of("graph(%a : int, %b : int):\n  return ()\n");
  for (const auto& [dim, expected] : written) {
    Value* value = facts.write(*graph, dim);
    ASSERT_NE(value, nullptr);
    graph->add_output(value);
  }
  EXPECT_EQ(facts.write(*graph, Dim::unknown()), nullptr);
  for (const auto& [a, b] : {std::pair<int64_t, int64_t>(6, 9), {9, 6}, {2, 2}, {11, 3}}) {
    const std::vector<c10::IValue> found = run(*graph, {a, b});
    for (size_t i = 0; i < written.size(); ++i) {
      EXPECT_EQ(found[i].toInt(), written[i].second(a, b)) << "size " << i << " of " << a << " and " << b;
    }
  }
}

TEST(SymbolicFacts, ForACompileHaveNoExpressions) {
  SymbolicFacts facts(std::make_shared<SymbolicSizes>(std::vector<int64_t>{6}));
  SizeArithmetic& sizes = facts.sizes().arithmetic();
  const Dim doubled = sizes.multiply(kBatch, Dim::known(2));
  const auto graph = graph_of("graph(%x : Tensor, %y : Tensor):\n  return (%x, %y)\n");
  const Value& x = *graph->inputs()[0];
  const at::Tensor real = at::zeros({6, 12, 8});
  facts.set_tensor(x, facts_of_sizes(real, {kBatch, doubled, Dim::known(8)}, sizes), real);
  const TensorFacts found = facts.facts_for_compile(x, real);
  EXPECT_EQ(found.sizes, (Dims{kBatch, Dim::unknown(), Dim::known(8)}));
  EXPECT_EQ(found.strides, (Dims{Dim::unknown(), Dim::known(8), Dim::known(1)}));
  EXPECT_TRUE(found.contiguous);
  EXPECT_EQ(found.dtype, at::kFloat);
  EXPECT_EQ(facts.of(*graph->inputs()[1]), nullptr);
  EXPECT_EQ(facts.facts_for_compile(*graph->inputs()[1], real).sizes, Dims(3, Dim::unknown()));
}

TEST(SymbolicFacts, OfATensorOfNumbersNeedNoGeometry) {
  SymbolicFacts facts(std::make_shared<SymbolicSizes>(std::vector<int64_t>{6}));
  const auto graph = graph_of("graph(%x : Tensor, %y : Tensor):\n  return (%x, %y)\n");
  const Value& fixed = *graph->inputs()[0];
  const Value& open = *graph->inputs()[1];
  const at::Tensor real = at::zeros({6, 8});
  facts.set_tensor(fixed, facts_of(real), real);
  facts.set_tensor(open, facts_of_sizes(real, {kBatch, Dim::known(8)}, facts.sizes().arithmetic()), real);
  EXPECT_EQ(facts.geometry_of(fixed, real), nullptr);
  const auto geometry = facts.geometry_of(open, real);
  ASSERT_NE(geometry, nullptr);
  EXPECT_EQ(SymbolicSizes::dim_of(geometry->sizes[0]), kBatch);
  EXPECT_EQ(geometry->strides[0].maybe_as_int(), 8);
  EXPECT_EQ(geometry->offset.maybe_as_int(), 0);
}

TEST(DenseStrides, FollowTheOrderInMemory) {
  SymbolicSizes sizes({6});
  SizeArithmetic& arithmetic = sizes.arithmetic();
  const Dims dims = {kBatch, Dim::known(3), Dim::known(4)};
  const at::Tensor row_major = at::zeros({6, 3, 4});
  EXPECT_EQ(dense_strides(dims, row_major, arithmetic), (Dims{Dim::known(12), Dim::known(4), Dim::known(1)}));
  const at::Tensor permuted = at::zeros({3, 4, 6}).permute({2, 0, 1});
  EXPECT_EQ(dense_strides(dims, permuted, arithmetic),
            (Dims{Dim::known(1), arithmetic.multiply(kBatch, Dim::known(4)), kBatch}));
  EXPECT_EQ(dense_strides(dims, at::zeros({6, 3, 5}).slice(2, 0, 4), arithmetic), std::nullopt) << "it has gaps";
  EXPECT_EQ(dense_strides(dims, at::zeros({1, 3, 4}).expand({6, 3, 4}), arithmetic), std::nullopt);
}

TEST(AgreeingDims, AreUnknownWhereTheRunContradicts) {
  SymbolicSizes sizes({6});
  const Dim doubled = sizes.arithmetic().multiply(kBatch, Dim::known(2));
  const Dims dims = {kBatch, doubled, Dim::known(5)};
  EXPECT_EQ(agreeing_dims(dims, {6, 12, 5}, sizes.arithmetic()), dims);
  EXPECT_EQ(agreeing_dims(dims, {6, 11, 4}, sizes.arithmetic()), (Dims{kBatch, Dim::unknown(), Dim::unknown()}));
  EXPECT_EQ(agreeing_dims(dims, {6, 12}, sizes.arithmetic()), Dims(2, Dim::unknown()));
}

// Two tensors of [batch, 3]: one of them lies in every other row of its memory, so that its strides are given, too.
TEST(FactsByPattern, TakeOneSizeAfterTheOther) {
  const std::vector<at::Tensor> tensors = {at::zeros({6, 3}), at::Tensor(), at::zeros({12, 3}).slice(0, 0, 12, 2)};
  const SizePattern pattern({1, 6, 3, 6, 3, 6, 1}, {1, 4, 3, 4, 3, 6, 1}, std::vector<bool>(7, false));
  SymbolicSizes sizes(pattern.values());
  const auto facts = facts_by_pattern(tensors, pattern, 1, sizes.arithmetic());
  ASSERT_EQ(facts.size(), 3U);
  ASSERT_TRUE(facts[0] && facts[2]);
  EXPECT_EQ(facts[1], std::nullopt);
  EXPECT_EQ(facts[0]->sizes, (Dims{kBatch, Dim::known(3)}));
  EXPECT_EQ(facts[0]->strides, (Dims{Dim::known(3), Dim::known(1)}));
  EXPECT_EQ(facts[2]->sizes, (Dims{kBatch, Dim::known(3)}));
  EXPECT_EQ(facts[2]->strides, (Dims{Dim::known(6), Dim::known(1)}));
}

}  // namespace
}  // namespace sconce::testing
