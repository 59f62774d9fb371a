#include "shapes/size_polynomial.h"

#include <algorithm>

namespace sconce {

std::optional<int64_t> checked_add(int64_t a, int64_t b) {
  int64_t result = 0;
  return __builtin_add_overflow(a, b, &result) ? std::nullopt : std::optional(result);
}

std::optional<int64_t> checked_multiply(int64_t a, int64_t b) {
  int64_t result = 0;
  return __builtin_mul_overflow(a, b, &result) ? std::nullopt : std::optional(result);
}

namespace {

constexpr size_t kMaxTerms = 64;

bool add_term(SizePolynomial& sum, const SizeMonomial& monomial, int64_t coefficient) {
  const auto term = sum.try_emplace(monomial, 0).first;
  const auto total = checked_add(term->second, coefficient);
  if (!total) {
    return false;
  }
  term->second = *total;
  if (*total == 0) {
    sum.erase(term);
  }
  return sum.size() <= kMaxTerms;
}

}  // namespace

std::optional<SizePolynomial> sum(SizePolynomial a, const SizePolynomial& b, int64_t factor) {
  for (const auto& [monomial, coefficient] : b) {
    const auto scaled = checked_multiply(coefficient, factor);
    if (!scaled || !add_term(a, monomial, *scaled)) {
      return std::nullopt;
    }
  }
  return a;
}

std::optional<SizePolynomial> product(const SizePolynomial& a, const SizePolynomial& b) {
  SizePolynomial result;
  for (const auto& [a_monomial, a_coefficient] : a) {
    for (const auto& [b_monomial, b_coefficient] : b) {
      SizeMonomial monomial;
      std::merge(a_monomial.begin(), a_monomial.end(), b_monomial.begin(), b_monomial.end(), std::back_inserter(monomial));
      const auto coefficient = checked_multiply(a_coefficient, b_coefficient);
      if (!coefficient || !add_term(result, monomial, *coefficient)) {
        return std::nullopt;
      }
    }
  }
  return result;
}

// Long division by the leading term.
std::optional<SizePolynomial> exact_quotient(SizePolynomial a, const SizePolynomial& b) {
  SizePolynomial quotient;
  const auto& [divisor, divisor_coefficient] = *b.rbegin();
  while (!a.empty()) {
    const auto& [monomial, coefficient] = *a.rbegin();
    if (divisor_coefficient == -1 || coefficient % divisor_coefficient != 0 ||
        !std::includes(monomial.begin(), monomial.end(), divisor.begin(), divisor.end())) {
      return std::nullopt;
    }
    SizeMonomial rest;
    std::set_difference(monomial.begin(), monomial.end(), divisor.begin(), divisor.end(), std::back_inserter(rest));
    const SizePolynomial term = {{rest, coefficient / divisor_coefficient}};
    const auto taken = product(term, b);
    auto left = taken ? sum(std::move(a), *taken, -1) : std::nullopt;
    if (!left || quotient.size() > kMaxTerms) {
      return std::nullopt;
    }
    quotient.insert(*term.begin());
    a = std::move(*left);
  }
  return quotient;
}

}  // namespace sconce
