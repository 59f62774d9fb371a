#include "tests/support/negative_arguments.h"

#include <ATen/ATen.h>
#include <ATen/core/jit_type.h>

#include <cmath>
#include <limits>
#include <sstream>

namespace sconce::testing {
namespace {

struct Change {
  std::string text;
  c10::IValue value;
};
using Changes = std::vector<Change>;

std::string text_of(c10::IntArrayRef sizes) {
  std::ostringstream text;
  text << sizes;
  return text.str();
}

std::string text_of_value(const c10::IValue& value) {
  std::ostringstream text;
  text << value;
  return " = " + text.str();
}

// Returns a tensor of these sizes with the elements of the other, over and over.
at::Tensor with_sizes(const at::Tensor& tensor, const std::vector<int64_t>& sizes) {
  const int64_t count = c10::multiply_integers(sizes);
  if (tensor.numel() == 0) {
    return at::zeros(sizes, tensor.options());
  }
  const at::Tensor places = at::arange(count, at::kLong).remainder(tensor.numel());
  return tensor.reshape({-1}).index_select(0, places).reshape(sizes);
}

// `is_brief`: of an element of a list.
Changes changes_of_tensor(const at::Tensor& tensor, bool is_brief) {
  Changes changes;
  const auto add_sizes = [&](const std::vector<int64_t>& sizes) {
    changes.push_back({" has sizes " + text_of(sizes), with_sizes(tensor, sizes)});
  };
  const std::vector<int64_t> sizes = tensor.sizes().vec();
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    for (const int64_t size : {sizes[dim] + 1, sizes[dim] - 1, int64_t{1}}) {
      std::vector<int64_t> changed = sizes;
      changed[dim] = size;
      if (size >= 0 && size != sizes[dim]) {
        add_sizes(changed);
      }
    }
  }
  for (const int64_t size : {1, 2}) {
    std::vector<int64_t> more = sizes;
    more.insert(more.begin(), size);
    add_sizes(more);
  }
  if (!sizes.empty()) {
    add_sizes({sizes.begin() + 1, sizes.end()});
    std::vector<int64_t> none = sizes;
    none.back() = 0;
    add_sizes(none);
  }
  for (const at::ScalarType dtype :
       {at::kFloat, at::kLong, at::kBool, at::kDouble, at::kInt, at::kByte, at::kBFloat16, at::kHalf, at::kComplexFloat}) {
    if (dtype != tensor.scalar_type() && !(is_brief && dtype > at::kDouble)) {
      changes.push_back({std::string(" has dtype ") + c10::toString(dtype), tensor.to(dtype)});
    }
  }
  if (c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/false)) {
    changes.push_back({" + 100", tensor + 100});
    changes.push_back({" - 100", tensor - 100});
  }
  return changes;
}

void add_values(Changes& changes, const std::vector<c10::IValue>& values) {
  for (const c10::IValue& value : values) {
    changes.push_back({text_of_value(value), value});
  }
}

Changes changes_of_int(int64_t value) {
  Changes changes;
  add_values(changes, {value + 1, value - 1, -1, 0, 100, -100});
  return changes;
}

Changes changes_of_floating() {
  Changes changes;
  add_values(changes, {-0.5, 1.5, 1e40, -1e40, std::nan(""), std::numeric_limits<double>::infinity(), 1e300});
  return changes;
}

Changes changes_of_number(const c10::IValue& value) {
  Changes changes = changes_of_floating();
  add_values(changes, {-1, int64_t{1} << 40, -(int64_t{1} << 40), 300, 0});
  if (value.isInt()) {
    add_values(changes, {value.toInt() + 1});
  }
  return changes;
}

Changes changes_of(const c10::IValue& value, const c10::Type& type, int64_t rank, bool is_brief);

c10::IValue list_of(const std::vector<c10::IValue>& elements, const c10::TypePtr& type) {
  c10::impl::GenericList list(type);
  for (const c10::IValue& element : elements) {
    list.push_back(element);
  }
  return list;
}

Changes changes_of_list(const c10::IValue& value, const c10::TypePtr& type, int64_t rank) {
  const auto given = value.toListRef();
  const std::vector<c10::IValue> elements(given.begin(), given.end());
  Changes changes;
  const auto add = [&](const std::string& text, const std::vector<c10::IValue>& changed) {
    changes.push_back({text, list_of(changed, type)});
  };
  const bool is_of_ints = type->kind() == c10::TypeKind::IntType || type->kind() == c10::TypeKind::SymIntType;
  const auto add_list = [&](const std::vector<c10::IValue>& changed) {
    add(is_of_ints ? text_of_value(list_of(changed, type)) : " has " + std::to_string(changed.size()) + " elements",
        changed);
  };
  if (elements.empty()) {
    return changes;
  }
  add_list({});
  add_list({elements.begin(), elements.end() - 1});
  std::vector<c10::IValue> more = elements;
  more.push_back(elements.front());
  add_list(more);
  if (is_of_ints) {
    const int64_t first = elements.front().toInt();
    more.back() = first < 0 ? first + rank : first - rank;
    add_list(more);
  }
  for (size_t i = 0; i < elements.size(); ++i) {
    for (const Change& change : changes_of(elements[i], *type, rank, /*is_brief=*/true)) {
      std::vector<c10::IValue> changed = elements;
      changed[i] = change.value;
      add("[" + std::to_string(i) + "]" + change.text, changed);
    }
  }
  return changes;
}

// `rank`: of the first tensor among the arguments.
Changes changes_of(const c10::IValue& value, const c10::Type& type, int64_t rank, bool is_brief) {
  switch (type.kind()) {
    case c10::TypeKind::OptionalType: {
      if (value.isNone()) {
        return {};
      }
      Changes changes = changes_of(value, *type.expectRef<c10::OptionalType>().getElementType(), rank, is_brief);
      changes.push_back({" = None", c10::IValue()});
      return changes;
    }
    case c10::TypeKind::TensorType:
      return value.isTensor() && value.toTensor().defined() ? changes_of_tensor(value.toTensor(), is_brief) : Changes();
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType: return changes_of_int(value.toInt());
    case c10::TypeKind::FloatType: return changes_of_floating();
    case c10::TypeKind::NumberType: return changes_of_number(value);
    case c10::TypeKind::BoolType: return {{text_of_value(!value.toBool()), !value.toBool()}};
    case c10::TypeKind::StringType: return {{" = \"foo\"", "foo"}, {" = \"\"", ""}};
    case c10::TypeKind::ListType: {
      const c10::TypePtr declared = type.expectRef<c10::ListType>().getElementType();
      const bool is_variable = declared->kind() == c10::TypeKind::VarType;
      return changes_of_list(value, is_variable ? value.toList().elementType() : declared, rank);
    }
    default: return {};
  }
}

}  // namespace

std::vector<NegativeTwin> negative_twins(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& valid) {
  int64_t rank = 0;
  for (const c10::IValue& value : valid) {
    if (value.isTensor() && value.toTensor().defined()) {
      rank = value.toTensor().dim();
      break;
    }
  }
  std::vector<NegativeTwin> twins;
  for (size_t i = 0; i < valid.size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    for (const Change& change : changes_of(valid[i], *argument.type(), rank, /*is_brief=*/false)) {
      NegativeTwin twin{i, "argument " + std::to_string(i) + " (" + argument.name() + ")" + change.text, valid};
      twin.values[i] = change.value;
      twins.push_back(std::move(twin));
    }
  }
  return twins;
}

}  // namespace sconce::testing
