#include "tests/autodiff/rules/schema_calls.h"

#include <ATen/core/jit_type.h>

#include <algorithm>
#include <set>
#include <string>

namespace sconce::testing {
namespace {

constexpr size_t kMaxCalls = 60;

bool is_tensor_type(const c10::Type& type) { return type.kind() == c10::TypeKind::TensorType; }

const c10::Type& without_optional(const c10::Type& type) {
  return type.kind() == c10::TypeKind::OptionalType ? *type.expectRef<c10::OptionalType>().getElementType() : type;
}

ArgumentPattern tensor(c10::ScalarType dtype, size_t rank, bool requires_grad) {
  ArgumentPattern argument;
  argument.dtype = dtype;
  argument.sizes.resize(rank);
  argument.requires_grad = requires_grad;
  return argument;
}

ArgumentPattern number(c10::IValue value) {
  ArgumentPattern argument;
  argument.constant = std::move(value);
  return argument;
}

c10::ScalarType dtype_of(const std::string& name) {
  static const std::set<std::string> positions = {"index",  "indices", "target", "max_indices",
                                                  "argmax", "offsets", "lengths"};
  static const std::set<std::string> masks = {"mask", "condition", "output_mask"};
  return positions.contains(name) ? c10::kLong : masks.contains(name) ? c10::kBool : c10::kDouble;
}

// What the argument may be if the operator's tensors have `rank` dimensions.
std::vector<ArgumentPattern> choices(const c10::Argument& argument, size_t rank) {
  const std::string& name = argument.name();
  const c10::Type& type = without_optional(*argument.type());
  std::vector<ArgumentPattern> found;
  if (is_tensor_type(type)) {
    const bool is_vector = name == "bias" || name == "running_mean" || name == "running_var" || name == "weight";
    const c10::ScalarType dtype = dtype_of(name);
    found.push_back(tensor(dtype, rank, dtype == c10::kDouble));
    if (is_vector || name == "index" || name == "target" || name == "vec" || name == "vec2" || name == "tau" ||
        name == "s") {
      found.push_back(tensor(dtype, 1, dtype == c10::kDouble));
    }
    if (name == "target") {
      found.push_back(tensor(c10::kDouble, rank, false));
    }
    if (argument.type()->kind() == c10::TypeKind::OptionalType) {
      found.insert(found.begin(), number({}));
    }
    return found;
  }
  if (argument.default_value()) {
    found.push_back(number(*argument.default_value()));
    if (name == "dim" && argument.default_value()->isNone() && type.kind() == c10::TypeKind::ListType) {
      found.push_back(number(c10::List<int64_t>({0})));
    }
    return found;
  }
  if (argument.type()->kind() == c10::TypeKind::OptionalType) {
    found.push_back(number({}));
  }
  switch (type.kind()) {
    case c10::TypeKind::BoolType:
      found.push_back(number(false));
      found.push_back(number(true));
      break;
    case c10::TypeKind::FloatType:
      found.push_back(number(0.5));
      found.push_back(number(2.0));
      break;
    case c10::TypeKind::NumberType:
      found.push_back(number(0.5));
      found.push_back(number(2));
      break;
    case c10::TypeKind::IntType: {
      const bool is_dim = name.find("dim") != std::string::npos;
      for (const int64_t value : is_dim ? std::vector<int64_t>{0, 1, -1} : std::vector<int64_t>{1, 2, 0}) {
        found.push_back(number(value));
      }
      if (name == "dim1" || name == "dim2") {
        std::reverse(found.begin(), found.end());
      }
      break;
    }
    case c10::TypeKind::ListType: {
      const auto& element = type.expectRef<c10::ListType>().getElementType();
      if (element->kind() == c10::TypeKind::IntType) {
        for (const std::vector<int64_t>& value : {std::vector<int64_t>{1},
                                                  {2, 2},
                                                  {0, 1},
                                                  {2},
                                                  {2, 2, 2},
                                                  {1, 1},
                                                  {1, 1, 1},
                                                  {1, 1, 1, 1},
                                                  {0},
                                                  {1, 0},
                                                  {4, 4}}) {
          found.push_back(number(value));
        }
      } else if (element->kind() == c10::TypeKind::BoolType) {
        found.push_back(number(c10::List<bool>({true, true, true})));
        found.push_back(number(c10::List<bool>({true, true})));
      } else if (element->kind() == c10::TypeKind::FloatType) {
        found.push_back(number(c10::List<double>({2.0, 2.0})));
      }
      break;
    }
    case c10::TypeKind::StringType: found.push_back(number(std::string("none"))); break;
    default: break;
  }
  return found;
}

// Appends the calls with each choice for each argument.
void append_calls(const Op& op, size_t rank, std::vector<CallPattern>& calls) {
  std::vector<CallPattern> begun = {{&op, {}}};
  for (const c10::Argument& argument : op.schema->arguments()) {
    std::vector<CallPattern> longer;
    for (const CallPattern& each : begun) {
      for (const ArgumentPattern& choice : choices(argument, rank)) {
        if (longer.size() < kMaxCalls) {
          longer.push_back(each);
          longer.back().arguments.push_back(choice);
        }
      }
    }
    begun = std::move(longer);
  }
  calls.insert(calls.end(), begun.begin(), begun.end());
}

}  // namespace

std::vector<CallPattern> suggested_calls(const Op& op) {
  std::vector<CallPattern> calls;
  for (const size_t rank : {2, 3, 4, 1, 5}) {
    append_calls(op, rank, calls);
  }
  return calls;
}

}  // namespace sconce::testing
