// Reads a size as the expression that it is.
#include "shapes/size_arithmetic.h"

namespace sconce {

std::vector<SizeArithmetic::Term> SizeArithmetic::terms_of(Dim dim) {
  std::vector<Term> terms;
  for (const auto& [monomial, coefficient] : polynomial_of(dim)) {
    Term& term = terms.emplace_back(Term{coefficient, {}});
    for (const AtomId id : monomial) {
      term.factors.push_back({atoms_[id].operation, atoms_[id].a, atoms_[id].b});
    }
  }
  return terms;
}

Dim SizeArithmetic::replaced(Dim dim, const Replacements& replacements) {
  if (!dim.is_symbol()) {
    return dim;
  }
  if (is_given(dim)) {
    const auto other = replacements.find(dim.value());
    return other == replacements.end() ? dim : other->second;
  }
  Dim total = Dim::known(0);
  const Polynomial terms = polynomial_of(dim);
  for (const auto& [monomial, coefficient] : terms) {
    Dim term = Dim::known(coefficient);
    for (const AtomId id : monomial) {
      term = multiply(term, replaced_atom(Atom(atoms_[id]), replacements));
    }
    total = add(total, term);
  }
  return total;
}

Dim SizeArithmetic::replaced_atom(const Atom& atom, const Replacements& replacements) {
  const Dim a = atom.operation == Operation::kChoice ? atom.a : replaced(atom.a, replacements);
  const Dim b = atom.operation == Operation::kChoice ? atom.b : replaced(atom.b, replacements);
  switch (atom.operation) {
    case Operation::kGiven: return a;
    case Operation::kFloorDivide: return floor_divide(a, b);
    case Operation::kRemainder: return remainder(a, b);
    case Operation::kMaximum: return maximum(a, b);
    case Operation::kMinimum: return minimum(a, b);
    case Operation::kChoice: {
      const Atom condition = only_atom_of(a);
      const Atom pair = only_atom_of(b);
      const Dim x = replaced(condition.a, replacements);
      const Dim y = replaced(condition.b, replacements);
      const Dim first = replaced(pair.a, replacements);
      const Dim second = replaced(pair.b, replacements);
      return condition.operation == Operation::kIsLess ? if_less(x, y, first, second) : if_equal(x, y, first, second);
    }
    case Operation::kIsLess:
    case Operation::kIsEqual:
    case Operation::kPair: break;  // parts of a choice
  }
  return Dim::unknown();
}

}  // namespace sconce
