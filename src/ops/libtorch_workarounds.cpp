#include "ops/libtorch_workarounds.h"

#include <algorithm>
#include <limits>
#include <string>

namespace sconce {

bool division_traps(const Op& op, c10::ArrayRef<c10::IValue> arguments) {
  if (!op.division || arguments.size() != 2 || !arguments[0].isInt() || !arguments[1].isInt()) {
    return false;
  }
  const int64_t divisor = arguments[1].toInt();
  return (divisor == 0 && op.division->traps_on_zero) ||
         (divisor == -1 && arguments[0].toInt() == std::numeric_limits<int64_t>::min());
}

bool copies_by_reading_no_dtype(const Op& op, c10::ArrayRef<c10::IValue> arguments) {
  bool copies = false;
  for (size_t i = 0; op.reads_missing_dtype && i < arguments.size(); ++i) {
    const std::string& name = op.schema->arguments()[i].name();
    if ((name == "dtype" || name == "device") && !arguments[i].isNone()) {
      return false;
    }
    copies = copies || (name == "copy" && arguments[i].toBool());
  }
  return copies;
}

bool has_unknown_dtype(const Op& op, c10::ArrayRef<c10::IValue> arguments) {
  for (size_t i = 0; i < std::min(arguments.size(), op.schema->arguments().size()); ++i) {
    if (op.schema->arguments()[i].name().ends_with("dtype") && arguments[i].isInt() &&
        (arguments[i].toInt() < 0 || arguments[i].toInt() >= static_cast<int64_t>(c10::ScalarType::NumOptions))) {
      return true;
    }
  }
  return false;
}

}  // namespace sconce
