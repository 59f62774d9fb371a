// SizeNode: what c10::SymInt and c10::SymBool hold for a trace.
#pragma once

#include "trace/sizes/symbolic_sizes.h"

#include <c10/core/SymNodeImpl.h>

#include <memory>
#include <string>

namespace sconce {

// A size, or the answer to a question about sizes. No method throws: LibTorch calls them in the middle of a user's run.
class SizeNode final : public c10::SymNodeImpl {
 public:
  using Sizes = std::shared_ptr<SymbolicSizes>;
  static c10::SymNode of_int(Sizes sizes, Dim dim, int64_t value);

  Dim dim() const { return dim_; }
  int64_t value() const { return value_; }  // in the run that is traced
  // Returns the number as one of floating point.
  FloatPtr float_number() const;
  double float_value() const { return kind_ == Kind::kFloat ? number_ : static_cast<double>(value_); }

  bool is_int() override { return kind_ == Kind::kInt; }
  bool is_bool() override { return kind_ == Kind::kBool; }
  bool is_float() override { return kind_ == Kind::kFloat; }

  c10::SymNode add(const c10::SymNode& other) override;
  c10::SymNode sub(const c10::SymNode& other) override;
  c10::SymNode mul(const c10::SymNode& other) override;
  c10::SymNode truediv(const c10::SymNode& other) override;
  c10::SymNode pow(const c10::SymNode& other) override;
  c10::SymNode floordiv(const c10::SymNode& other) override;
  c10::SymNode int_floordiv(const c10::SymNode& other) override { return floordiv(other); }
  c10::SymNode mod(const c10::SymNode& other) override;
  c10::SymNode neg() override;
  c10::SymNode ceil() override;
  c10::SymNode floor() override;
  c10::SymNode sym_min(const c10::SymNode& other) override;
  c10::SymNode sym_max(const c10::SymNode& other) override;
  c10::SymNode clone() override;

  c10::SymNode eq(const c10::SymNode& other) override;
  c10::SymNode ne(const c10::SymNode& other) override;
  c10::SymNode gt(const c10::SymNode& other) override;
  c10::SymNode lt(const c10::SymNode& other) override;
  c10::SymNode le(const c10::SymNode& other) override;
  c10::SymNode ge(const c10::SymNode& other) override;
  c10::SymNode sym_or(const c10::SymNode& other) override;
  c10::SymNode sym_and(const c10::SymNode& other) override;
  c10::SymNode sym_not() override;
  c10::SymNode sym_ite(const c10::SymNode& first, const c10::SymNode& second) override;

  c10::SymNode wrap_int(int64_t number) override;
  c10::SymNode wrap_float(double number) override;
  c10::SymNode wrap_bool(bool answer) override;
  c10::SymNode sym_float() override;

  // Each is a guard.
  int64_t guard_int(const char* file, int64_t line) override;
  bool guard_bool(const char* file, int64_t line) override;
  double guard_float(const char* file, int64_t line) override;
  // Not a guard: whether every run has it so.
  bool statically_known_true(const char* /*file*/, int64_t /*line*/) override { return !question_ && value_ != 0; }
  int64_t int_() override { return guard_int(__FILE__, __LINE__); }
  bool bool_() override { return guard_bool(__FILE__, __LINE__); }

  bool has_hint() override { return true; }
  std::string str() override;
  std::optional<int64_t> constant_int() override;
  std::optional<bool> constant_bool() override;
  std::optional<int64_t> maybe_as_int() override { return constant_int(); }

 private:
  enum class Kind : uint8_t { kInt, kBool, kFloat };
  // The comparison that a boolean stands for. Without one, the boolean is known.
  struct Question {
    SizeGuard::Relation relation;
    Dim a, b;
    FloatPtr float_a, float_b;  // in place of a and b; null for integers
    bool is_negated;
  };

  SizeNode(Sizes sizes, Kind kind) : sizes_(std::move(sizes)), kind_(kind) {}
  static const SizeNode& of(const c10::SymNode& node);
  c10::SymNode make_int(Dim dim, int64_t value) const { return of_int(sizes_, dim, value); }
  c10::SymNode make_float(FloatPtr number, double value) const;
  c10::SymNode compute(FloatOfSizes::Operation operation, const SizeNode& other, double value) const;
  c10::SymNode make_bool(std::optional<Question> question, bool answer) const;
  c10::SymNode compare(SizeGuard::Relation relation, const SizeNode& a, const SizeNode& b, bool is_negated) const;
  bool answer() const;  // a guard

  const Sizes sizes_;
  const Kind kind_;
  Dim dim_ = Dim::unknown();
  int64_t value_ = 0;  // kBool: 0 or 1
  FloatPtr float_;     // kFloat
  double number_ = 0;  // kFloat: in the run that is traced
  std::optional<Question> question_;
};

}  // namespace sconce
