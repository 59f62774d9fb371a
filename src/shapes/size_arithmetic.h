// Arithmetic on symbolic sizes.
//
// A symbolic size is a polynomial with integer coefficients over *atoms*. An atom is a given symbol (one size of an input),
// or an operation on polynomials whose result is not a polynomial: a quotient, a remainder, a maximum, a minimum.
//
//   (h + 2*1 - 3)//2 + 1   is   1 + 1·atom(floor_divide, -1 + 1·h, 2)
//
// Polynomials have a canonical form and are numbered, so that equal sizes get one symbol, however they were computed.
#pragma once

#include "ir/facts.h"
#include "shapes/size_polynomial.h"

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace sconce {

class SizeArithmetic {
 public:
  // New symbols get numbers above `last_given`. A given symbol is a size, so it is at least 0.
  explicit SizeArithmetic(int64_t last_given = 0) : next_symbol_(last_given + 1) {}
  // States that a given symbol is not 1. This holds for every symbolic size of an argument, because sizes of 1 are numbers.
  void set_not_one(Dim given) { not_one_.insert(given.value()); }
  // States that a given symbol is at least `low` in every run. Must be called before the symbol is used.
  void set_at_least(Dim given, int64_t low) { lows_[given.value()] = low; }
  // Sets an example value of a given symbol. Must be called before the symbol is used.
  void set_example(Dim given, int64_t value) { examples_[given.value()] = value; }

  // These return unknown if an operand is unknown, on overflow, and if the operation would raise.
  Dim add(Dim a, Dim b);
  Dim subtract(Dim a, Dim b);
  Dim multiply(Dim a, Dim b);
  Dim floor_divide(Dim a, Dim b);  // rounds down, like Python's //
  Dim remainder(Dim a, Dim b);     // has the sign of the divisor, like Python's %
  Dim maximum(Dim a, Dim b);
  Dim minimum(Dim a, Dim b);

  // `a if x < y else b` and `a if x == y else b`. Two such sizes with equal arguments are equal.
  Dim if_less(Dim x, Dim y, Dim a, Dim b);
  Dim if_equal(Dim x, Dim y, Dim a, Dim b);

  // Return nothing if the answer depends on the run.
  std::optional<bool> equal(Dim a, Dim b);
  std::optional<bool> less(Dim a, Dim b);

  // Returns the size with given symbols replaced.
  using Replacements = std::map<int64_t, Dim>;
  Dim replaced(Dim dim, const Replacements& replacements);
  bool is_given(Dim dim) const { return dim.is_symbol() && polynomials_.count(dim.value()) == 0; }

  // Returns the size to which both broadcast, in runs where they do.
  Dim broadcast(Dim a, Dim b);

  // Evaluates the size on the examples. Nothing if a symbol has none.
  std::optional<int64_t> example(Dim dim);

  // kIsLess and kIsEqual are 1 or 0. kChoice takes a condition and a pair, and is one element of the pair.
  enum class Operation : uint8_t { kGiven, kFloorDivide, kRemainder, kMaximum, kMinimum, kIsLess, kIsEqual, kPair, kChoice };
  struct Factor {
    Operation operation;
    Dim a, b;  // operands; a given symbol is `a`
  };
  struct Term {
    int64_t coefficient;
    std::vector<Factor> factors;
  };
  // Returns the terms whose sum the size is. Requires that it is known or a symbol.
  std::vector<Term> terms_of(Dim dim);

 private:
  using AtomId = uint32_t;  // the variables of the polynomials
  using Polynomial = SizePolynomial;
  struct Range {
    std::optional<int64_t> low, high;
  };
  struct Atom {
    Operation operation;
    Dim a, b;  // operands; a given symbol is `a`
    Range range;
    std::optional<int64_t> example;
  };

  Polynomial polynomial_of(Dim dim);
  Dim dim_of(const std::optional<Polynomial>& polynomial);
  AtomId atom_id(Operation operation, Dim a, Dim b);
  Dim atom(Operation operation, Dim a, Dim b);
  Atom only_atom_of(Dim dim) { return atoms_[polynomial_of(dim).begin()->first[0]]; }
  Dim replaced_atom(const Atom& atom, const Replacements& replacements);
  Dim choice(std::optional<bool> is_known, Operation condition, Dim x, Dim y, Dim a, Dim b);
  bool is_bound(Dim a, Dim b);
  Range range_of(Dim dim);
  Range range_of(const Polynomial& polynomial) const;
  Range range_of(Operation operation, const Range& a, const Range& b) const;
  std::optional<int64_t> example_of(Operation operation, Dim a, Dim b);

  int64_t next_symbol_;
  std::unordered_set<int64_t> not_one_;
  std::unordered_map<int64_t, int64_t> lows_;
  std::unordered_map<int64_t, int64_t> examples_;
  std::unordered_map<int64_t, Polynomial> polynomials_;  // by symbols made here
  std::map<Polynomial, int64_t> symbols_;                // the inverse
  std::vector<Atom> atoms_;
  std::map<std::tuple<Operation, bool, int64_t, bool, int64_t>, AtomId> atom_ids_;
};

}  // namespace sconce
