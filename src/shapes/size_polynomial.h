// Polynomials with integer coefficients, in canonical form: equal polynomials are equal maps.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace sconce {

// A product of variables, as ascending numbers. An empty one is 1.
using SizeMonomial = std::vector<uint32_t>;

// Orders by degree, then by variables. Multiplying both sides by one monomial keeps the order.
struct SizeMonomialOrder {
  bool operator()(const SizeMonomial& a, const SizeMonomial& b) const {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  }
};

// Coefficients by monomial, none of them zero. An empty map is 0.
using SizePolynomial = std::map<SizeMonomial, int64_t, SizeMonomialOrder>;

// Rounds down. Requires: b is neither 0 nor -1.
inline int64_t floor_quotient(int64_t a, int64_t b) { return a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0); }

// These return nothing on overflow, or if the result would have very many terms.
std::optional<int64_t> checked_add(int64_t a, int64_t b);
std::optional<int64_t> checked_multiply(int64_t a, int64_t b);
// a + factor·b
std::optional<SizePolynomial> sum(SizePolynomial a, const SizePolynomial& b, int64_t factor);
std::optional<SizePolynomial> product(const SizePolynomial& a, const SizePolynomial& b);
// Returns a/b if b divides a without remainder, else nothing. Requires b != 0.
std::optional<SizePolynomial> exact_quotient(SizePolynomial a, const SizePolynomial& b);

}  // namespace sconce
