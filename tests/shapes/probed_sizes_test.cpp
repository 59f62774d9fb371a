// Sizes that probe_sizes derives, for operators with and without a shape function.
#include "tests/support/graphs.h"

#include "shapes/probed_sizes.h"

#include <gtest/gtest.h>

namespace sconce::testing {
namespace {

constexpr int64_t kRows = 1;
constexpr int64_t kColumns = 2;

class ProbedSizes : public ::testing::Test {
 protected:
  ProbedSizes() : arithmetic_(kColumns) {
    arithmetic_.set_not_one(rows_);
    arithmetic_.set_not_one(columns_);
  }

  AbstractValue tensor(std::vector<Dim> sizes) const {
    TensorFacts facts;
    facts.dtype = at::kFloat;
    facts.device = c10::Device(at::kCPU);
    facts.layout = c10::kStrided;
    facts.sizes = std::move(sizes);
    return AbstractValue::tensor(std::move(facts));
  }

  // Probes the graph's last node, whose other operands are constants.
  std::optional<std::vector<std::vector<Dim>>> probe(const std::string& text, const AbstractValues& operands) {
    graph_ = graph_of(text);
    const Node* last = nullptr;
    for (const Node* node : graph_->body().nodes()) {
      last = node;
    }
    AbstractValues all = operands;
    for (size_t i = operands.size(); i < last->inputs().size(); ++i) {
      all.push_back(AbstractValue::constant(*last->input(i)->constant()));
    }
    return probe_sizes(*last, all, arithmetic_);
  }

  using Sizes = std::vector<std::vector<Dim>>;
  const Dim rows_ = Dim::symbol(kRows);
  const Dim columns_ = Dim::symbol(kColumns);
  SizeArithmetic arithmetic_;
  std::unique_ptr<Graph> graph_;
};

TEST_F(ProbedSizes, AreThoseOfTheOperands) {
  const auto found = probe(R"(
graph(%a : Tensor, %b : Tensor):
  %dim : int = prim::Constant[value=-1]()
  %y : Tensor = aten::linalg_cross(%a, %b, %dim)
  return (%y))",
                           {tensor({rows_, Dim::known(3)}), tensor({rows_, Dim::known(3)})});
  ASSERT_TRUE(found);
  EXPECT_EQ(*found, (Sizes{{rows_, Dim::known(3)}}));
}

TEST_F(ProbedSizes, AreSumsAndProducts) {
  const auto padded = probe(R"(
graph(%a : Tensor):
  %pad : int[] = prim::Constant[value=[1, 2]]()
  %zero : float = prim::Constant[value=0.]()
  %y : Tensor = aten::constant_pad_nd(%a, %pad, %zero)
  return (%y))",
                            {tensor({rows_, columns_})});
  ASSERT_TRUE(padded);
  EXPECT_EQ(*padded, (Sizes{{rows_, arithmetic_.add(columns_, Dim::known(3))}}));
  const auto product = probe(R"(
graph(%a : Tensor, %b : Tensor):
  %y : Tensor = aten::kron(%a, %b)
  return (%y))",
                             {tensor({rows_}), tensor({columns_})});
  ASSERT_TRUE(product);
  EXPECT_EQ(*product, (Sizes{{arithmetic_.multiply(rows_, columns_)}}));
}

// Which of both is less, no size tells.
TEST_F(ProbedSizes, AreUnknownWhereTheyAreMinimums) {
  const auto found = probe(R"(
graph(%a : Tensor):
  %mode : str = prim::Constant[value="reduced"]()
  %q : Tensor, %r : Tensor = aten::linalg_qr(%a, %mode)
  return (%q, %r))",
                           {tensor({rows_, columns_})});
  ASSERT_TRUE(found);
  EXPECT_EQ(*found, (Sizes{{rows_, Dim::unknown()}, {Dim::unknown(), columns_}}));
}

TEST_F(ProbedSizes, AreNotAskedOfSymbolsThatMayBeOne) {
  arithmetic_ = SizeArithmetic(kColumns);
  EXPECT_FALSE(probe(R"(
graph(%a : Tensor, %b : Tensor):
  %y : Tensor = aten::kron(%a, %b)
  return (%y))",
                     {tensor({rows_}), tensor({columns_})}));
}

}  // namespace
}  // namespace sconce::testing
