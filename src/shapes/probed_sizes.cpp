#include "shapes/probed_sizes.h"

#include "shapes/meta_run.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <set>

namespace sconce {
namespace {

constexpr std::array<int64_t, 12> kPrimes = {101, 149, 199, 251, 307, 353, 401, 457, 503, 557, 607, 661};
constexpr size_t kProbes = 3;

class SizeProbe {
 public:
  SizeProbe(const Node& node, const AbstractValues& operands, SizeArithmetic& arithmetic)
      : node_(node), operands_(operands), arithmetic_(arithmetic) {}

  std::optional<std::vector<std::vector<Dim>>> run() {
    for (const AbstractValue& operand : operands_) {
      collect(operand);
    }
    const bool is_tried = is_known_ && !symbols_.empty() && symbols_.size() <= kPrimes.size() &&
                          std::ranges::all_of(symbols_, [&](int64_t symbol) {
                            return arithmetic_.equal(Dim::symbol(symbol), Dim::known(1)) == false;
                          });
    if (!is_tried) {
      return std::nullopt;
    }
    for (size_t i = 0; i < kProbes; ++i) {
      assignments_.push_back(assignment(i));
      const auto sizes = sizes_with(assignments_.back());
      if (!sizes || (!found_.empty() && !has_ranks_of(*sizes))) {
        return std::nullopt;
      }
      found_.push_back(*sizes);
    }
    std::vector<std::vector<Dim>> results;
    for (size_t result = 0; result < found_[0].size(); ++result) {
      std::vector<Dim>& dims = results.emplace_back();
      for (size_t dim = 0; dim < found_[0][result].size(); ++dim) {
        dims.push_back(expression_of([&](size_t probe) { return found_[probe][result][dim]; }));
      }
    }
    return results;
  }

 private:
  using Sizes = std::vector<std::vector<int64_t>>;

  void collect(const AbstractValue& value) {
    if (const TensorFacts* facts = value.as_tensor()) {
      is_known_ = is_known_ && facts->sizes.has_value();
      for (size_t i = 0; facts->sizes && i < facts->sizes->size(); ++i) {
        collect((*facts->sizes)[i]);
      }
    } else if (const AbstractValues* elements = value.as_sequence()) {
      std::ranges::for_each(*elements, [this](const AbstractValue& element) { collect(element); });
    } else if (value.is_integer()) {
      collect(value.as_integer());
    } else {
      is_known_ = is_known_ && value.as_constant() != nullptr;
    }
  }

  void collect(Dim dim) {
    is_known_ = is_known_ && !dim.is_unknown();
    if (dim.is_symbol() && std::ranges::find(dims_, dim) == dims_.end()) {
      dims_.push_back(dim);
      collect_symbols(dim);
    }
  }

  void collect_symbols(Dim dim) {
    for (const SizeArithmetic::Term& term :
         dim.is_symbol() ? arithmetic_.terms_of(dim) : std::vector<SizeArithmetic::Term>()) {
      for (const SizeArithmetic::Factor& factor : term.factors) {
        if (factor.operation == SizeArithmetic::Operation::kGiven) {
          symbols_.insert(factor.a.value());
        } else {
          collect_symbols(factor.a);
          collect_symbols(factor.b);
        }
      }
    }
  }

  // The first symbol is the least, then the greatest, then one between.
  SizeArithmetic::Replacements assignment(size_t probe) const {
    SizeArithmetic::Replacements primes;
    size_t i = 0;
    for (const int64_t symbol : symbols_) {
      const size_t place = probe == 0 ? i : probe == 1 ? kPrimes.size() - 1 - i : (5 * i + 7) % kPrimes.size();
      primes.emplace(symbol, Dim::known(kPrimes[place]));
      ++i;
    }
    return primes;
  }

  AbstractValue replaced(const AbstractValue& value, const SizeArithmetic::Replacements& numbers) {
    if (const TensorFacts* facts = value.as_tensor()) {
      TensorFacts other = *facts;
      other.forget_strides();
      for (Dim& dim : *other.sizes) {
        dim = arithmetic_.replaced(dim, numbers);
      }
      return AbstractValue::tensor(std::move(other));
    }
    if (const AbstractValues* elements = value.as_sequence()) {
      AbstractValues others;
      for (const AbstractValue& element : *elements) {
        others.push_back(replaced(element, numbers));
      }
      return AbstractValue::sequence(std::move(others));
    }
    return value.is_integer() ? AbstractValue::integer(arithmetic_.replaced(value.as_integer(), numbers)) : value;
  }

  static void collect_tensors(const AbstractValue& value, std::vector<const TensorFacts*>& tensors) {
    if (const TensorFacts* facts = value.as_tensor()) {
      tensors.push_back(facts);
    } else if (const AbstractValues* elements = value.as_sequence()) {
      std::ranges::for_each(*elements, [&](const AbstractValue& element) { collect_tensors(element, tensors); });
    }
  }

  std::optional<Sizes> sizes_with(const SizeArithmetic::Replacements& numbers) {
    AbstractValues operands;
    std::vector<const TensorFacts*> tensors;
    for (const AbstractValue& operand : operands_) {
      operands.push_back(replaced(operand, numbers));
      collect_tensors(operands.back(), tensors);
    }
    const auto meta = run_on_meta(node_, operands, tensors, arithmetic_);
    if (!meta || !meta->sizes_are_exact) {
      return std::nullopt;
    }
    Sizes sizes;
    for (const c10::IValue& result : meta->results) {
      if (!result.isTensor() || !result.toTensor().defined()) {
        return std::nullopt;
      }
      sizes.push_back(result.toTensor().sizes().vec());
    }
    return sizes;
  }

  bool has_ranks_of(const Sizes& sizes) const {
    const auto have_equal_ranks = [](const auto& a, const auto& b) { return a.size() == b.size(); };
    return std::ranges::equal(sizes, found_[0], have_equal_ranks);
  }

  int64_t value_of(Dim dim, size_t probe) { return arithmetic_.replaced(dim, assignments_[probe]).value(); }

  // `found`: the size in each probe.
  template <typename Found>
  Dim expression_of(const Found& found) {
    const auto is_in_each = [&](const auto& expected) {
      for (size_t probe = 0; probe < kProbes; ++probe) {
        if (found(probe) != expected(probe)) {
          return false;
        }
      }
      return true;
    };
    if (is_in_each([&](size_t) { return found(0); })) {
      return Dim::known(found(0));
    }
    for (const Dim dim : dims_) {
      const int64_t rest = found(0) - value_of(dim, 0);
      if (is_in_each([&](size_t probe) { return value_of(dim, probe) + rest; })) {
        return arithmetic_.add(dim, Dim::known(rest));
      }
    }
    for (const Dim a : dims_) {
      for (const Dim b : dims_) {
        if (is_in_each([&](size_t probe) { return value_of(a, probe) * value_of(b, probe); })) {
          return arithmetic_.multiply(a, b);
        }
      }
    }
    return Dim::unknown();
  }

  const Node& node_;
  const AbstractValues& operands_;
  SizeArithmetic& arithmetic_;
  bool is_known_ = true;                                   // the operands, but for symbols
  std::vector<Dim> dims_;                                  // that are not numbers, among the operands
  std::set<int64_t> symbols_;                              // that these are made of
  std::vector<SizeArithmetic::Replacements> assignments_;  // by probe
  std::vector<Sizes> found_;                               // by probe, then by result
};

}  // namespace

std::optional<std::vector<std::vector<Dim>>> probe_sizes(const Node& node, const AbstractValues& operands,
                                                         SizeArithmetic& arithmetic) {
  return SizeProbe(node, operands, arithmetic).run();
}

}  // namespace sconce
