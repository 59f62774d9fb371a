#include "ops/promoted_dtype.h"

#include <c10/core/DefaultDtype.h>

#include <algorithm>
#include <array>

namespace sconce {
namespace {

using at::native::ResultTypeState;
using c10::ScalarType;

bool is_floating_or_complex(ScalarType type) { return c10::isFloatingType(type) || c10::isComplexType(type); }

// LibTorch raises for others, or gives no dtype.
bool has_promotion(ScalarType type) {
  return (is_floating_or_complex(type) || c10::isIntegralType(type, /*includeBool=*/true)) && !c10::isFloat8Type(type) &&
         !c10::isBarebonesUnsignedType(type);
}

// A floating number has the default dtype.
ScalarType type_of_wrapped(ScalarType type) {
  const ScalarType floating = c10::get_default_dtype_as_scalartype();
  return c10::isComplexType(type) ? c10::toComplexType(floating) : c10::isFloatingType(type) ? floating : type;
}

bool takes_default(const ResultTypeState& state) {
  const ResultTypeState of_tensors = {state.dimResult, ScalarType::Undefined, state.zeroResult};
  return is_floating_or_complex(at::native::result_type(state)) &&
         !is_floating_or_complex(at::native::result_type(of_tensors));
}

}  // namespace

void PromotedDtype::add(std::span<const Operand> possibilities) {
  std::vector<State> states;
  for (const State& before : states_) {
    for (const Operand& operand : possibilities) {
      State state = before;
      ScalarType& joined = state.*operand.category;
      joined = joined == ScalarType::Undefined ? operand.type : c10::promoteTypes(joined, operand.type);
      const bool is_known = std::any_of(states.begin(), states.end(), [&](const State& other) {
        return other.dimResult == state.dimResult && other.wrappedResult == state.wrappedResult &&
               other.zeroResult == state.zeroResult;
      });
      if (!is_known) {
        states.push_back(state);
      }
    }
  }
  states_ = std::move(states);
}

void PromotedDtype::add_tensor(ScalarType dtype, std::optional<bool> is_zero_dim) {
  is_promotable_ = is_promotable_ && has_promotion(dtype);
  if (!is_promotable_) {
    return;
  }
  const std::array possibilities = {Operand{&State::dimResult, dtype}, Operand{&State::zeroResult, dtype}};
  add(is_zero_dim ? std::span(possibilities).subspan(*is_zero_dim ? 1 : 0, 1) : possibilities);
}

void PromotedDtype::add_number(ScalarType type) {
  const Operand number{&State::wrappedResult, type_of_wrapped(type)};
  add({&number, 1});
}

void PromotedDtype::add_number(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::BoolType: return add_number(c10::kBool);
    case c10::TypeKind::IntType: return add_number(c10::kLong);
    case c10::TypeKind::FloatType: return add_number(c10::kDouble);
    case c10::TypeKind::ComplexType: return add_number(c10::kComplexDouble);
    default: break;
  }
  std::vector<Operand> numbers;
  for (const ScalarType each : {c10::kBool, c10::kLong, c10::kDouble, c10::kComplexDouble}) {
    numbers.push_back({&State::wrappedResult, type_of_wrapped(each)});
  }
  add(numbers);
}

std::optional<ScalarType> PromotedDtype::dtype() const {
  const ScalarType first = at::native::result_type(states_.front());
  const bool is_of_all = std::all_of(states_.begin(), states_.end(),
                                     [&](const State& state) { return at::native::result_type(state) == first; });
  return is_promotable_ && is_of_all && first != ScalarType::Undefined ? std::optional(first) : std::nullopt;
}

bool PromotedDtype::may_be_default() const { return std::any_of(states_.begin(), states_.end(), takes_default); }

}  // namespace sconce
