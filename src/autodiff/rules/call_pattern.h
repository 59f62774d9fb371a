// CallPattern: what is known of a call before it runs, and example operands for it.
#pragma once

#include "ops/op.h"

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sconce {

struct ArgumentPattern {
  // A tensor has a dtype, and sizes of which an unknown one is absent. Any other argument is `constant`.
  std::optional<c10::ScalarType> dtype;
  std::vector<std::optional<int64_t>> sizes;
  bool requires_grad = false;
  c10::IValue constant;
};

struct CallPattern {
  const Op* op = nullptr;
  std::vector<ArgumentPattern> arguments;  // one per argument of the schema

  // Equal for equal patterns, default dtypes and settings of the process.
  std::string key() const;
};

// Sizes that the operator takes together, by trying. All are chosen but those that the pattern knows.
//
// Sizes that may be chosen freely, or are equal in every call that the operator takes, are a class. Different classes have
// different sizes, so that a number in a trace tells which size it is.
class ExampleCalls {
 public:
  using Sizes = std::vector<std::vector<int64_t>>;  // per argument of the schema; empty for one that is no tensor

  // Nothing if no operands were found that the operator takes.
  static std::optional<ExampleCalls> find(const CallPattern& pattern);

  // All classes have other sizes in each of them.
  static constexpr size_t kCount = 3;
  const Sizes& sizes(size_t number) const { return sizes_.at(number); }
  // Calls in which a size, or one of several that are usually equal, is 1 or 0, as far as the operator takes them.
  const std::vector<Sizes>& edges() const { return edges_; }

  // Makes the arguments: equal ones for equal sizes.
  std::vector<c10::IValue> arguments(const Sizes& sizes) const;

 private:
  // The range that elements of floating-point examples come from. Each operator is defined for one of these.
  enum class Elements : uint8_t { kUnit, kAboveOne, kDefinite };
  struct Place {
    size_t argument;
    size_t dim;
  };
  struct Class {
    std::vector<Place> places;
    int64_t step;
  };

  explicit ExampleCalls(const CallPattern& pattern) : pattern_(pattern) {}
  at::Tensor tensor(const ArgumentPattern& argument, const std::vector<int64_t>& sizes) const;
  bool takes(const Sizes& sizes, bool must_be_finite = true) const;
  bool find_base();
  Sizes with(Sizes sizes, const std::vector<Place>& places, int64_t size) const;
  bool find_classes();
  std::optional<Class> class_of(const Place& place, const std::vector<Place>& others) const;
  std::vector<Place> fewest_of(std::vector<Place> places, int64_t size) const;
  bool explains_fixed_size() const;
  bool choose_sizes();
  void find_edges();

  const CallPattern& pattern_;
  Elements elements_ = Elements::kUnit;
  int64_t base_size_ = 0;
  Sizes base_;
  std::vector<Place> open_;  // places whose sizes the pattern does not know
  std::vector<Class> classes_;
  std::vector<Sizes> sizes_;
  std::vector<Sizes> edges_;
};

}  // namespace sconce
