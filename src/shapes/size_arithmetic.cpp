#include "shapes/size_arithmetic.h"

#include <algorithm>

namespace sconce {
namespace {

constexpr int64_t kMaxSize = int64_t{1} << 48;  // a dim larger than any memory

std::optional<int64_t> calculate(bool is_divide, std::optional<int64_t> a, std::optional<int64_t> b) {
  if (!a || !b || *b == 0 || *b == -1) {
    return std::nullopt;
  }
  const int64_t quotient = floor_quotient(*a, *b);
  return is_divide ? quotient : *a - quotient * *b;
}

}  // namespace

// ---- polynomials ------------------------------------------------------------------------------------------------------

SizeArithmetic::Polynomial SizeArithmetic::polynomial_of(Dim dim) {
  if (dim.is_known()) {
    return dim.value() == 0 ? Polynomial{} : Polynomial{{{}, dim.value()}};
  }
  const auto made = polynomials_.find(dim.value());
  return made != polynomials_.end() ? made->second : Polynomial{{{atom_id(Operation::kGiven, dim, Dim::known(0))}, 1}};
}

Dim SizeArithmetic::dim_of(const std::optional<Polynomial>& polynomial) {
  if (!polynomial) {
    return Dim::unknown();
  }
  if (polynomial->empty()) {
    return Dim::known(0);
  }
  const auto& [monomial, coefficient] = *polynomial->begin();
  if (polynomial->size() == 1 && monomial.empty()) {
    return Dim::known(coefficient);
  }
  if (polynomial->size() == 1 && monomial.size() == 1 && coefficient == 1 &&
      atoms_[monomial[0]].operation == Operation::kGiven) {
    return atoms_[monomial[0]].a;
  }
  const auto [entry, is_new] = symbols_.try_emplace(*polynomial, next_symbol_);
  if (is_new) {
    polynomials_.emplace(next_symbol_++, *polynomial);
  }
  return Dim::symbol(entry->second);
}

SizeArithmetic::AtomId SizeArithmetic::atom_id(Operation operation, Dim a, Dim b) {
  const auto key = std::tuple(operation, a.is_known(), a.value(), b.is_known(), b.value());
  if (const auto found = atom_ids_.find(key); found != atom_ids_.end()) {
    return found->second;
  }
  const auto low = [&]() -> int64_t {
    const auto found = lows_.find(a.value());
    return found == lows_.end() ? 0 : found->second;
  };
  const Range range =
      operation == Operation::kGiven ? Range{low(), kMaxSize} : range_of(operation, range_of(a), range_of(b));
  atoms_.push_back({operation, a, b, range, example_of(operation, a, b)});
  const auto id = static_cast<AtomId>(atoms_.size() - 1);
  atom_ids_.emplace(key, id);
  return id;
}

Dim SizeArithmetic::atom(Operation operation, Dim a, Dim b) { return dim_of(Polynomial{{{atom_id(operation, a, b)}, 1}}); }

// ---- operations -------------------------------------------------------------------------------------------------------

Dim SizeArithmetic::add(Dim a, Dim b) {
  return a.is_unknown() || b.is_unknown() ? Dim::unknown() : dim_of(sum(polynomial_of(a), polynomial_of(b), 1));
}

Dim SizeArithmetic::subtract(Dim a, Dim b) {
  return a.is_unknown() || b.is_unknown() ? Dim::unknown() : dim_of(sum(polynomial_of(a), polynomial_of(b), -1));
}

Dim SizeArithmetic::multiply(Dim a, Dim b) {
  if (a == Dim::known(0) || b == Dim::known(0)) {
    return Dim::known(0);
  }
  return a.is_unknown() || b.is_unknown() ? Dim::unknown() : dim_of(product(polynomial_of(a), polynomial_of(b)));
}

Dim SizeArithmetic::floor_divide(Dim a, Dim b) {
  if (a.is_unknown() || b.is_unknown() || b == Dim::known(0) || b == Dim::known(-1)) {
    return Dim::unknown();
  }
  if (a.is_known() && b.is_known()) {
    return Dim::known(*calculate(true, a.value(), b.value()));
  }
  const Polynomial dividend = polynomial_of(a);
  if (auto quotient = exact_quotient(dividend, polynomial_of(b))) {
    return dim_of(quotient);
  }
  if (!b.is_known() || b.value() < 0) {
    return atom(Operation::kFloorDivide, a, b);
  }
  // Multiples of the divisor are taken out, and the number is split: (4x + y + 5)//4 = x + 1 + (y + 1)//4.
  Polynomial whole;
  Polynomial rest;
  for (const auto& [monomial, coefficient] : dividend) {
    const int64_t quotient = floor_quotient(coefficient, b.value());
    const int64_t left = coefficient - quotient * b.value();
    const bool comes_out = monomial.empty() || left == 0;
    if (comes_out && quotient != 0) {
      whole.emplace(monomial, quotient);
    }
    if (!comes_out || left != 0) {
      rest.emplace(monomial, comes_out ? left : coefficient);
    }
  }
  Dim inner = dim_of(rest);
  if (inner.is_known()) {
    return dim_of(whole);  // a number less than the divisor is left
  }
  // (x//3)//2 = x//6
  Dim divisor = b;
  if (rest.size() == 1 && rest.begin()->first.size() == 1 && rest.begin()->second == 1) {
    const Atom& nested = atoms_[rest.begin()->first[0]];
    if (nested.operation == Operation::kFloorDivide && nested.b.is_known() && nested.b.value() > 0) {
      const auto both = checked_multiply(nested.b.value(), b.value());
      if (!both) {
        return Dim::unknown();
      }
      inner = nested.a;
      divisor = Dim::known(*both);
    }
  }
  return add(dim_of(whole), atom(Operation::kFloorDivide, inner, divisor));
}

Dim SizeArithmetic::remainder(Dim a, Dim b) {
  if (a.is_unknown() || b.is_unknown() || b == Dim::known(0) || b == Dim::known(-1)) {
    return Dim::unknown();
  }
  if (a.is_known() && b.is_known()) {
    return Dim::known(*calculate(false, a.value(), b.value()));
  }
  return exact_quotient(polynomial_of(a), polynomial_of(b)) ? Dim::known(0) : atom(Operation::kRemainder, a, b);
}

Dim SizeArithmetic::maximum(Dim a, Dim b) {
  if (a.is_unknown() || b.is_unknown()) {
    return Dim::unknown();
  }
  const auto a_is_less = less(a, b);
  if (a_is_less || equal(a, b) == true) {
    return a_is_less == true ? b : a;
  }
  return a.value() < b.value() ? atom(Operation::kMaximum, a, b) : atom(Operation::kMaximum, b, a);
}

Dim SizeArithmetic::minimum(Dim a, Dim b) {
  if (a.is_unknown() || b.is_unknown()) {
    return Dim::unknown();
  }
  const auto a_is_less = less(a, b);
  if (a_is_less || equal(a, b) == true) {
    return a_is_less == true ? a : b;
  }
  return a.value() < b.value() ? atom(Operation::kMinimum, a, b) : atom(Operation::kMinimum, b, a);
}

Dim SizeArithmetic::if_less(Dim x, Dim y, Dim a, Dim b) {
  if ((a == x && b == y) || (a == y && b == x)) {
    return a == x ? minimum(x, y) : maximum(x, y);
  }
  return choice(less(x, y), Operation::kIsLess, x, y, a, b);
}

Dim SizeArithmetic::if_equal(Dim x, Dim y, Dim a, Dim b) {
  if ((a == x && b == y) || (a == y && b == x)) {
    return b;  // where they are equal, `a` is the same size
  }
  return choice(equal(x, y), Operation::kIsEqual, x, y, a, b);
}

Dim SizeArithmetic::choice(std::optional<bool> is_known, Operation condition, Dim x, Dim y, Dim a, Dim b) {
  if (is_known) {
    return *is_known ? a : b;
  }
  if (x.is_unknown() || y.is_unknown() || a.is_unknown() || b.is_unknown()) {
    return Dim::unknown();
  }
  return a == b ? a : atom(Operation::kChoice, atom(condition, x, y), atom(Operation::kPair, a, b));
}

Dim SizeArithmetic::broadcast(Dim a, Dim b) {
  if (a == b || b == Dim::known(1)) {
    return a;
  }
  if (a == Dim::known(1)) {
    return b;
  }
  const bool a_stays = !a.is_unknown() && equal(a, Dim::known(1)) == false;
  const bool b_stays = !b.is_unknown() && equal(b, Dim::known(1)) == false;
  if (a_stays && b_stays) {
    return b.is_known() ? b : a;  // equal in every run that does not raise
  }
  return a_stays ? a : b_stays ? b : Dim::unknown();
}

// ---- questions --------------------------------------------------------------------------------------------------------

std::optional<bool> SizeArithmetic::equal(Dim a, Dim b) {
  if (a.is_unknown() || b.is_unknown()) {
    return std::nullopt;
  }
  if (a == b) {
    return true;
  }
  const auto difference = sum(polynomial_of(a), polynomial_of(b), -1);
  if (!difference) {
    return std::nullopt;
  }
  const Range range = range_of(*difference);
  if ((range.low && *range.low > 0) || (range.high && *range.high < 0)) {
    return false;
  }
  const auto is_one = [&](Dim x, Dim y) { return x.is_symbol() && not_one_.count(x.value()) != 0 && y == Dim::known(1); };
  return is_one(a, b) || is_one(b, a) ? std::optional(false) : std::nullopt;
}

std::optional<bool> SizeArithmetic::less(Dim a, Dim b) {
  if (a == Dim::known(INT64_MAX) || b == Dim::known(INT64_MIN)) {
    return false;  // the end of a slice without an end
  }
  if (a.is_unknown() || b.is_unknown()) {
    return std::nullopt;
  }
  const auto difference = sum(polynomial_of(a), polynomial_of(b), -1);
  if (!difference) {
    return std::nullopt;
  }
  if (is_bound(a, b)) {
    return false;
  }
  const Range range = range_of(*difference);
  if (range.high && *range.high < 0) {
    return true;
  }
  return range.low && *range.low >= 0 ? std::optional(false) : std::nullopt;
}

// Returns whether a is at least b in every run, because b is a minimum of a and another size, or a is a maximum of b
// and another.
bool SizeArithmetic::is_bound(Dim a, Dim b) {
  const auto is_of = [&](Dim whole, Operation operation, Dim part) {
    const Polynomial polynomial = polynomial_of(whole);
    if (polynomial.size() != 1 || polynomial.begin()->first.size() != 1 || polynomial.begin()->second != 1) {
      return false;
    }
    const Atom& atom = atoms_[polynomial.begin()->first[0]];
    return atom.operation == operation && (atom.a == part || atom.b == part);
  };
  return is_of(b, Operation::kMinimum, a) || is_of(a, Operation::kMaximum, b);
}

SizeArithmetic::Range SizeArithmetic::range_of(Dim dim) {
  return dim.is_known() ? Range{dim.value(), dim.value()} : range_of(polynomial_of(dim));
}

SizeArithmetic::Range SizeArithmetic::range_of(const Polynomial& polynomial) const {
  Range total{0, 0};
  for (const auto& [monomial, coefficient] : polynomial) {
    Range term{1, 1};
    for (const AtomId id : monomial) {
      const Range& factor = atoms_[id].range;
      const bool is_positive = term.low && *term.low >= 0 && factor.low && *factor.low >= 0;
      term.low = is_positive ? checked_multiply(*term.low, *factor.low) : std::nullopt;
      term.high = is_positive && term.high && factor.high ? checked_multiply(*term.high, *factor.high) : std::nullopt;
    }
    const auto scaled = [&, factor = coefficient](std::optional<int64_t> bound) {
      return bound ? checked_multiply(*bound, factor) : std::nullopt;
    };
    const Range signed_term =
        coefficient > 0 ? Range{scaled(term.low), scaled(term.high)} : Range{scaled(term.high), scaled(term.low)};
    total.low = total.low && signed_term.low ? checked_add(*total.low, *signed_term.low) : std::nullopt;
    total.high = total.high && signed_term.high ? checked_add(*total.high, *signed_term.high) : std::nullopt;
  }
  return total;
}

SizeArithmetic::Range SizeArithmetic::range_of(Operation operation, const Range& a, const Range& b) const {
  using Bound = std::optional<int64_t>;
  const auto smaller = [](Bound x, Bound y) { return x && y ? std::min(x, y) : std::nullopt; };
  const auto larger = [](Bound x, Bound y) { return x && y ? std::max(x, y) : std::nullopt; };
  const bool divisor_is_positive = b.low && *b.low > 0;
  switch (operation) {
    case Operation::kGiven: return {0, kMaxSize};
    case Operation::kFloorDivide:
      if (!divisor_is_positive) {
        return {};
      }
      // The larger the divisor, the nearer the quotient is to 0 (or to -1).
      return {a.low && *a.low >= 0 ? std::optional<int64_t>(b.high ? *a.low / *b.high : 0) : calculate(true, a.low, b.low),
              a.high && *a.high >= 0 ? calculate(true, a.high, b.low) : std::nullopt};
    case Operation::kRemainder:
      return divisor_is_positive ? Range{0, b.high ? checked_add(*b.high, -1) : std::nullopt} : Range{};
    case Operation::kMaximum:
      return {a.low && b.low ? std::max(a.low, b.low) : a.low ? a.low : b.low, larger(a.high, b.high)};
    case Operation::kMinimum:
      return {smaller(a.low, b.low), a.high && b.high ? std::min(a.high, b.high) : a.high ? a.high : b.high};
    case Operation::kIsLess:
    case Operation::kIsEqual: return {0, 1};
    case Operation::kPair: return {smaller(a.low, b.low), larger(a.high, b.high)};
    case Operation::kChoice: return b;  // covers both elements of the pair
  }
  return {};
}

// ---- examples ---------------------------------------------------------------------------------------------------------

std::optional<int64_t> SizeArithmetic::example_of(Operation operation, Dim a, Dim b) {
  if (operation == Operation::kGiven) {
    const auto given = examples_.find(a.value());
    return given == examples_.end() ? std::nullopt : std::optional(given->second);
  }
  const auto x = example(a);
  const auto y = example(b);
  switch (operation) {
    case Operation::kFloorDivide: return calculate(true, x, y);
    case Operation::kRemainder: return calculate(false, x, y);
    case Operation::kMaximum: return x && y ? std::max(x, y) : std::nullopt;
    case Operation::kMinimum: return x && y ? std::min(x, y) : std::nullopt;
    case Operation::kIsLess: return x && y ? std::optional<int64_t>(*x < *y) : std::nullopt;
    case Operation::kIsEqual: return x && y ? std::optional<int64_t>(*x == *y) : std::nullopt;
    case Operation::kChoice: {
      if (!x) {
        return std::nullopt;
      }
      const Atom pair = only_atom_of(b);
      return example(*x != 0 ? pair.a : pair.b);
    }
    case Operation::kPair:
    case Operation::kGiven: break;
  }
  return std::nullopt;
}

std::optional<int64_t> SizeArithmetic::example(Dim dim) {
  if (dim.is_unknown()) {
    return std::nullopt;
  }
  std::optional<int64_t> total = 0;
  for (const auto& [monomial, coefficient] : polynomial_of(dim)) {
    std::optional<int64_t> term = coefficient;
    for (const AtomId id : monomial) {
      const auto& factor = atoms_[id].example;
      term = term && factor ? checked_multiply(*term, *factor) : std::nullopt;
    }
    total = total && term ? checked_add(*total, *term) : std::nullopt;
  }
  return total;
}

}  // namespace sconce
