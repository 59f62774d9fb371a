#include "trace/sizes/symbolic_sizes.h"

#include "trace/sizes/size_node.h"

#include <algorithm>
#include <utility>

namespace sconce {

SymbolicSizes::SymbolicSizes(std::vector<int64_t> values)
    : values_(std::move(values)), arithmetic_(static_cast<int64_t>(values_.size())) {
  for (size_t i = 0; i < values_.size(); ++i) {
    const Dim symbol = Dim::symbol(static_cast<int64_t>(i + 1));
    arithmetic_.set_at_least(symbol, 2);
    arithmetic_.set_example(symbol, values_[i]);
  }
}

c10::SymInt SymbolicSizes::sym_int(Dim dim, int64_t value) {
  return dim.is_known() ? c10::SymInt(dim.value()) : c10::SymInt(SizeNode::of_int(shared_from_this(), dim, value));
}

Dim SymbolicSizes::dim_of(const c10::SymInt& number) {
  if (const auto known = number.maybe_as_int()) {
    return Dim::known(*known);
  }
  const auto* node = dynamic_cast<const SizeNode*>(number.toSymNodeImplUnowned());
  return node != nullptr ? node->dim() : Dim::unknown();
}

int64_t SymbolicSizes::value_of(const c10::SymInt& number) {
  const auto* node = number.is_heap_allocated() ? dynamic_cast<const SizeNode*>(number.toSymNodeImplUnowned()) : nullptr;
  return node != nullptr ? node->value() : number.expect_int();
}

FloatPtr SymbolicSizes::float_of(const c10::SymFloat& number) {
  const c10::SymNode symbolic = number.is_symbolic() ? number.toSymNodeImpl() : nullptr;
  const auto* node = dynamic_cast<const SizeNode*>(symbolic.get());
  return node != nullptr
             ? node->float_number()
             : std::make_shared<const FloatOfSizes>(FloatOfSizes{FloatOfSizes::Operation::kNumber, value_of(number)});
}

double SymbolicSizes::value_of(const c10::SymFloat& number) {
  const c10::SymNode symbolic = number.is_symbolic() ? number.toSymNodeImpl() : nullptr;
  const auto* node = dynamic_cast<const SizeNode*>(symbolic.get());
  return node != nullptr ? node->float_value() : number.expect_float();
}

bool SymbolicSizes::decide(SizeGuard::Relation relation, const FloatPtr& a, const FloatPtr& b, bool answer) {
  float_guards_.push_back({relation, a, b, answer});
  return answer;
}

bool SymbolicSizes::decide(SizeGuard::Relation relation, Dim a, Dim b, bool answer) {
  const auto known = relation == SizeGuard::Relation::kEqual ? arithmetic_.equal(a, b) : arithmetic_.less(a, b);
  if (known) {
    return *known;
  }
  if (a.is_unknown() || b.is_unknown()) {
    refuse_unknown();
    return answer;
  }
  const auto is_same = [&](const SizeGuard& guard) { return guard.relation == relation && guard.a == a && guard.b == b; };
  if (std::none_of(guards_.begin(), guards_.end(), is_same)) {
    guards_.push_back({relation, a, b, answer});
  }
  return answer;
}

void SymbolicSizes::note_unknown(const std::string& op) {
  if (first_unknown_.empty()) {
    first_unknown_ = op;
  }
}

void SymbolicSizes::refuse_unknown() {
  refuse("code asks for a size that is no expression of the inputs' sizes, as far as is known; the first such size is of " +
         (first_unknown_.empty() ? "host code's results" : "a result of " + first_unknown_));
}

void SymbolicSizes::refuse(const std::string& reason) {
  if (refusal_.empty()) {
    refusal_ = reason;
  }
}

bool SymbolicSizes::is_pinned(size_t symbol) const {
  const Dim dim = Dim::symbol(static_cast<int64_t>(symbol + 1));
  const auto is_size = [&](const FloatPtr& number) {
    return number->operation == FloatOfSizes::Operation::kSize && number->size == dim;
  };
  const auto is_number = [](const FloatPtr& number) { return number->operation == FloatOfSizes::Operation::kNumber; };
  return std::any_of(guards_.begin(), guards_.end(),
                     [&](const SizeGuard& guard) {
                       return guard.relation == SizeGuard::Relation::kEqual && guard.holds &&
                              ((guard.a == dim && guard.b.is_known()) || (guard.b == dim && guard.a.is_known()));
                     }) ||
         std::any_of(float_guards_.begin(), float_guards_.end(), [&](const FloatGuard& guard) {
           return guard.relation == SizeGuard::Relation::kEqual && guard.holds &&
                  ((is_size(guard.a) && is_number(guard.b)) || (is_size(guard.b) && is_number(guard.a)));
         });
}

std::string SymbolicSizes::why_pinned() const {
  for (size_t i = 0; i < values_.size(); ++i) {
    if (is_pinned(i)) {
      return "code reads a size as a plain number, which is " + std::to_string(values_[i]);
    }
  }
  return {};
}

std::optional<int64_t> SymbolicSizes::evaluate(Dim dim, const SizeArithmetic::Replacements& numbers) const {
  const Dim found = dim.is_unknown() ? dim : arithmetic_.replaced(dim, numbers);
  return found.is_known() ? std::optional(found.value()) : std::nullopt;
}

std::optional<double> SymbolicSizes::evaluate(const FloatOfSizes& number,
                                              const SizeArithmetic::Replacements& numbers) const {
  using Operation = FloatOfSizes::Operation;
  if (number.operation == Operation::kNumber) {
    return number.number;
  }
  if (number.operation == Operation::kSize) {
    const auto size = evaluate(number.size, numbers);
    return size ? std::optional(static_cast<double>(*size)) : std::nullopt;
  }
  const auto a = evaluate(*number.a, numbers);
  const auto b = evaluate(*number.b, numbers);
  if (!a || !b) {
    return std::nullopt;
  }
  switch (number.operation) {
    case Operation::kAdd: return *a + *b;
    case Operation::kSubtract: return *a - *b;
    case Operation::kMultiply: return *a * *b;
    default: return *a / *b;
  }
}

namespace {

SizeArithmetic::Replacements replacements_of(const std::vector<int64_t>& values) {
  SizeArithmetic::Replacements numbers;
  for (size_t i = 0; i < values.size(); ++i) {
    numbers.emplace(static_cast<int64_t>(i + 1), Dim::known(values[i]));
  }
  return numbers;
}

}  // namespace

std::optional<int64_t> SymbolicSizes::evaluate(Dim dim, const std::vector<int64_t>& values) const {
  if (dim.is_known()) {
    return dim.value();
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  return evaluate(dim, replacements_of(values));
}

bool SymbolicSizes::hold(const std::vector<int64_t>& values) const {
  if (guards_.empty() && float_guards_.empty()) {
    return true;
  }
  const SizeArithmetic::Replacements numbers = replacements_of(values);
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto holds = [](const auto& guard, auto a, auto b) {
    return a && b && (guard.relation == SizeGuard::Relation::kEqual ? *a == *b : *a < *b) == guard.holds;
  };
  return std::all_of(
             guards_.begin(), guards_.end(),
             [&](const SizeGuard& guard) { return holds(guard, evaluate(guard.a, numbers), evaluate(guard.b, numbers)); }) &&
         std::all_of(float_guards_.begin(), float_guards_.end(), [&](const FloatGuard& guard) {
           return holds(guard, evaluate(*guard.a, numbers), evaluate(*guard.b, numbers));
         });
}

}  // namespace sconce
