#include "shapes/operator_facts.h"

#include "analysis/effects.h"
#include "analysis/memory/alias_sets.h"
#include "ir/constant_operands.h"
#include "ops/promoted_dtype.h"
#include "shapes/meta_run.h"
#include "shapes/probed_sizes.h"
#include "shapes/shape_functions.h"
#include "shapes/size_rules.h"

#include <ATen/ATen.h>
#include <ATen/core/jit_type.h>
#include <c10/core/DefaultDtype.h>

#include <algorithm>
#include <optional>
#include <vector>

namespace sconce {
namespace {

std::optional<c10::ScalarType> dtype_of_numbers(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::IntType: return c10::kLong;
    case c10::TypeKind::BoolType: return c10::kBool;
    case c10::TypeKind::FloatType: return c10::get_default_dtype_as_scalartype();
    default: return std::nullopt;
  }
}

// Returns the dtype and the rank of the result of `torch.tensor` of a list, or of nested lists, whose lengths need not be
// known. Nothing for other operators and for elements of unknown type. Assumes the current default dtype.
std::optional<TensorFacts> facts_of_numbers(const Node& node, const AbstractValues& operands) {
  const auto argument = node.op().result.sizes_by_structure ? node.op().argument_index("dtype") : std::nullopt;
  if (!argument || *argument >= operands.size() || node.input(0)->type()->kind() != c10::TypeKind::ListType) {
    return std::nullopt;
  }
  c10::TypePtr type = node.input(0)->type();
  std::vector<Dim> sizes;
  while (const auto list = type->cast<c10::ListType>()) {
    sizes.push_back(Dim::unknown());
    type = list->getElementType();
  }
  TensorFacts facts;
  if (const auto given = operands[*argument].as_known_integer()) {
    facts.dtype = static_cast<c10::ScalarType>(*given);
  } else if (is_none(*node.input(*argument))) {
    facts.dtype = dtype_of_numbers(*type);
  }
  if (!facts.dtype) {
    return std::nullopt;
  }
  facts.sizes = std::move(sizes);
  facts.layout = c10::kStrided;
  return facts;
}

bool is_tensor_type(const c10::TypePtr& type) {
  return type->kind() == c10::TypeKind::TensorType || type->isSubtypeOf(*c10::OptionalType::ofTensor());
}

// Returns whether an operator may find tensors in a value of the type. The elements of lists and tuples are asked.
bool may_bring_tensors(const c10::TypePtr& type) {
  const bool is_row = type->kind() == c10::TypeKind::ListType || type->kind() == c10::TypeKind::TupleType;
  return is_row ? std::ranges::any_of(type->containedTypes(), may_bring_tensors) : holds_memory(type);
}

bool is_object(const c10::Type& type) {
  return type.kind() == c10::TypeKind::ClassType ||
         (type.kind() == c10::TypeKind::ListType && is_object(*type.expectRef<c10::ListType>().getElementType()));
}

class OperatorFacts {
 public:
  OperatorFacts(const Node& node, const AbstractValues& operands, SizeArithmetic& arithmetic)
      : node_(node), schema_(*node.schema()), operands_(operands), arithmetic_(arithmetic) {
    for (size_t i = 0; i < operands.size(); ++i) {
      collect_tensors(operands[i], node.input(i)->type());
    }
  }

  AbstractValues run() const {
    if (auto property = tensor_property(node_, operands_, arithmetic_)) {
      return {*property};
    }
    const bool produces_tensors = std::ranges::any_of(node_.outputs(), [](const Value* output) {
      return output->type()->kind() == c10::TypeKind::TensorType || output->type()->kind() == c10::TypeKind::ListType;
    });
    const Effects effects = effects_of(node_);
    AbstractValues results(node_.outputs().size());
    if (!produces_tensors || schema_.is_vararg() || effects.unknown || effects.external || effects.state ||
        node_.op().runs_under_autocast) {
      return results;
    }
    if (node_.opcode() == Opcode::kAutocastCast) {
      return {autocast_cast(operands_)};
    }
    const auto meta = run_on_meta(node_, operands_, tensors_, arithmetic_);
    const auto sizes = meta && meta->sizes_are_exact ? std::nullopt : sizes_by_rule();
    const auto parts = meta && !meta->sizes_are_exact ? sizes_of_parts(node_, operands_, meta->results[0]) : std::nullopt;
    for (size_t i = 0; i < results.size(); ++i) {
      if (const AbstractValue* written = returned_operand(i)) {
        results[i] = *written;
        continue;
      }
      const c10::IValue* example = meta ? &meta->results[i] : nullptr;
      if (node_.output(i)->type()->kind() == c10::TypeKind::TensorType) {
        results[i] =
            AbstractValue::tensor(facts_of_result(i, meta, example, sizes && i < sizes->size() ? &(*sizes)[i] : nullptr));
      } else if (example != nullptr && example->isTensorList() &&
                 (meta->sizes_are_exact || parts ||
                  (schema_.returns()[i].alias_info() == nullptr &&
                   is_unpacked_into(*node_.output(i), example->toListRef().size())))) {
        AbstractValues elements;
        for (const c10::IValue& tensor : example->toListRef()) {
          const std::vector<Dim>* part = parts ? &(*parts)[elements.size()] : nullptr;
          elements.push_back(AbstractValue::tensor(facts_of_result(i, meta, &tensor, part)));
        }
        results[i] = AbstractValue::sequence(std::move(elements));
      }
    }
    return results;
  }

 private:
  // Returns whether a run would raise if the list had another number of elements.
  static bool is_unpacked_into(const Value& list, size_t elements) {
    return list.uses().size() == 1 && list.uses().front().user->opcode() == Opcode::kListUnpack &&
           list.uses().front().user->outputs().size() == elements;
  }

  void collect_tensors(const AbstractValue& operand, const c10::TypePtr& type) {
    if (const TensorFacts* facts = operand.as_tensor()) {
      tensors_.push_back(facts);
    } else if (const AbstractValues* elements = operand.as_sequence()) {
      for (const AbstractValue& element : *elements) {
        collect_tensors(element, type);
      }
    } else if (operand.is_unknown() && may_bring_tensors(type)) {
      sees_all_tensors_ = false;
      sees_all_but_objects_ = sees_all_but_objects_ && is_object(*type);
    }
  }

  // In-place operators return the tensor they wrote.
  const AbstractValue* returned_operand(size_t output) const {
    const c10::AliasInfo* returned = schema_.returns()[output].alias_info();
    if (returned == nullptr || !returned->isWrite()) {
      return nullptr;
    }
    for (size_t i = 0; i < operands_.size(); ++i) {
      const c10::AliasInfo* argument = schema_.arguments()[i].alias_info();
      if (argument != nullptr && argument->isWrite() && argument->beforeSets() == returned->beforeSets()) {
        return &operands_[i];
      }
    }
    return nullptr;
  }

  std::optional<c10::Device> common_device() const { return common_device_of(tensors_); }
  bool all_strided() const { return are_strided(tensors_); }

  // Returns the device of a tensor that the operator makes on the meta device: the one given as an operand, or the
  // operands' own.
  std::optional<c10::Device> device_of_results() const {
    for (size_t i = 0; i < operands_.size(); ++i) {
      if (schema_.arguments()[i].real_type()->kind() == c10::TypeKind::DeviceObjType ||
          schema_.arguments()[i].type()->isSubtypeOf(*c10::OptionalType::create(c10::DeviceObjType::get()))) {
        if (operands_[i].as_constant() == nullptr) {
          return std::nullopt;
        }
        if (operands_[i].as_constant()->isDevice()) {
          return operands_[i].as_constant()->toDevice();
        }
      }
    }
    return tensors_.empty() ? std::optional(c10::Device(at::kCPU)) : common_device();
  }

  std::optional<std::vector<std::vector<Dim>>> sizes_by_rule() const {
    // LibTorch's function of argmax forgets `keepdim`. A row's function takes precedence.
    const bool has_function = !node_.op().result.sizes.empty();
    if (auto sizes = has_function ? std::nullopt : sizes_of_reduced(node_, operands_)) {
      return std::vector<std::vector<Dim>>(schema_.returns().size(), *sizes);
    }
    if (auto sizes = evaluate_shape_function(node_.op(), operands_, arithmetic_)) {
      return sizes;
    }
    if (auto sizes = sizes_of_joined(node_, operands_, arithmetic_)) {
      return std::vector<std::vector<Dim>>{*sizes};
    }
    if (auto sizes = sizes_of_indexed(node_, operands_, arithmetic_)) {
      return std::vector<std::vector<Dim>>{*sizes};
    }
    const ResultRule& rule = node_.op().result;
    if (rule.keeps_sizes && !tensors_.empty() && tensors_[0]->sizes) {
      return std::vector<std::vector<Dim>>(schema_.returns().size(), *tensors_[0]->sizes);
    }
    const bool is_pointwise = node_.op().has_tag(at::Tag::pointwise) || node_.op().layout == Layout::kPointwise ||
                              (!rule.dtypes.empty() && rule.dtypes[0] == ResultDtype::kPromoted);
    if (!is_pointwise || schema_.returns().size() != 1) {
      return probe_sizes(node_, operands_, arithmetic_);
    }
    std::vector<Dim> sizes;
    for (size_t i = 0; i < operands_.size(); ++i) {
      const TensorFacts* facts = operands_[i].as_tensor();
      if (facts == nullptr ? operands_[i].is_unknown() && is_tensor_type(schema_.arguments()[i].type()) : !facts->sizes) {
        return std::nullopt;
      }
      if (facts != nullptr) {
        sizes = broadcast(sizes, *facts->sizes, arithmetic_);
      }
    }
    return std::vector<std::vector<Dim>>{sizes};
  }

  TensorFacts facts_of_result(size_t output, const std::optional<MetaRun>& meta, const c10::IValue* example,
                              const std::vector<Dim>* sizes) const {
    TensorFacts facts;
    const bool is_tensor = example != nullptr && example->isTensor() && example->toTensor().defined();
    if (is_tensor) {
      facts = facts_of(example->toTensor());
      if (!meta->sizes_are_exact && meta->ranks_are_exact) {
        facts.sizes->assign(facts.sizes->size(), Dim::unknown());
      } else if (!meta->sizes_are_exact) {
        facts.sizes.reset();
      }
      if (!meta->strides_are_exact || !schema_tells_strides()) {
        facts.strides.reset();
      }
      if (example->toTensor().is_meta()) {
        facts.device = device_of_results();
      }
    } else if (const TensorFacts* viewed = viewed_operand(output)) {
      facts.dtype = viewed->dtype;
      facts.device = viewed->device;
      facts.layout = viewed->layout;
    }
    if (!is_tensor) {
      add_dtype_by_rule(output, facts);
      if (const auto made = facts_of_numbers(node_, operands_)) {
        facts.dtype = made->dtype;
        facts.layout = made->layout;
        facts.sizes = made->sizes;
        facts.device = device_of_results();
      }
    }
    facts.defined.reset();
    if (sizes != nullptr) {
      facts.sizes = *sizes;
    }
    facts.requires_grad = requires_grad_of_result(facts);
    facts.contiguous = result_is_contiguous();
    return facts;
  }

  bool result_is_contiguous() const {
    const auto all_operands_are = [this] {
      return sees_all_tensors_ && !tensors_.empty() &&
             std::ranges::all_of(tensors_, [](const TensorFacts* tensor) { return tensor->contiguous; });
    };
    switch (node_.op().layout) {
      case Layout::kUnknown:
      case Layout::kReduces: return false;
      case Layout::kPointwise:
      case Layout::kImages:
      case Layout::kContiguous: return all_operands_are();
      case Layout::kNew: {
        const Value* format = node_.named_input("memory_format");
        return format == nullptr || is_none(*format);
      }
    }
    return false;
  }

  // Returns the operand of a view whose other arguments are integers or tensors (`expand_as`). The result has its dtype and
  // device, whatever they are.
  const TensorFacts* viewed_operand(size_t output) const {
    const auto& arguments = schema_.arguments();
    const c10::AliasInfo* returned = schema_.returns()[output].alias_info();
    const c10::AliasInfo* argument = arguments.empty() ? nullptr : arguments[0].alias_info();
    if (returned == nullptr || argument == nullptr || returned->isWrite() || argument->isWrite() ||
        returned->isWildcardAfter() || returned->beforeSets() != argument->beforeSets()) {
      return nullptr;
    }
    const auto tells_sizes = [](const c10::Argument& other) {
      const c10::TypePtr type = other.type();
      return other.name() != "dtype" && (type->isSubtypeOf(*c10::OptionalType::create(c10::IntType::get())) ||
                                         type->isSubtypeOf(*c10::OptionalType::create(c10::ListType::ofInts())) ||
                                         type->kind() == c10::TypeKind::TensorType);
    };
    const bool tell_sizes = arguments.size() > 1 && std::all_of(arguments.begin() + 1, arguments.end(), tells_sizes);
    return tell_sizes ? operands_[0].as_tensor() : nullptr;
  }

  // Rules for operators that cannot run on meta tensors. Their results are on the operands' device.
  void add_dtype_by_rule(size_t output, TensorFacts& facts) const {
    const ResultRule& rule = node_.op().result;
    const auto has_dtype = [](const TensorFacts* tensor) { return tensor->dtype.has_value(); };
    if (output >= rule.dtypes.size() || tensors_.empty() || !sees_all_but_objects_ || !all_strided() ||
        !std::ranges::all_of(tensors_, has_dtype)) {
      return;
    }
    switch (rule.dtypes[output]) {
      case ResultDtype::kUnknown: return;
      case ResultDtype::kFirst: facts.dtype = tensors_[0]->dtype; break;
      case ResultDtype::kReal: facts.dtype = c10::toRealValueType(*tensors_[0]->dtype); break;
      case ResultDtype::kBool:  // On the CPU, the random mask of an empty tensor has the dtype of that.
        facts.dtype = node_.op().all_effects.random && common_device().value_or(at::kCPU).is_cpu()
                          ? std::nullopt
                          : std::optional(c10::kBool);
        break;
      case ResultDtype::kInt64: facts.dtype = c10::kLong; break;
      case ResultDtype::kPromoted: facts.dtype = promoted_dtype(); break;
      case ResultDtype::kFloating:
        facts.dtype = promoted_dtype();
        facts.dtype = facts.dtype && c10::isFloatingType(*facts.dtype) ? facts.dtype : std::nullopt;
        break;
      case ResultDtype::kIndices: facts.dtype = promoted_dtype_of_integers(); break;
    }
    facts.device = common_device();
    facts.layout = c10::kStrided;
  }

  // Returns the promoted dtype; nothing if it depends on the default one.
  std::optional<c10::ScalarType> promoted_dtype() const {
    PromotedDtype promoted;
    for (size_t i = 0; i < operands_.size(); ++i) {
      const c10::Argument& declared = schema_.arguments()[i];
      const TensorFacts* tensor = operands_[i].as_tensor();
      if (tensor != nullptr && tensor->is_wrapped_number) {
        promoted.add_number(*tensor->dtype);
      } else if (tensor != nullptr && declared.name() != "condition") {
        promoted.add_tensor(*tensor->dtype, tensor->sizes ? std::optional(tensor->sizes->empty()) : std::nullopt);
      } else if (declared.type()->kind() == c10::TypeKind::NumberType && declared.name() != "alpha") {
        promoted.add_number(*node_.input(i)->type());
      }
    }
    return promoted.may_be_default() ? std::nullopt : promoted.dtype();
  }

  // Returns nothing if there are none.
  std::optional<c10::ScalarType> promoted_dtype_of_integers() const {
    std::optional<c10::ScalarType> dtype;
    for (const TensorFacts* tensor : tensors_) {
      if (c10::isIntegralType(*tensor->dtype, /*includeBool=*/false)) {
        dtype = dtype ? c10::promoteTypes(*dtype, *tensor->dtype) : *tensor->dtype;
      }
    }
    return dtype;
  }

  bool schema_tells_strides() const {
    if (node_.op().has_tag(at::Tag::pointwise)) {
      return true;
    }
    return schema_.returns().size() == 1 && schema_.returns()[0].alias_info() != nullptr;
  }

  // If no operand requires a gradient, no result does.
  std::optional<bool> requires_grad_of_result(const TensorFacts& facts) const {
    if (facts.dtype && !c10::isFloatingType(*facts.dtype) && !c10::isComplexType(*facts.dtype)) {
      return false;
    }
    for (size_t i = 0; i < operands_.size(); ++i) {
      if (schema_.arguments()[i].name() == "requires_grad" && operands_[i].as_boolean() != false) {
        return std::nullopt;
      }
    }
    if (node_.op().layout == Layout::kNew) {
      return false;  // made of sizes and numbers alone
    }
    const auto requires_none = [](const TensorFacts* operand) { return operand->requires_grad == false; };
    return sees_all_tensors_ && std::ranges::all_of(tensors_, requires_none) ? std::optional(false) : std::nullopt;
  }

  const Node& node_;
  const c10::FunctionSchema& schema_;
  const AbstractValues& operands_;
  SizeArithmetic& arithmetic_;
  std::vector<const TensorFacts*> tensors_;  // tensors among the operands and in lists
  bool sees_all_tensors_ = true;
  bool sees_all_but_objects_ = true;  // tensors_ lacks at most those in objects, such as packed weights
};

}  // namespace

AbstractValues operator_facts(const Node& node, const AbstractValues& operands, SizeArithmetic& arithmetic) {
  return OperatorFacts(node, operands, arithmetic).run();
}

}  // namespace sconce
