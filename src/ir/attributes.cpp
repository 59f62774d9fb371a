#include "ir/attributes.h"

#include "ir/gradient_signature.h"

#include <algorithm>

namespace sconce {
namespace {

bool equal(const AttributeValue& a, const AttributeValue& b) {
  if (a.index() != b.index()) {
    return false;
  }
  if (const auto* type = std::get_if<c10::TypePtr>(&a)) {
    return **type == *std::get<c10::TypePtr>(b);
  }
  if (const auto* types = std::get_if<std::vector<c10::TypePtr>>(&a)) {
    const auto& others = std::get<std::vector<c10::TypePtr>>(b);
    return std::equal(types->begin(), types->end(), others.begin(), others.end(),
                      [](const c10::TypePtr& x, const c10::TypePtr& y) { return *x == *y; });
  }
  if (const auto* value = std::get_if<c10::IValue>(&a)) {
    return value->is(std::get<c10::IValue>(b));
  }
  if (const auto* signature = std::get_if<std::shared_ptr<const GradientSignature>>(&a)) {
    return **signature == *std::get<std::shared_ptr<const GradientSignature>>(b);
  }
  return a == b;
}

}  // namespace

bool equal_attributes(c10::ArrayRef<Attribute> a, c10::ArrayRef<Attribute> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Attribute& x, const Attribute& y) { return x.name == y.name && equal(x.value, y.value); });
}

}  // namespace sconce
