#include "tools/sconce/values/fit_arguments.h"

#include "base/nearest_name.h"
#include "tools/sconce/report/errors.h"
#include "tools/sconce/values/compare.h"

#include <ATen/core/enum_type.h>
#include <ATen/core/jit_type.h>

namespace sconce::cli {
namespace {

std::optional<c10::IValue> fit_list(const c10::IValue& value, const c10::ListType& type) {
  std::vector<c10::IValue> elements;
  if (value.isList()) {
    elements = value.toListRef().vec();
  } else if (value.isTuple()) {
    elements = value.toTupleRef().elements().vec();
  } else {
    return std::nullopt;
  }
  c10::impl::GenericList fitted(type.getElementType());
  for (const c10::IValue& element : elements) {
    auto fit = fit_value(element, type.getElementType());
    if (!fit) {
      return std::nullopt;
    }
    fitted.push_back(std::move(*fit));
  }
  return fitted;
}

std::optional<c10::IValue> fit_dict(const c10::IValue& value, const c10::DictType& type) {
  if (!value.isGenericDict()) {
    return std::nullopt;
  }
  c10::impl::GenericDict fitted(type.getKeyType(), type.getValueType());
  for (const auto& entry : value.toGenericDict()) {
    const auto key = fit_value(entry.key(), type.getKeyType());
    const auto element = fit_value(entry.value(), type.getValueType());
    if (!key || !element) {
      return std::nullopt;
    }
    fitted.insert_or_assign(*key, *element);
  }
  return fitted;
}

std::optional<c10::IValue> fit_tuple(const c10::IValue& value, const c10::TupleTypePtr& type) {
  if (!value.isTuple() || value.toTupleRef().size() != type->elements().size()) {
    return std::nullopt;
  }
  std::vector<c10::IValue> fitted;
  for (size_t i = 0; i < type->elements().size(); ++i) {
    auto fit = fit_value(value.toTupleRef().elements()[i], type->elements()[i]);
    if (!fit) {
      return std::nullopt;
    }
    fitted.push_back(std::move(*fit));
  }
  return type->schema() ? c10::ivalue::Tuple::createNamed(std::move(fitted), type)
                        : c10::ivalue::Tuple::create(std::move(fitted));
}

// Returns the member that a string names, or the equal member of another copy of the class: each loaded module has
// its own.
std::optional<c10::IValue> fit_enum(const c10::IValue& value, const c10::EnumTypePtr& type) {
  std::string wanted;
  if (value.isString()) {
    wanted = value.toStringRef();
  } else if (value.isEnum() && unmangled(value.toEnumHolder()->qualifiedClassName()) ==
                                   unmangled(type->qualifiedClassName().qualifiedName())) {
    wanted = value.toEnumHolder()->name();
  } else {
    return std::nullopt;
  }
  for (const auto& [name, content] : type->enumNamesValues()) {
    if (name == wanted) {
      return c10::IValue(c10::make_intrusive<c10::ivalue::EnumHolder>(type, name, content));
    }
  }
  return std::nullopt;
}

std::string type_text(const c10::TypePtr& type) {
  if (const auto enum_type = type->cast<c10::EnumType>()) {
    std::vector<std::string> members;
    for (const auto& [name, content] : enum_type->enumNamesValues()) {
      members.push_back('"' + name + '"');
    }
    return enum_type->qualifiedClassName().name() + " (one of " + join(members) + ")";
  }
  return unmangled(type->repr_str());
}

std::string position_text(size_t index) {
  const char* suffix = index == 0 ? "st" : index == 1 ? "nd" : index == 2 ? "rd" : "th";
  return std::to_string(index + 1) + suffix;
}

}  // namespace

std::optional<c10::IValue> fit_value(const c10::IValue& value, const c10::TypePtr& type) {
  // Unchanged if it fits, so that a list given twice stays one list.
  if (value.isTensor() ? type->kind() == c10::TypeKind::TensorType : value.type()->isSubtypeOf(*type)) {
    return value;
  }
  switch (type->kind()) {
    case c10::TypeKind::OptionalType:
      return value.isNone() ? std::make_optional(value)
                            : fit_value(value, type->expectRef<c10::OptionalType>().getElementType());
    case c10::TypeKind::FloatType:
      return value.isInt() ? std::make_optional<c10::IValue>(static_cast<double>(value.toInt())) : std::nullopt;
    case c10::TypeKind::ListType: return fit_list(value, type->expectRef<c10::ListType>());
    case c10::TypeKind::DictType: return fit_dict(value, type->expectRef<c10::DictType>());
    case c10::TypeKind::TupleType: return fit_tuple(value, type->expect<c10::TupleType>());
    case c10::TypeKind::EnumType: return fit_enum(value, type->expect<c10::EnumType>());
    case c10::TypeKind::DeviceObjType:
      return value.isString() ? std::make_optional<c10::IValue>(c10::Device(value.toStringRef())) : std::nullopt;
    case c10::TypeKind::AnyType: return value;
    default: return value.isTensor() && value.type()->isSubtypeOf(*type) ? std::make_optional(value) : std::nullopt;
  }
}

namespace {

// All arguments but the module itself, whatever its method calls it.
c10::ArrayRef<c10::Argument> callers_arguments(const c10::FunctionSchema& schema) {
  const c10::ArrayRef<c10::Argument> all = schema.arguments();
  const auto type = all.empty() ? nullptr : all[0].type()->cast<c10::ClassType>();
  return all.slice(type != nullptr && type->is_module() ? 1 : 0);
}

}  // namespace

std::string describe_signature(const c10::FunctionSchema& schema) {
  std::string text = schema.name() + "(";
  bool is_first = true;
  for (const c10::Argument& argument : callers_arguments(schema)) {
    const auto enum_type = argument.type()->cast<c10::EnumType>();
    text += (is_first ? "" : ", ") + (enum_type ? enum_type->qualifiedClassName().name() : type_text(argument.type())) +
            " " + argument.name();
    if (argument.default_value()) {
      text += "=" + c10::str(*argument.default_value());
    }
    is_first = false;
  }
  return text + ")";
}

namespace {

std::string count_text(size_t count) { return std::to_string(count) + (count == 1 ? " argument" : " arguments"); }

}  // namespace

std::vector<c10::IValue> fit_arguments(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& arguments) {
  std::vector<const c10::Argument*> expected;
  for (const c10::Argument& argument : callers_arguments(schema)) {
    expected.push_back(&argument);
  }
  const std::string signature = "; the method is " + describe_signature(schema);
  if (arguments.size() > expected.size()) {
    throw UserError(count_text(arguments.size()) + " given, " + schema.name() + " takes at most " +
                    std::to_string(expected.size()) + signature);
  }
  std::vector<c10::IValue> fitted;
  for (size_t i = 0; i < expected.size(); ++i) {
    const c10::Argument& argument = *expected[i];
    if (i >= arguments.size()) {
      if (!argument.default_value()) {
        throw UserError(count_text(arguments.size()) + " given, but '" + argument.name() + "' of " + schema.name() +
                        " is missing" + signature);
      }
      continue;
    }
    auto fit = fit_value(arguments[i], argument.type());
    if (!fit) {
      throw UserError("the " + position_text(i) + " argument, '" + argument.name() + "', must be " +
                      type_text(argument.type()) + ", not " +
                      (arguments[i].isNone() ? "None" : type_text(arguments[i].type())) + signature);
    }
    fitted.push_back(std::move(*fit));
  }
  return fitted;
}

std::vector<c10::IValue> fit_arguments(const torch::jit::Module& module, const std::string& method,
                                       const std::vector<c10::IValue>& arguments) {
  return fit_arguments(module.get_method(method).function().getSchema(), arguments);
}

}  // namespace sconce::cli
