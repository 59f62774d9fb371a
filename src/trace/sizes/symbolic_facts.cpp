#include "trace/sizes/symbolic_facts.h"

#include "ir/constant_operands.h"
#include "shapes/operator_facts.h"
#include "trace/sizes/view_offset.h"
#include "trace/trace_key.h"
#include "trace/tracer.h"

#include <ATen/core/jit_type.h>
#include <ATen/ops/empty_strided.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace sconce {
namespace {

using Dims = std::vector<Dim>;

bool are_known(const AbstractValue& value) {
  const auto is_known = [](const Dim& dim) { return dim.is_known(); };
  if (const TensorFacts* facts = value.as_tensor()) {
    return facts->sizes && std::all_of(facts->sizes->begin(), facts->sizes->end(), is_known);
  }
  if (const AbstractValues* elements = value.as_sequence()) {
    return std::all_of(elements->begin(), elements->end(), are_known);
  }
  return value.is_integer() ? value.as_integer().is_known() : value.as_constant() != nullptr;
}

bool is_view(const Node& node) {
  const c10::AliasInfo* mark = node.schema()->returns()[0].alias_info();
  return mark != nullptr && !mark->isWrite();
}

// Returns whether a result may be an operand, or lie in its memory. Where an operator has several results, whose sizes its
// row gives, they share memory at most with each other.
bool may_return_operands(const Node& node) {
  return node.op().results_may_share_memory && (node.outputs().size() == 1 || node.op().result.sizes.empty());
}

bool is_one_of(const Node& node, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, node.kind().toQualString()) != names.end();
}

std::optional<Dims> dims_of(const AbstractValue& value) {
  if (value.as_sequence() == nullptr) {
    return std::nullopt;
  }
  Dims dims;
  for (const AbstractValue& element : *value.as_sequence()) {
    dims.push_back(element.as_integer());
  }
  return dims;
}

Dims contiguous_strides(const Dims& sizes, SizeArithmetic& arithmetic) {
  Dims strides(sizes.size(), Dim::known(1));
  for (size_t i = sizes.size(); i-- > 1;) {
    strides[i - 1] = arithmetic.multiply(strides[i], arithmetic.maximum(sizes[i], Dim::known(1)));
  }
  return strides;
}

// Returns the strides of a view with other sizes. LibTorch's computeStride groups dims of the base that are contiguous with
// each other; each group becomes one or more dims of the view. Returns nothing if the symbols do not prove the grouping.
std::optional<Dims> strides_of_reshape(const Dims& base_sizes, const Dims& base_strides, const Dims& sizes,
                                       SizeArithmetic& arithmetic) {
  const auto at_least_one = [&](Dim dim) { return arithmetic.maximum(dim, Dim::known(1)); };
  Dims strides(sizes.size(), Dim::unknown());
  size_t next = sizes.size();  // the dims from here on have strides
  size_t end = base_sizes.size();
  while (end > 0) {
    // The dims [begin, end) of the base lie without a gap.
    size_t begin = end - 1;
    Dim elements = base_sizes[begin];
    Dim extent = arithmetic.multiply(at_least_one(base_sizes[begin]), base_strides[begin]);
    while (begin > 0 && (base_strides[begin - 1] == extent || base_sizes[begin - 1] == Dim::known(1))) {
      --begin;
      elements = arithmetic.multiply(elements, base_sizes[begin]);
      extent = arithmetic.multiply(extent, at_least_one(base_sizes[begin]));
    }
    Dim stride = base_strides[end - 1];
    Dim covered = Dim::known(1);
    while (next > 0 && (covered != elements || sizes[next - 1] == Dim::known(1))) {
      --next;
      strides[next] = stride;
      stride = arithmetic.multiply(stride, at_least_one(sizes[next]));
      covered = arithmetic.multiply(covered, sizes[next]);
    }
    if (covered != elements) {
      return std::nullopt;
    }
    end = begin;
  }
  return next == 0 ? std::optional(strides) : std::nullopt;
}

// Returns whether aten::squeeze removes the dim of a tensor of `rank` dims where it has one element.
bool may_go(const AbstractValues& operands, size_t dim, size_t rank) {
  if (operands.size() < 2) {
    return true;
  }
  const auto names_it = [&](const AbstractValue& number) {
    return !number.as_known_integer() || position_among(rank, *number.as_known_integer()) == dim;
  };
  const AbstractValues* numbers = operands[1].as_sequence();
  return numbers != nullptr ? std::any_of(numbers->begin(), numbers->end(), names_it) : names_it(operands[1]);
}

// The strides of a view are linear in those of its base. Returns the factors by result dim, then by dim of the base.
std::vector<std::vector<int64_t>> stride_factors(const Node& node, const std::vector<c10::IValue>& arguments, size_t part) {
  std::vector<std::vector<int64_t>> factors;
  const at::Tensor& base = arguments[0].toTensor();
  for (int64_t i = 0; i < base.dim(); ++i) {
    std::vector<int64_t> unit(static_cast<size_t>(base.dim()), 0);
    unit[static_cast<size_t>(i)] = 1;
    torch::jit::Stack stack = arguments;
    stack[0] = at::empty_strided(base.sizes(), unit, base.options().device(at::kMeta));
    node.op().registered->getOperation()(stack);
    const at::Tensor view = stack[0].isTensor() ? stack[0].toTensor() : stack[0].toTensorVector()[part];
    factors.resize(static_cast<size_t>(view.dim()));
    for (size_t d = 0; d < factors.size(); ++d) {
      factors[d].push_back(view.strides()[d]);
    }
  }
  return factors;
}

}  // namespace

std::optional<Dims> dense_strides(const Dims& sizes, const at::Tensor& like, SizeArithmetic& arithmetic) {
  std::vector<size_t> outer_first(sizes.size());
  std::iota(outer_first.begin(), outer_first.end(), size_t{0});
  // A dim with one element comes inside a longer dim with the same stride.
  std::ranges::stable_sort(outer_first, [&](size_t a, size_t b) {
    return like.strides()[a] != like.strides()[b] ? like.strides()[a] > like.strides()[b]
                                                  : like.sizes()[a] != 1 && like.sizes()[b] == 1;
  });
  Dims strides(sizes.size(), Dim::known(1));
  Dim elements = Dim::known(1);
  int64_t real_elements = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    const size_t dim = outer_first[i];
    if (like.strides()[dim] != real_elements) {
      return std::nullopt;
    }
    strides[dim] = elements;
    elements = arithmetic.multiply(elements, arithmetic.maximum(sizes[dim], Dim::known(1)));
    real_elements *= std::max<int64_t>(like.sizes()[dim], 1);
  }
  return strides;
}

TensorFacts facts_of_sizes(const at::Tensor& real, Dims sizes, SizeArithmetic& arithmetic) {
  TensorFacts facts = facts_without_autograd(real);
  facts.contiguous = false;
  facts.sizes = std::move(sizes);
  facts.strides = dense_strides(*facts.sizes, real, arithmetic);
  return facts;
}

std::vector<std::optional<TensorFacts>> facts_by_pattern(std::span<const at::Tensor> tensors, const SizePattern& pattern,
                                                         size_t first, SizeArithmetic& arithmetic) {
  const auto take_dims = [&](const at::Tensor& tensor) {
    Dims dims;
    for (int64_t i = 0; i < tensor.dim(); ++i) {
      dims.push_back(pattern.dim(first++, arithmetic));
    }
    return dims;
  };
  std::vector<std::optional<TensorFacts>> all;
  for (const at::Tensor& tensor : tensors) {
    all.emplace_back();
    if (tensor.defined() && tensor.layout() == c10::kStrided) {
      all.back() = facts_of_sizes(tensor, take_dims(tensor), arithmetic);
      if (has_gaps(tensor)) {
        all.back()->strides = take_dims(tensor);
      }
    }
  }
  return all;
}

Dims agreeing_dims(const Dims& found, at::IntArrayRef real, SizeArithmetic& arithmetic) {
  Dims dims(real.size(), Dim::unknown());
  for (size_t i = 0; i < dims.size() && found.size() == dims.size(); ++i) {
    if (arithmetic.example(found[i]) == real[i]) {
      dims[i] = found[i];
    }
  }
  return dims;
}

void SymbolicFacts::set_tensor(const Value& value, TensorFacts facts, const at::Tensor& real) {
  known_[&value] = AbstractValue::tensor(std::move(facts));
  offsets_[&value] = {Dim::known(real.layout() == c10::kStrided ? real.storage_offset() : 0)};
}

void SymbolicFacts::set_number(const Value& value, Dim dim) { known_[&value] = AbstractValue::integer(dim); }

void SymbolicFacts::set_part(const Value& part, const Value& list, size_t index) {
  const auto found = known_.find(&list);
  const AbstractValues* elements = found != known_.end() ? found->second.as_sequence() : nullptr;
  if (elements != nullptr && index < elements->size()) {
    known_[&part] = (*elements)[index];
    offsets_[&part] = {offsets_.at(&list)[index]};
  }
}

const TensorFacts* SymbolicFacts::of(const Value& value) const {
  const auto found = known_.find(&value);
  return found != known_.end() ? found->second.as_tensor() : nullptr;
}

std::shared_ptr<const SymbolicGeometry> SymbolicFacts::geometry_of(const Value& value, const at::Tensor& real) const {
  const TensorFacts* facts = of(value);
  if (real.layout() != c10::kStrided) {
    return nullptr;
  }
  auto geometry = std::make_shared<SymbolicGeometry>();
  bool is_symbolic = false;
  const auto numbers_of = [&](const std::optional<Dims>* dims, at::IntArrayRef numbers, std::vector<c10::SymInt>& all) {
    for (size_t i = 0; i < numbers.size(); ++i) {
      const Dim dim = dims != nullptr && *dims ? (**dims)[i] : Dim::unknown();
      is_symbolic = is_symbolic || !dim.is_known();
      all.push_back(sizes_->sym_int(dim, numbers[i]));
    }
  };
  numbers_of(facts != nullptr ? &facts->sizes : nullptr, real.sizes(), geometry->sizes);
  numbers_of(facts != nullptr ? &facts->strides : nullptr, real.strides(), geometry->strides);
  const auto offset = offsets_.find(&value);
  const Dim begin = offset != offsets_.end() ? offset->second.front() : Dim::unknown();
  is_symbolic = is_symbolic || !begin.is_known();
  geometry->offset = sizes_->sym_int(begin, real.storage_offset());
  return is_symbolic ? geometry : nullptr;
}

TensorFacts SymbolicFacts::facts_for_compile(const Value& value, const at::Tensor& real) const {
  TensorFacts facts = facts_without_autograd(real);
  const TensorFacts* found = of(value);
  const bool is_contiguous = found != nullptr && found->strides && found->sizes &&
                             *found->strides == contiguous_strides(*found->sizes, sizes_->arithmetic());
  const auto without_expressions = [&](const std::optional<Dims>& dims, size_t rank) {
    Dims kept(rank, Dim::unknown());
    for (size_t i = 0; dims && i < rank; ++i) {
      const bool is_expression = (*dims)[i].is_symbol() && !sizes_->arithmetic().is_given((*dims)[i]);
      kept[i] = is_expression ? Dim::unknown() : (*dims)[i];
    }
    return kept;
  };
  facts.sizes = without_expressions(found != nullptr ? found->sizes : std::nullopt, static_cast<size_t>(real.dim()));
  facts.strides = without_expressions(found != nullptr ? found->strides : std::nullopt, static_cast<size_t>(real.dim()));
  facts.contiguous = is_contiguous;
  return facts;
}

AbstractValue SymbolicFacts::operand(const Value& value) const {
  if (const auto found = known_.find(&value); found != known_.end()) {
    return found->second;
  }
  if (const auto* constant = value.constant()) {
    return AbstractValue::constant(*constant);
  }
  if (value.node()->opcode() == Opcode::kListConstruct) {
    AbstractValues elements;
    for (const Value* element : value.node()->inputs()) {
      elements.push_back(operand(*element));
    }
    return AbstractValue::sequence(std::move(elements));
  }
  return {};
}

void SymbolicFacts::guard_structure(const Call& call, const std::vector<c10::IValue>& results) const {
  const auto is_list = [](const c10::IValue& value) { return value.isList(); };
  if (call.node.op().cuts) {
    guard_count_of_parts(call.node, call.operands, call.parts, *sizes_);
  } else if (std::any_of(results.begin(), results.end(), is_list) &&
             std::none_of(call.arguments.begin(), call.arguments.end(), is_list)) {
    sizes_->refuse(std::string(call.node.kind().toQualString()) + ": how many tensors it returns may differ between runs");
  }
  if (!call.node.op().result.rank_depends_on_sizes) {
    return;
  }
  const at::IntArrayRef reals = call.arguments[0].toTensor().sizes();
  const TensorFacts* base = call.operands[0].as_tensor();
  for (size_t dim = 0; dim < reals.size(); ++dim) {
    if (may_go(call.operands, dim, reals.size())) {
      const Dim size = base != nullptr && base->sizes ? (*base->sizes)[dim] : Dim::unknown();
      sizes_->decide(SizeGuard::Relation::kEqual, size, Dim::known(1), reals[dim] == 1);
    }
  }
}

AbstractValue SymbolicFacts::result(const Call& call, const AbstractValue& found, const at::Tensor& real,
                                    size_t part) const {
  TensorFacts facts = facts_without_autograd(real);
  facts.forget_strides();
  if (!call.is_of_known_sizes) {
    const TensorFacts* derived = found.as_tensor();
    const auto viewed = call.node.op().cuts ? sizes_of_part(call.node, call.operands, part, call.parts, sizes_->arithmetic())
                                            : sizes_of_slice(call.node, call.operands, *sizes_);
    const Dims sizes = viewed ? *viewed : derived != nullptr && derived->sizes ? *derived->sizes : Dims();
    facts.sizes = agreeing_dims(sizes, real.sizes(), sizes_->arithmetic());
  }
  if (std::any_of(facts.sizes->begin(), facts.sizes->end(), [](const Dim& dim) { return dim.is_unknown(); })) {
    sizes_->note_unknown(call.node.kind().toQualString());
  }
  facts.strides = strides_of(call, *facts.sizes, real, part);
  return AbstractValue::tensor(std::move(facts));
}

Dim SymbolicFacts::offset_of_result(const Call& call, const at::Tensor& real, size_t part) const {
  if (real.layout() != c10::kStrided || (!is_view(call.node) && !may_return_operands(call.node))) {
    return Dim::known(real.layout() == c10::kStrided ? real.storage_offset() : 0);
  }
  const auto base = offsets_.find(call.node.input(0));
  const bool has_base = base != offsets_.end() && call.arguments[0].isTensor() && base->second.size() == 1;
  const Dim begin = has_base ? base->second.front() : Dim::unknown();
  const bool moves = !has_base || real.storage_offset() != call.arguments[0].toTensor().storage_offset();
  const Dim offset = view_offset(call.node, call.operands, begin, part, moves, *sizes_);
  return sizes_->arithmetic().example(offset) == real.storage_offset() ? offset : Dim::unknown();
}

std::optional<Dims> SymbolicFacts::strides_of(const Call& call, const Dims& sizes, const at::Tensor& real,
                                              size_t part) const {
  if (real.layout() != c10::kStrided) {
    return std::nullopt;
  }
  SizeArithmetic& arithmetic = sizes_->arithmetic();
  std::optional<Dims> strides;
  const bool is_reshape = is_one_of(call.node, {"aten::view", "aten::_unsafe_view"});
  if (!is_view(call.node) && !is_reshape) {
    strides = may_return_operands(call.node) ? std::nullopt : dense_strides(sizes, real, arithmetic);
  } else if (is_one_of(call.node, {"aten::as_strided", "aten::_reshape_alias"})) {
    strides = dims_of(call.operands[2]);
  } else if (const TensorFacts* base = call.operands[0].as_tensor(); base == nullptr || !base->strides || !base->sizes) {
    return std::nullopt;
  } else if (is_reshape) {
    const bool is_whole = *base->strides == contiguous_strides(*base->sizes, arithmetic);
    strides = is_whole ? contiguous_strides(sizes, arithmetic)
                       : strides_of_reshape(*base->sizes, *base->strides, sizes, arithmetic);
  } else if (is_one_of(call.node, {"aten::unsqueeze"}) && call.operands[1].as_known_integer()) {
    // The stride of the new dim is that of all that lies in the next one, which is no multiple of strides.
    const int64_t number = *call.operands[1].as_known_integer();
    const auto dim = static_cast<size_t>(number < 0 ? number + real.dim() : number);
    strides = *base->strides;
    const bool is_last = dim >= strides->size();
    strides->insert(strides->begin() + static_cast<std::ptrdiff_t>(std::min(dim, strides->size())),
                    is_last ? Dim::known(1) : arithmetic.multiply((*base->sizes)[dim], (*base->strides)[dim]));
  } else {
    const auto factors = stride_factors(call.node, call.arguments, part);
    strides.emplace(sizes.size(), Dim::known(0));
    for (size_t i = 0; i < factors.size() && i < sizes.size(); ++i) {
      for (size_t j = 0; j < factors[i].size(); ++j) {
        (*strides)[i] = arithmetic.add((*strides)[i], arithmetic.multiply((*base->strides)[j], Dim::known(factors[i][j])));
      }
    }
  }
  return strides && strides->size() == sizes.size() ? std::optional(agreeing_dims(*strides, real.strides(), arithmetic))
                                                    : std::nullopt;
}

void SymbolicFacts::derive(const Node& node, const std::vector<c10::IValue>& arguments,
                           const std::vector<c10::IValue>& results) {
  const PausedTracing paused;
  Call call{node, {}, arguments, true};
  for (const Value* input : node.inputs()) {
    call.operands.push_back(operand(*input));
    call.is_of_known_sizes = call.is_of_known_sizes && are_known(call.operands.back());
  }
  for (const c10::IValue& each : results) {
    call.parts = each.isTensorList() ? each.toTensorVector().size() : call.parts;
  }
  if (!call.is_of_known_sizes) {
    guard_structure(call, results);
  }
  const AbstractValues found = operator_facts(node, call.operands, sizes_->arithmetic());
  for (size_t i = 0; i < results.size(); ++i) {
    const AbstractValue derived = i < found.size() ? found[i] : AbstractValue();
    if (results[i].isTensor() && results[i].toTensor().defined()) {
      known_[node.output(i)] = result(call, derived, results[i].toTensor(), 0);
      offsets_[node.output(i)] = {offset_of_result(call, results[i].toTensor(), 0)};
    } else if (results[i].isTensorList()) {
      const auto reals = results[i].toTensorVector();
      const AbstractValues* elements = derived.as_sequence();
      AbstractValues parts;
      std::vector<Dim>& offsets = offsets_[node.output(i)];
      for (size_t part = 0; part < reals.size(); ++part) {
        const bool has_part = elements != nullptr && elements->size() == reals.size();
        parts.push_back(result(call, has_part ? (*elements)[part] : AbstractValue(), reals[part], part));
        offsets.push_back(offset_of_result(call, reals[part], part));
      }
      known_[node.output(i)] = AbstractValue::sequence(std::move(parts));
    }
  }
}

}  // namespace sconce
