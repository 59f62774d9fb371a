#include "tests/differential/registry_arguments.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/enum_type.h>
#include <ATen/core/jit_type.h>
#include <torch/csrc/jit/api/compilation_unit.h>

#include <array>

namespace sconce::testing {
namespace {

// What the recipes differ in.
struct Recipe {
  std::array<at::Tensor, 3> tensors;  // the first argument, the second, all others
  int64_t number = 1;
  double real = 0.5;
  std::vector<int64_t> numbers;
  size_t list_size = 2;
  c10::TypePtr variable;  // for type variables
  bool takes_defaults = true;
  bool gives_optionals = false;
  const char* text = "sum";
};

at::Tensor floats(at::IntArrayRef sizes) {
  int64_t count = 1;
  for (const int64_t size : sizes) {
    count *= size;
  }
  return (at::arange(1, count + 1).to(at::kFloat) / 7).reshape(sizes);
}
at::Tensor indices(at::IntArrayRef sizes) { return at::zeros(sizes, at::kLong); }

Recipe make_recipe(int number) {
  const at::Tensor matrix = floats({2, 3});
  const at::Tensor square = floats({3, 3}) + at::eye(3);
  const at::Tensor vector = floats({3});
  const at::Tensor image = floats({1, 2, 5, 5});
  switch (number) {
    case 0: return {{matrix, matrix, matrix}, 1, 0.5, {2, 3}, 2, c10::TensorType::get()};
    case 1: return {{square, square, square}, 1, 0.25, {0, 1}, 2, c10::IntType::get()};
    case 2: return {{vector, vector, vector}, 0, 0.5, {0}, 1, c10::FloatType::get(), true, false, "mean"};
    case 3:
      return {{image, floats({2, 2, 3, 3}), floats({2})}, 1, 0.5, {2, 2}, 2, c10::StringType::get(), false, false, "none"};
    case 4:
      return {{indices({2, 3}), indices({2, 3}), indices({2, 3})}, 1, 2.0, {1, 1}, 2, c10::BoolType::get(), true, true};
    case 5: return {{matrix, indices({2, 3}), matrix}, 1, 0.5, {1}, 1, c10::TensorType::get(), true, true};
    case 6: return {{image, image, image}, 2, 0.5, {1, 1, 1, 1}, 4, c10::IntType::get(), true, false, "1"};
    case 7:
      return {{floats({2, 3, 3}), floats({2, 3, 3}), floats({2, 3, 3})}, 1, 0.5, {3}, 1, c10::NumberType::get(), false};
    case 8: return {{matrix > 1, matrix > 1, matrix > 1}, 3, -0.5, {6}, 3, c10::ComplexType::get(), true, true, "abc"};
    default:
      return {{indices({1}) + 1, vector, vector}, -1, 1.5, {3, 2, 1}, 3, c10::ListType::ofInts(), true, false, "%s {} 2"};
  }
}

class Maker {
 public:
  explicit Maker(Recipe recipe) : recipe_(std::move(recipe)) {}

  // `length`: of a list, where the schema says it.
  std::optional<c10::IValue> make(const c10::TypePtr& type, std::optional<int32_t> length = std::nullopt) {
    switch (type->kind()) {
      case c10::TypeKind::TensorType: return recipe_.tensors[std::min<size_t>(2, tensors_++)].clone();
      case c10::TypeKind::IntType:
      case c10::TypeKind::SymIntType: return recipe_.number;
      case c10::TypeKind::NumberType: return recipe_.number + 1;
      case c10::TypeKind::FloatType: return recipe_.real;
      case c10::TypeKind::ComplexType: return c10::complex<double>(recipe_.real, 1);
      case c10::TypeKind::BoolType:
      case c10::TypeKind::SymBoolType: return recipe_.number != 0;
      case c10::TypeKind::StringType: return std::string(recipe_.text);
      case c10::TypeKind::AnyType: return recipe_.number;
      case c10::TypeKind::AnyEnumType: return make_enum();
      case c10::TypeKind::StreamObjType: return c10::Stream(c10::Stream::DEFAULT, c10::Device(c10::kCPU));
      case c10::TypeKind::NoneType: return c10::IValue();
      case c10::TypeKind::DeviceObjType: return c10::Device(c10::kCPU);
      case c10::TypeKind::GeneratorType: return at::Generator(at::detail::createCPUGenerator(5));
      case c10::TypeKind::StorageType: return floats({4}).storage();
      case c10::TypeKind::ScalarTypeType: return static_cast<int64_t>(c10::ScalarType::Float);
      case c10::TypeKind::LayoutType: return static_cast<int64_t>(c10::kStrided);
      case c10::TypeKind::MemoryFormatType: return static_cast<int64_t>(c10::MemoryFormat::Contiguous);
      case c10::TypeKind::OptionalType: return make_optional(type->expectRef<c10::OptionalType>().getElementType(), length);
      case c10::TypeKind::ListType: return make_list(type->expectRef<c10::ListType>().getElementType(), length);
      case c10::TypeKind::DictType: return make_dict(type->expectRef<c10::DictType>());
      case c10::TypeKind::TupleType: return make_tuple(type->expectRef<c10::TupleType>());
      case c10::TypeKind::FutureType: return make_future(type->expectRef<c10::FutureType>().getElementType());
      default: return std::nullopt;
    }
  }

 private:
  static c10::IValue make_enum() {
    static const auto unit = std::make_shared<torch::jit::CompilationUnit>();
    static const auto type = c10::EnumType::create("__torch__.Color", c10::IntType::get(), {{"RED", 1}, {"GREEN", 2}}, unit);
    return c10::IValue(c10::make_intrusive<c10::ivalue::EnumHolder>(type, "RED", 1));
  }

  std::optional<c10::IValue> make_optional(const c10::TypePtr& element, std::optional<int32_t> length) {
    return recipe_.gives_optionals ? make(element, length) : std::optional<c10::IValue>(std::in_place);
  }

  std::optional<c10::IValue> make_list(const c10::TypePtr& element, std::optional<int32_t> length) {
    c10::impl::GenericList list(element);
    const bool is_int = element->kind() == c10::TypeKind::IntType || element->kind() == c10::TypeKind::SymIntType;
    const size_t usual = is_int ? recipe_.numbers.size() : recipe_.list_size;
    for (size_t i = 0; i < static_cast<size_t>(length.value_or(static_cast<int32_t>(usual))); ++i) {
      auto value = is_int ? std::optional<c10::IValue>(recipe_.numbers[i % usual]) : make(element);
      if (!value) {
        return std::nullopt;
      }
      list.push_back(std::move(*value));
    }
    return c10::IValue(std::move(list));
  }

  std::optional<c10::IValue> make_dict(const c10::DictType& type) {
    c10::impl::GenericDict dict(type.getKeyType(), type.getValueType());
    auto key = make(type.getKeyType());
    auto value = make(type.getValueType());
    if (!key || !value) {
      return std::nullopt;
    }
    dict.insert(std::move(*key), std::move(*value));
    return c10::IValue(std::move(dict));
  }

  std::optional<c10::IValue> make_tuple(const c10::TupleType& type) {
    std::vector<c10::IValue> elements;
    for (const c10::TypePtr& element : type.elements()) {
      auto value = make(element);
      if (!value) {
        return std::nullopt;
      }
      elements.push_back(std::move(*value));
    }
    return c10::ivalue::Tuple::create(std::move(elements));
  }

  std::optional<c10::IValue> make_future(const c10::TypePtr& element) {
    auto value = make(element);
    if (!value) {
      return std::nullopt;
    }
    auto future = c10::make_intrusive<c10::ivalue::Future>(element);
    future->markCompleted(std::move(*value));
    return c10::IValue(std::move(future));
  }

  Recipe recipe_;
  size_t tensors_ = 0;
};

// The variables of the type, all of them replaced by one type. Keys of dicts cannot be tensors or lists.
void bind_variables(const c10::TypePtr& type, const c10::TypePtr& binding, c10::TypeEnv& variables) {
  if (const auto variable = type->cast<c10::VarType>()) {
    variables.emplace(variable->name(), binding);
  }
  const bool is_dict = type->kind() == c10::TypeKind::DictType;
  for (size_t i = 0; i < type->containedTypes().size(); ++i) {
    bind_variables(type->containedTypes()[i], is_dict && i == 0 ? c10::StringType::get() : binding, variables);
  }
}

}  // namespace

std::optional<RegistryArguments> make_registry_arguments(const c10::FunctionSchema& schema, int number, std::string& why) {
  const Recipe recipe = make_recipe(number);
  Maker maker(recipe);
  c10::TypeEnv variables;
  for (const c10::Argument& argument : schema.arguments()) {
    bind_variables(argument.type(), recipe.variable, variables);
  }
  RegistryArguments made;
  for (const c10::Argument& argument : schema.arguments()) {
    const c10::TypePtr type = c10::tryEvalTypeVariables(argument.type(), variables);
    std::optional<c10::IValue> value;
    if (argument.default_value() && recipe.takes_defaults) {
      value = argument.default_value();
    } else if (type != nullptr) {
      value = maker.make(type, argument.N());
    }
    if (!value) {
      why = "no value of type " + argument.type()->annotation_str() + " can be made for its argument " + argument.name();
      return std::nullopt;
    }
    made.types.push_back(type);
    made.values.push_back(std::move(*value));
  }
  for (int i = 0; schema.is_vararg() && i < 2; ++i) {
    made.types.push_back(recipe.variable);
    made.values.push_back(maker.make(recipe.variable).value_or(c10::IValue()));
  }
  for (const c10::Argument& result : schema.returns()) {
    c10::TypePtr type = c10::tryEvalTypeVariables(result.type(), variables);
    if (type == nullptr) {
      why = "the type of its result, " + result.type()->annotation_str() + ", does not follow from its arguments";
      return std::nullopt;
    }
    made.results.push_back(std::move(type));
  }
  return made;
}

}  // namespace sconce::testing
