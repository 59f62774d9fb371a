#include "trace/sizes/size_node.h"

#include "base/assert.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace sconce {
namespace {

using Operation = FloatOfSizes::Operation;
using Relation = SizeGuard::Relation;
using c10::SymNode;

}  // namespace

SymNode SizeNode::of_int(Sizes sizes, Dim dim, int64_t value) {
  auto node = c10::intrusive_ptr<SizeNode>::unsafe_steal_from_new(new SizeNode(std::move(sizes), Kind::kInt));
  node->dim_ = dim;
  node->value_ = value;
  return node;
}

SymNode SizeNode::make_float(FloatPtr number, double value) const {
  auto node = c10::intrusive_ptr<SizeNode>::unsafe_steal_from_new(new SizeNode(sizes_, Kind::kFloat));
  node->float_ = std::move(number);
  node->number_ = value;
  return node;
}

SymNode SizeNode::make_bool(std::optional<Question> question, bool answer) const {
  auto node = c10::intrusive_ptr<SizeNode>::unsafe_steal_from_new(new SizeNode(sizes_, Kind::kBool));
  node->question_ = question;
  node->value_ = answer ? 1 : 0;
  return node;
}

// Operands come from `wrap_int` and the like, or from the same trace.
const SizeNode& SizeNode::of(const SymNode& node) {
  const auto* found = dynamic_cast<const SizeNode*>(node.get());
  SCONCE_ASSERT(found != nullptr, "a size of another trace");
  return *found;
}

// ---- numbers ----------------------------------------------------------------------------------------------------------

FloatPtr SizeNode::float_number() const {
  if (kind_ == Kind::kFloat) {
    return float_;
  }
  FloatOfSizes number{dim_.is_known() ? Operation::kNumber : Operation::kSize};
  number.number = static_cast<double>(value_);
  number.size = dim_;
  return std::make_shared<const FloatOfSizes>(std::move(number));
}

SymNode SizeNode::compute(Operation operation, const SizeNode& other, double value) const {
  FloatOfSizes number{operation};
  number.a = float_number();
  number.b = other.float_number();
  const auto is_number = [](const FloatPtr& operand) { return operand->operation == Operation::kNumber; };
  if (is_number(number.a) && is_number(number.b)) {
    number = {Operation::kNumber, value};
  }
  return make_float(std::make_shared<const FloatOfSizes>(std::move(number)), value);
}

SymNode SizeNode::add(const SymNode& other) {
  const SizeNode& b = of(other);
  return is_float() ? compute(Operation::kAdd, b, float_value() + b.float_value())
                    : make_int(sizes_->arithmetic().add(dim_, b.dim_), value_ + b.value_);
}

SymNode SizeNode::sub(const SymNode& other) {
  const SizeNode& b = of(other);
  return is_float() ? compute(Operation::kSubtract, b, float_value() - b.float_value())
                    : make_int(sizes_->arithmetic().subtract(dim_, b.dim_), value_ - b.value_);
}

SymNode SizeNode::mul(const SymNode& other) {
  const SizeNode& b = of(other);
  return is_float() ? compute(Operation::kMultiply, b, float_value() * b.float_value())
                    : make_int(sizes_->arithmetic().multiply(dim_, b.dim_), value_ * b.value_);
}

SymNode SizeNode::truediv(const SymNode& other) {
  return compute(Operation::kDivide, of(other), float_value() / of(other).float_value());
}

SymNode SizeNode::floordiv(const SymNode& other) {
  const SizeNode& b = of(other);
  return b.value_ == 0 ? make_int(Dim::unknown(), 0)
                       : make_int(sizes_->arithmetic().floor_divide(dim_, b.dim_), floor_quotient(value_, b.value_));
}

SymNode SizeNode::mod(const SymNode& other) {
  const SizeNode& b = of(other);
  return b.value_ == 0
             ? make_int(Dim::unknown(), 0)
             : make_int(sizes_->arithmetic().remainder(dim_, b.dim_), value_ - floor_quotient(value_, b.value_) * b.value_);
}

SymNode SizeNode::neg() {
  if (!is_float()) {
    return make_int(sizes_->arithmetic().subtract(Dim::known(0), dim_), -value_);
  }
  return wrap_float(-1)->mul(clone());
}

// These are guards.
SymNode SizeNode::pow(const SymNode& other) {
  const double power = std::pow(guard_float(__FILE__, __LINE__), other->guard_float(__FILE__, __LINE__));
  return is_float() ? wrap_float(power) : wrap_int(static_cast<int64_t>(power));
}

SymNode SizeNode::ceil() { return wrap_int(static_cast<int64_t>(std::ceil(guard_float(__FILE__, __LINE__)))); }
SymNode SizeNode::floor() { return wrap_int(static_cast<int64_t>(std::floor(guard_float(__FILE__, __LINE__)))); }

SymNode SizeNode::sym_min(const SymNode& other) {
  const SizeNode& b = of(other);
  return make_int(sizes_->arithmetic().minimum(dim_, b.dim_), std::min(value_, b.value_));
}

SymNode SizeNode::sym_max(const SymNode& other) {
  const SizeNode& b = of(other);
  return make_int(sizes_->arithmetic().maximum(dim_, b.dim_), std::max(value_, b.value_));
}

SymNode SizeNode::clone() {
  switch (kind_) {
    case Kind::kInt: return make_int(dim_, value_);
    case Kind::kBool: return make_bool(question_, value_ != 0);
    case Kind::kFloat: break;
  }
  return make_float(float_, number_);
}

SymNode SizeNode::wrap_int(int64_t number) { return make_int(Dim::known(number), number); }
SymNode SizeNode::wrap_float(double number) {
  return make_float(std::make_shared<const FloatOfSizes>(FloatOfSizes{Operation::kNumber, number}), number);
}
SymNode SizeNode::wrap_bool(bool answer) { return make_bool(std::nullopt, answer); }
SymNode SizeNode::sym_float() { return make_float(float_number(), float_value()); }

// ---- questions --------------------------------------------------------------------------------------------------------

SymNode SizeNode::compare(Relation relation, const SizeNode& a, const SizeNode& b, bool is_negated) const {
  if (a.kind_ == Kind::kFloat || b.kind_ == Kind::kFloat) {
    const bool answer =
        relation == Relation::kEqual ? a.float_value() == b.float_value() : a.float_value() < b.float_value();
    return make_bool(Question{relation, a.dim_, b.dim_, a.float_number(), b.float_number(), is_negated},
                     answer != is_negated);
  }
  const bool answer = relation == Relation::kEqual ? a.value_ == b.value_ : a.value_ < b.value_;
  SizeArithmetic& arithmetic = sizes_->arithmetic();
  if (const auto known = relation == Relation::kEqual ? arithmetic.equal(a.dim_, b.dim_) : arithmetic.less(a.dim_, b.dim_)) {
    return make_bool(std::nullopt, *known != is_negated);
  }
  return make_bool(Question{relation, a.dim_, b.dim_, nullptr, nullptr, is_negated}, answer != is_negated);
}

SymNode SizeNode::eq(const SymNode& other) { return compare(Relation::kEqual, *this, of(other), false); }
SymNode SizeNode::ne(const SymNode& other) { return compare(Relation::kEqual, *this, of(other), true); }
SymNode SizeNode::lt(const SymNode& other) { return compare(Relation::kLess, *this, of(other), false); }
SymNode SizeNode::ge(const SymNode& other) { return compare(Relation::kLess, *this, of(other), true); }
SymNode SizeNode::gt(const SymNode& other) { return compare(Relation::kLess, of(other), *this, false); }
SymNode SizeNode::le(const SymNode& other) { return compare(Relation::kLess, of(other), *this, true); }

// One known operand may answer without a guard for the other.
SymNode SizeNode::sym_or(const SymNode& other) {
  const SizeNode& b = of(other);
  const bool is_known = (!question_ && value_ != 0) || (!b.question_ && b.value_ != 0);
  return make_bool(std::nullopt, is_known || answer() || b.answer());
}

SymNode SizeNode::sym_and(const SymNode& other) {
  const SizeNode& b = of(other);
  const bool is_refuted = (!question_ && value_ == 0) || (!b.question_ && b.value_ == 0);
  return make_bool(std::nullopt, !is_refuted && answer() && b.answer());
}

SymNode SizeNode::sym_not() {
  std::optional<Question> question = question_;
  if (question) {
    question->is_negated = !question->is_negated;
  }
  return make_bool(question, value_ == 0);
}

SymNode SizeNode::sym_ite(const SymNode& first, const SymNode& second) { return answer() ? first : second; }

// ---- guards -----------------------------------------------------------------------------------------------------------

bool SizeNode::answer() const {
  if (!question_) {
    return value_ != 0;
  }
  const bool found = (value_ != 0) != question_->is_negated;
  const bool decided = question_->float_a != nullptr
                           ? sizes_->decide(question_->relation, question_->float_a, question_->float_b, found)
                           : sizes_->decide(question_->relation, question_->a, question_->b, found);
  return decided != question_->is_negated;
}

int64_t SizeNode::guard_int(const char* /*file*/, int64_t /*line*/) {
  if (!dim_.is_known()) {
    sizes_->pin(dim_, value_);
  }
  return value_;
}

bool SizeNode::guard_bool(const char* /*file*/, int64_t /*line*/) { return answer(); }

double SizeNode::guard_float(const char* file, int64_t line) {
  if (kind_ != Kind::kFloat) {
    return static_cast<double>(guard_int(file, line));
  }
  if (float_->operation != Operation::kNumber) {
    sizes_->decide(Relation::kEqual, float_, of(wrap_float(number_)).float_, true);
  }
  return number_;
}

std::string SizeNode::str() {
  switch (kind_) {
    case Kind::kInt: return std::to_string(value_);
    case Kind::kBool: return value_ != 0 ? "True" : "False";
    case Kind::kFloat: break;
  }
  return std::to_string(number_);
}

std::optional<int64_t> SizeNode::constant_int() {
  return kind_ == Kind::kInt && dim_.is_known() ? std::optional(dim_.value()) : std::nullopt;
}

std::optional<bool> SizeNode::constant_bool() {
  return kind_ == Kind::kBool && !question_ ? std::optional(value_ != 0) : std::nullopt;
}

}  // namespace sconce
