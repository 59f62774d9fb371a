// The dtypes that facts claim for promoted results, against runs of the operators.
#include "tests/support/graphs.h"

#include "passes/simplify/propagate_facts.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

namespace sconce::testing {
namespace {

constexpr at::ScalarType kDtypes[] = {at::kBool, at::kByte,     at::kInt,   at::kLong,
                                      at::kHalf, at::kBFloat16, at::kFloat, at::kDouble};
// The rank of an operand: not known, or 0, 1, 2.
constexpr int64_t kUnknownRank = -1;
constexpr int64_t kRanks[] = {kUnknownRank, 0, 1, 2};

TensorFacts facts_with(at::ScalarType dtype, int64_t rank) {
  TensorFacts facts;
  facts.dtype = dtype;
  facts.device = c10::Device(at::kCPU);
  facts.layout = c10::kStrided;
  if (rank != kUnknownRank) {
    facts.sizes = std::vector<Dim>(static_cast<size_t>(rank), Dim::known(2));
  }
  return facts;
}

std::vector<int64_t> possible_ranks(int64_t rank) {
  return rank == kUnknownRank ? std::vector<int64_t>{0, 1, 2} : std::vector<int64_t>{rank};
}

at::Tensor tensor_of(at::ScalarType dtype, int64_t rank) {
  return at::ones(std::vector<int64_t>(static_cast<size_t>(rank), 2), dtype);
}

// The node that computes the result is the last one.
std::optional<at::ScalarType> claimed(const std::string& text, const std::vector<TensorFacts>& facts) {
  const auto graph = graph_of(text);
  for (size_t i = 0; i < facts.size(); ++i) {
    graph->inputs()[i]->set_facts(facts[i]);
  }
  propagate_facts(*graph);
  const TensorFacts* known = graph->outputs()[0]->facts();
  return known == nullptr ? std::nullopt : known->dtype;
}

// Runs the graph; nothing where the operator raises.
std::optional<at::ScalarType> seen(const std::string& text, const std::vector<c10::IValue>& arguments) {
  try {
    return run(text, arguments).at(0).toTensor().scalar_type();
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

void expect_claim(std::optional<at::ScalarType> claim, const std::set<at::ScalarType>& possible, bool ranks_are_known,
                  const std::string& described) {
  if (claim) {
    EXPECT_TRUE(possible.empty() || possible == std::set<at::ScalarType>{*claim}) << described << ": claims " << *claim;
  } else {
    EXPECT_FALSE(ranks_are_known && possible.size() == 1) << described << ": claims nothing";
  }
}

const char* const kOperators[] = {"aten::add(%a, %b, %one)", "aten::sub(%a, %b, %one)", "aten::mul(%a, %b)",
                                  "aten::floor_divide(%a, %b)", "aten::where(%condition, %a, %b)"};

std::string text_of(const std::string& inputs, const std::string& op) {
  return "graph(" + inputs + "):\n  %one : int = prim::Constant[value=1]()\n" +
         "  %zero : int = prim::Constant[value=0]()\n  %condition : Tensor = aten::eq(%a, %zero)\n" +
         "  %result : Tensor = " + op + "\n  return (%result)\n";
}

TEST(PromotedFacts, OfTwoTensorsHoldForAllDtypesAndRanks) {
  size_t claims = 0;
  for (const char* op : kOperators) {
    const std::string text = text_of("%a : Tensor, %b : Tensor", op);
    for (const at::ScalarType left : kDtypes) {
      for (const at::ScalarType right : kDtypes) {
        std::map<std::pair<int64_t, int64_t>, std::optional<at::ScalarType>> results;
        for (const int64_t left_rank : possible_ranks(kUnknownRank)) {
          for (const int64_t right_rank : possible_ranks(kUnknownRank)) {
            results[{left_rank, right_rank}] = seen(text, {tensor_of(left, left_rank), tensor_of(right, right_rank)});
          }
        }
        for (const int64_t left_rank : kRanks) {
          for (const int64_t right_rank : kRanks) {
            std::set<at::ScalarType> possible;
            for (const int64_t a : possible_ranks(left_rank)) {
              for (const int64_t b : possible_ranks(right_rank)) {
                if (const auto result = results.at({a, b})) {
                  possible.insert(*result);
                }
              }
            }
            const auto claim = claimed(text, {facts_with(left, left_rank), facts_with(right, right_rank)});
            claims += claim ? 1 : 0;
            expect_claim(claim, possible, left_rank != kUnknownRank && right_rank != kUnknownRank,
                         std::string(op) + " of " + c10::toString(left) + " and " + c10::toString(right) + " of ranks " +
                             std::to_string(left_rank) + " and " + std::to_string(right_rank));
          }
        }
      }
    }
  }
  EXPECT_GT(claims, 1'000U);
}

// `torch.jit.trace` records the numbers of Python so.
at::Tensor wrapped(const c10::IValue& number) {
  at::Tensor tensor = at::scalar_to_tensor(number.toScalar());
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

TEST(PromotedFacts, OfATensorAndAWrappedNumberHold) {
  size_t claims = 0;
  for (const char* op : kOperators) {
    const std::string text = text_of("%a : Tensor, %b : Tensor", op);
    for (const c10::IValue& number : std::vector<c10::IValue>{3, 0.75, true, c10::IValue(c10::complex<double>(0, 1))}) {
      for (const at::ScalarType dtype : kDtypes) {
        for (const int64_t rank : kRanks) {
          std::set<at::ScalarType> possible;
          for (const int64_t each : possible_ranks(rank)) {
            if (const auto result = seen(text, {tensor_of(dtype, each), wrapped(number)})) {
              possible.insert(*result);
            }
          }
          const auto claim = claimed(text, {facts_with(dtype, rank), facts_of(wrapped(number))});
          claims += claim ? 1 : 0;
          expect_claim(
              claim, possible, /*ranks_are_known=*/false,
              std::string(op) + " of " + c10::toString(dtype) + " of rank " + std::to_string(rank) + " and a number");
        }
      }
    }
  }
  EXPECT_GT(claims, 200U);
}

TEST(PromotedFacts, OfATensorAndANumberHold) {
  const std::map<std::string, std::vector<c10::IValue>> kNumbers = {
      {"int", {3}},
      {"float", {0.75}},
      {"Scalar", {3, 0.75, true, c10::IValue(c10::complex<double>(0, 1))}},
  };
  for (const char* op : kOperators) {
    for (const auto& [type, numbers] : kNumbers) {
      const std::string text = text_of("%a : Tensor, %b : " + type, op);
      for (const at::ScalarType dtype : kDtypes) {
        for (const int64_t rank : kRanks) {
          std::set<at::ScalarType> possible;
          for (const int64_t each : possible_ranks(rank)) {
            for (const c10::IValue& number : numbers) {
              if (const auto result = seen(text, {tensor_of(dtype, each), number})) {
                possible.insert(*result);
              }
            }
          }
          expect_claim(
              claimed(text, {facts_with(dtype, rank)}), possible, /*ranks_are_known=*/false,
              std::string(op) + " of " + c10::toString(dtype) + " of rank " + std::to_string(rank) + " and " + type);
        }
      }
    }
  }
}

}  // namespace
}  // namespace sconce::testing
