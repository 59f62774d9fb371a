#include "plan/prepared/same_value.h"

#include <algorithm>
#include <cstring>

namespace sconce {
namespace {

bool is_same_bits(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0; }

}  // namespace

bool is_same_value(const c10::IValue& a, const c10::IValue& b) {
  if (a.isInt()) {
    return b.isInt() && a.toInt() == b.toInt();
  }
  if (a.isNone()) {
    return b.isNone();
  }
  if (a.isDouble()) {
    return b.isDouble() && is_same_bits(a.toDouble(), b.toDouble());
  }
  if (a.isBool()) {
    return b.isBool() && a.toBool() == b.toBool();
  }
  if (a.isString()) {
    return b.isString() && a.toStringRef() == b.toStringRef();
  }
  if (a.isDevice()) {
    return b.isDevice() && a.toDevice() == b.toDevice();
  }
  if ((a.isIntList() && b.isIntList()) || (a.isDoubleList() && b.isDoubleList()) || (a.isBoolList() && b.isBoolList())) {
    const auto left = a.toListRef();
    const auto right = b.toListRef();
    return std::equal(left.begin(), left.end(), right.begin(), right.end(), is_same_value);
  }
  return false;
}

c10::IValue snapshot_of(const c10::IValue& value) { return value.isList() ? value.deepcopy() : value; }

}  // namespace sconce
