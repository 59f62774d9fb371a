// SymbolicSizes: the sizes of a trace that are other numbers in later runs.
#pragma once

#include "ir/facts.h"
#include "shapes/size_arithmetic.h"

#include <c10/core/SymBool.h>
#include <c10/core/SymFloat.h>
#include <c10/core/SymInt.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace sconce {

// An assumption of a trace about its sizes.
struct SizeGuard {
  enum class Relation : uint8_t { kEqual, kLess };
  Relation relation;
  Dim a, b;
  bool holds;  // in the run that was traced
};

// A floating-point number that is computed from sizes.
struct FloatOfSizes {
  enum class Operation : uint8_t { kNumber, kSize, kAdd, kSubtract, kMultiply, kDivide };
  Operation operation;
  double number = 0;          // kNumber
  Dim size = Dim::unknown();  // kSize
  std::shared_ptr<const FloatOfSizes> a, b;
};
using FloatPtr = std::shared_ptr<const FloatOfSizes>;

// LibTorch's code computes with c10::SymInt. One of a trace stands for a polynomial over the trace's symbols, each of which
// is at least 2 in every run. A comparison that differs between runs is answered for this run, and becomes a guard. So does
// a read of a symbolic size as a plain number. Code that asks what cannot be followed gets this run's answer, and the trace
// a refusal.
//
// A trace uses it on one thread; `hold` and `evaluate` may run on any.
class SymbolicSizes : public std::enable_shared_from_this<SymbolicSizes> {
 public:
  // `values`: what the symbols are in this run. Symbol i is Dim::symbol(i + 1).
  explicit SymbolicSizes(std::vector<int64_t> values);

  const std::vector<int64_t>& values() const { return values_; }
  SizeArithmetic& arithmetic() { return arithmetic_; }

  // Returns an integer of LibTorch's for a size, which is `value` in this run.
  c10::SymInt sym_int(Dim dim, int64_t value);
  // Returns the size that such an integer is.
  static Dim dim_of(const c10::SymInt& number);
  // Returns what an integer is in this run, without a guard.
  static int64_t value_of(const c10::SymInt& number);
  // The same for a number of floating point.
  static FloatPtr float_of(const c10::SymFloat& number);
  static double value_of(const c10::SymFloat& number);

  // Answers a question for this run, of which `answer` is the answer. It may become a guard.
  bool decide(SizeGuard::Relation relation, Dim a, Dim b, bool answer);
  bool decide(SizeGuard::Relation relation, const FloatPtr& a, const FloatPtr& b, bool answer);
  // Assumes that the size is this number in every run.
  void pin(Dim dim, int64_t value) { decide(SizeGuard::Relation::kEqual, dim, Dim::known(value), true); }

  // Notes that an operator has a result whose sizes cannot be derived. The first one is kept, for the refusal.
  void note_unknown(const std::string& op);
  // Notes that the sizes cannot be followed. The first reason is kept.
  void refuse(const std::string& reason);
  void refuse_unknown();
  const std::string& refusal() const { return refusal_; }

  // Returns why a guard leaves a symbol with one number; empty if none does.
  std::string why_pinned() const;

  // Returns whether the guards hold where the symbols are these numbers.
  bool hold(const std::vector<int64_t>& values) const;
  // Returns what a size is there; nothing if it cannot be computed.
  std::optional<int64_t> evaluate(Dim dim, const std::vector<int64_t>& values) const;

 private:
  bool is_pinned(size_t symbol) const;
  std::optional<int64_t> evaluate(Dim dim, const SizeArithmetic::Replacements& numbers) const;
  std::optional<double> evaluate(const FloatOfSizes& number, const SizeArithmetic::Replacements& numbers) const;

  const std::vector<int64_t> values_;
  mutable std::mutex mutex_;  // of later runs, which compute with `arithmetic_`
  mutable SizeArithmetic arithmetic_;
  std::vector<SizeGuard> guards_;
  struct FloatGuard {
    SizeGuard::Relation relation;
    FloatPtr a, b;
    bool holds;
  };
  std::vector<FloatGuard> float_guards_;
  std::string first_unknown_;
  std::string refusal_;
};

}  // namespace sconce
