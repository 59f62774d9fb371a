// PromotedDtype beside LibTorch's own promotion.
#include "ops/promoted_dtype.h"

#include <ATen/ATen.h>
#include <ATen/native/TypeProperties.h>
#include <c10/core/DefaultDtype.h>
#include <gtest/gtest.h>

#include <set>

namespace sconce {
namespace {

constexpr at::ScalarType kDtypes[] = {at::kBool,        at::kByte,         at::kChar,         at::kShort, at::kInt,
                                      at::kLong,        at::kHalf,         at::kBFloat16,     at::kFloat, at::kDouble,
                                      at::kComplexHalf, at::kComplexFloat, at::kComplexDouble};

// An operand: a tensor of a dtype and rank, or a number.
struct Operand {
  at::ScalarType dtype;
  int64_t rank = -1;  // of a number, -1

  bool is_number() const { return rank < 0; }
};

std::vector<Operand> operands() {
  std::vector<Operand> all;
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t rank : {0, 1, 3}) {
      all.push_back({dtype, rank});
    }
  }
  for (const at::ScalarType type : {at::kBool, at::kLong, at::kDouble, at::kComplexDouble}) {
    all.push_back({type});
  }
  return all;
}

at::Scalar number_of(at::ScalarType type) {
  return type == at::kBool     ? at::Scalar(true)
         : type == at::kLong   ? at::Scalar(2)
         : type == at::kDouble ? at::Scalar(0.5)
                               : at::Scalar(c10::complex<double>(0, 1));
}

// LibTorch gets a number as the tensor that its operators make of it: a wrapped number.
at::ScalarType by_libtorch(const std::vector<Operand>& operands) {
  std::vector<at::Tensor> tensors;
  for (const Operand& operand : operands) {
    if (operand.is_number()) {
      tensors.push_back(at::scalar_to_tensor(number_of(operand.dtype)));
      tensors.back().unsafeGetTensorImpl()->set_wrapped_number(true);
    } else {
      tensors.push_back(at::empty(std::vector<int64_t>(static_cast<size_t>(operand.rank), 2), operand.dtype));
    }
  }
  return at::native::result_type(tensors);
}

void add(PromotedDtype& promoted, const Operand& operand, bool knows_rank = true) {
  if (operand.is_number()) {
    promoted.add_number(operand.dtype);
  } else {
    promoted.add_tensor(operand.dtype, knows_rank ? std::optional(operand.rank == 0) : std::nullopt);
  }
}

std::string text_of(const std::vector<Operand>& operands) {
  std::string text;
  for (const Operand& each : operands) {
    text +=
        std::string(c10::toString(each.dtype)) + (each.is_number() ? " number, " : "[" + std::to_string(each.rank) + "], ");
  }
  return text;
}

void expect_promotion(const std::vector<Operand>& operands) {
  PromotedDtype promoted;
  for (const Operand& operand : operands) {
    add(promoted, operand);
  }
  EXPECT_EQ(promoted.dtype(), by_libtorch(operands)) << text_of(operands);
}

TEST(PromotedDtype, IsLibTorchsForAllPairs) {
  for (const at::ScalarType default_dtype : {at::kFloat, at::kDouble}) {
    const auto before = c10::get_default_dtype();
    c10::set_default_dtype(c10::scalarTypeToTypeMeta(default_dtype));
    for (const Operand& left : operands()) {
      expect_promotion({left});
      for (const Operand& right : operands()) {
        expect_promotion({left, right});
      }
    }
    c10::set_default_dtype(before);
  }
}

TEST(PromotedDtype, IsLibTorchsForThreeOperands) {
  for (const Operand& first : operands()) {
    for (const Operand& second : operands()) {
      for (const Operand& third :
           {Operand{at::kFloat, 0}, Operand{at::kInt, 2}, Operand{at::kBool, 1}, Operand{at::kDouble}}) {
        expect_promotion({first, second, third});
      }
    }
  }
}

TEST(PromotedDtype, IsTheDefaultOneForFloatingNumbersAmongIntegers) {
  const auto of = [](const std::vector<Operand>& operands) {
    PromotedDtype promoted;
    for (const Operand& operand : operands) {
      add(promoted, operand);
    }
    return promoted.may_be_default();
  };
  EXPECT_TRUE(of({{at::kLong, 2}, {at::kDouble}}));
  EXPECT_TRUE(of({{at::kBool, 0}, {at::kComplexDouble}}));
  EXPECT_FALSE(of({{at::kLong, 2}, {at::kLong}}));
  EXPECT_FALSE(of({{at::kLong, 2}, {at::kDouble}, {at::kHalf, 0}}));
}

// Where ranks are not known there is a dtype exactly if all ranks give that one.
TEST(PromotedDtype, OfUnknownRanksIsThatOfAllRanks) {
  for (const at::ScalarType left : kDtypes) {
    for (const at::ScalarType right : kDtypes) {
      std::set<at::ScalarType> possible;
      for (const int64_t left_rank : {0, 1}) {
        for (const int64_t right_rank : {0, 1}) {
          possible.insert(by_libtorch({{left, left_rank}, {right, right_rank}}));
        }
      }
      PromotedDtype promoted;
      add(promoted, {left, 1}, /*knows_rank=*/false);
      add(promoted, {right, 1}, /*knows_rank=*/false);
      const auto expected = possible.size() == 1 ? std::optional(*possible.begin()) : std::nullopt;
      EXPECT_EQ(promoted.dtype(), expected) << left << " and " << right;
    }
  }
}

TEST(PromotedDtype, OfNumbersOfUnknownTypeIsThatOfAllTypes) {
  for (const at::ScalarType dtype : kDtypes) {
    std::set<at::ScalarType> possible;
    for (const at::ScalarType number : {at::kBool, at::kLong, at::kDouble, at::kComplexDouble}) {
      possible.insert(by_libtorch({{dtype, 1}, {number}}));
    }
    PromotedDtype promoted;
    promoted.add_tensor(dtype, false);
    promoted.add_number(*c10::NumberType::get());
    EXPECT_EQ(promoted.dtype(), possible.size() == 1 ? std::optional(*possible.begin()) : std::nullopt) << dtype;
  }
}

TEST(PromotedDtype, OfDtypesThatLibTorchDoesNotPromoteIsNotKnown) {
  for (const at::ScalarType dtype : {at::kFloat8_e4m3fn, at::kUInt16, at::kQInt8}) {
    PromotedDtype promoted;
    promoted.add_tensor(at::kInt, false);
    promoted.add_tensor(dtype, false);
    EXPECT_EQ(promoted.dtype(), std::nullopt) << dtype;
  }
  EXPECT_EQ(PromotedDtype().dtype(), std::nullopt);
}

}  // namespace
}  // namespace sconce
