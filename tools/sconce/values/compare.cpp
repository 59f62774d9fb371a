#include "tools/sconce/values/compare.h"

#include "report/number_format.h"
#include "tools/sconce/values/compare_tensors.h"

#include <ATen/ATen.h>
#include <ATen/core/class_type.h>

#include <cmath>
#include <complex>
#include <set>
#include <utility>

namespace sconce::cli {
namespace {

std::string text_of_key(const c10::IValue& key) { return key.isString() ? '"' + key.toStringRef() + '"' : c10::str(key); }

class Comparison {
 public:
  Comparison(const CompareOptions& options, size_t limit) : options_(options), limit_(limit) {}

  void compare(const c10::IValue& got, const c10::IValue& expected, const std::string& path) {
    if (found_.size() >= limit_) {
      return;
    }
    if (got.isTensor() && expected.isTensor()) {
      if (auto mismatch = compare_tensors(got.toTensor(), expected.toTensor(), options_, path)) {
        found_.push_back(std::move(*mismatch));
      }
    } else if (got.isList() && expected.isList()) {
      compare_sequences(got.toListRef(), expected.toListRef(), path);
    } else if (got.isTuple() && expected.isTuple()) {
      compare_sequences(got.toTupleRef().elements(), expected.toTupleRef().elements(), path);
    } else if (got.isGenericDict() && expected.isGenericDict()) {
      compare_dicts(got.toGenericDict(), expected.toGenericDict(), path);
    } else if (got.isObject() && expected.isObject()) {
      compare_objects(got.toObjectRef(), expected.toObjectRef(), path);
    } else if (got.isDouble() && expected.isDouble()) {
      compare_numbers(got.toDouble(), expected.toDouble(), path);
    } else if (got.isComplexDouble() && expected.isComplexDouble()) {
      compare_numbers(got.toComplexDouble(), expected.toComplexDouble(), path);
    } else if (kind_of_value(got) != kind_of_value(expected)) {
      add(path, "is " + kind_of_value(got) + " instead of " + kind_of_value(expected));
    } else if (!equal_leaves(got, expected)) {
      add(path, "is " + text_of_key(got) + " instead of " + text_of_key(expected));
    }
  }

  std::vector<Mismatch> take() { return std::move(found_); }

 private:
  void add(const std::string& path, std::string what) {
    if (found_.size() < limit_) {
      found_.push_back({path, std::move(what), {}, {}, {}});
    }
  }

  static bool equal_leaves(const c10::IValue& got, const c10::IValue& expected) {
    const bool comparable = got.isInt() || got.isBool() || got.isString() || got.isDevice() || got.isSymInt();
    if (got.isEnum()) {
      return got.toEnumHolder()->name() == expected.toEnumHolder()->name();
    }
    return !comparable || got == expected;
  }

  template <typename Number>
  void compare_numbers(Number got, Number expected, const std::string& path) {
    const double error = std::abs(got - expected);
    const bool both_nan = got != got && expected != expected;
    const bool within = std::isfinite(error) && error <= options_.atol + options_.rtol * std::abs(expected);
    if (got == expected || both_nan || within) {
      return;
    }
    add(path, "is " + c10::str(got) + " instead of " + c10::str(expected));
    if (std::isfinite(error) && !found_.empty()) {
      found_.back().max_absolute_error = error;
      if (std::abs(expected) > 0) {
        found_.back().max_relative_error = error / std::abs(expected);
      }
    }
  }

  template <typename Sequence>
  void compare_sequences(const Sequence& got, const Sequence& expected, const std::string& path) {
    if (got.size() != expected.size()) {
      add(path, "has " + std::to_string(got.size()) + " elements instead of " + std::to_string(expected.size()));
      return;
    }
    for (size_t i = 0; i < got.size(); ++i) {
      compare(got[i], expected[i], path + "[" + std::to_string(i) + "]");
    }
  }

  // Dicts keep the order of insertion, which a program can observe.
  void compare_dicts(const c10::impl::GenericDict& got, const c10::impl::GenericDict& expected, const std::string& path) {
    const auto keys = [](const c10::impl::GenericDict& dict) {
      std::string text;
      for (const auto& entry : dict) {
        text += (text.empty() ? "" : ", ") + text_of_key(entry.key());
      }
      return text;
    };
    if (keys(got) != keys(expected)) {
      add(path, "has the keys {" + keys(got) + "} instead of {" + keys(expected) + "}");
      return;
    }
    auto entry = expected.begin();
    for (const auto& got_entry : got) {
      compare(got_entry.value(), entry->value(), path + "[" + text_of_key(got_entry.key()) + "]");
      ++entry;
    }
  }

  void compare_objects(const c10::ivalue::Object& got, const c10::ivalue::Object& expected, const std::string& path) {
    // Objects may refer to each other in a cycle.
    if (!visited_.emplace(&got, &expected).second) {
      return;
    }
    const std::string got_class = unmangled(got.name());
    const std::string expected_class = unmangled(expected.name());
    if (got_class != expected_class) {
      add(path, "is a " + got_class + " instead of a " + expected_class);
      return;
    }
    const auto type = got.type();
    for (size_t i = 0; i < type->numAttributes() && i < got.slots().size(); ++i) {
      const std::string& name = type->getAttributeName(i);
      const auto slot = expected.type()->findAttributeSlot(name);
      if (!slot || *slot >= expected.slots().size()) {
        add(path, "has an attribute '" + name + "' that it should not have");
        continue;
      }
      compare(got.getSlot(i), expected.getSlot(*slot), path + "." + name);
    }
    if (got.slots().size() < expected.slots().size()) {
      add(path, "lacks " + std::to_string(expected.slots().size() - got.slots().size()) + " attributes");
    }
  }

  const CompareOptions& options_;
  const size_t limit_;
  std::vector<Mismatch> found_;
  std::set<std::pair<const c10::ivalue::Object*, const c10::ivalue::Object*>> visited_;
};

}  // namespace

std::vector<Mismatch> compare(const c10::IValue& got, const c10::IValue& expected, const CompareOptions& options,
                              const std::string& path, size_t limit) {
  Comparison comparison(options, limit);
  comparison.compare(got, expected, path);
  return comparison.take();
}

std::string to_string(const Mismatch& mismatch) {
  std::string text = mismatch.path + ": " + mismatch.what;
  if (!mismatch.first_index.empty()) {
    text += " at " + c10::str(c10::IntArrayRef(mismatch.first_index));
  }
  if (mismatch.max_absolute_error) {
    text += "; largest error " + format_number(*mismatch.max_absolute_error, 3) + " absolute";
    if (mismatch.max_relative_error) {
      text += ", " + format_number(*mismatch.max_relative_error, 3) + " relative";
    }
  }
  return text;
}

std::string kind_of_value(const c10::IValue& value) {
  if (value.isNone()) {
    return "None";
  }
  if (value.isTensor()) {
    return "a tensor";
  }
  if (value.isList()) {
    return "a list";
  }
  if (value.isTuple()) {
    return "a tuple";
  }
  if (value.isGenericDict()) {
    return "a dict";
  }
  return (value.isInt() ? "an " : "a ") + unmangled(value.type()->repr_str());
}

std::string unmangled(const std::string& qualified_name) {
  constexpr std::string_view kMangle = "___torch_mangle_";
  std::string name = qualified_name;
  for (size_t at = name.find(kMangle); at != std::string::npos; at = name.find(kMangle)) {
    size_t end = name.find_first_not_of("0123456789", at + kMangle.size());
    end = end == std::string::npos ? name.size() : end;
    // The dot after it is removed, too.
    name.erase(at, end - at + (end < name.size() && name[end] == '.' ? 1 : 0));
  }
  return name;
}

}  // namespace sconce::cli
