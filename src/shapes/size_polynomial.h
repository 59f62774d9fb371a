// Polynomials with integer coefficients, in one form: equal ones are equal as maps.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace sconce {

// A product of variables, by number, ascending; empty: the number 1.
using SizeMonomial = std::vector<uint32_t>;

// By degree, then by variables: multiplying both sides by the same keeps the order.
struct SizeMonomialOrder {
  bool operator()(const SizeMonomial& a, const SizeMonomial& b) const {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  }
};

// Coefficients without zeros; empty: 0.
using SizePolynomial = std::map<SizeMonomial, int64_t, SizeMonomialOrder>;

// Nothing on overflow, and where a result would have very many terms.
std::optional<int64_t> checked_add(int64_t a, int64_t b);
std::optional<int64_t> checked_multiply(int64_t a, int64_t b);
// a + factor·b
std::optional<SizePolynomial> sum(SizePolynomial a, const SizePolynomial& b, int64_t factor);
std::optional<SizePolynomial> product(const SizePolynomial& a, const SizePolynomial& b);
// a/b where b, which is not 0, divides a without remainder; else nothing.
std::optional<SizePolynomial> exact_quotient(SizePolynomial a, const SizePolynomial& b);

}  // namespace sconce
