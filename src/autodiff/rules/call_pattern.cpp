#include "autodiff/rules/call_pattern.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DefaultDtype.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>
#include <sstream>

namespace sconce {
namespace {

constexpr uint64_t kSeed = 7;
// The number of elements that an example operand has at most. Examples shall cost little.
constexpr int64_t kMaxElements = 1 << 14;

bool is_discrete(c10::ScalarType dtype) { return !c10::isFloatingType(dtype); }

}  // namespace

std::string CallPattern::key() const {
  std::ostringstream text;
  text.precision(17);
  text << op->kind.toQualString() << '.' << op->schema->overload_name() << ' ' << c10::get_default_dtype_as_scalartype()
       << (at::globalContext().deterministicAlgorithms() ? " deterministic" : "");
  for (const ArgumentPattern& argument : arguments) {
    text << ", ";
    if (!argument.dtype) {
      text << argument.constant.tagKind() << ' ' << argument.constant;
      continue;
    }
    text << *argument.dtype << (argument.requires_grad ? " grad" : "") << '[';
    for (const std::optional<int64_t>& size : argument.sizes) {
      text << (size ? std::to_string(*size) : "*") << ' ';
    }
    text << ']';
  }
  return text.str();
}

std::optional<ExampleCalls> ExampleCalls::find(const CallPattern& pattern) {
  ExampleCalls examples(pattern);
  for (size_t i = 0; i < pattern.arguments.size(); ++i) {
    for (size_t dim = 0; dim < pattern.arguments[i].sizes.size(); ++dim) {
      if (!pattern.arguments[i].sizes[dim]) {
        examples.open_.push_back({i, dim});
      }
    }
  }
  if (!examples.find_base() || !examples.find_classes() || !examples.choose_sizes()) {
    return std::nullopt;
  }
  examples.find_edges();
  return examples;
}

at::Tensor ExampleCalls::tensor(const ArgumentPattern& argument, const std::vector<int64_t>& sizes) const {
  at::Generator generator = at::detail::createCPUGenerator(kSeed + sizes.size());
  if (is_discrete(*argument.dtype)) {
    // Positions in a dimension of one element are 0.
    const int64_t bound = std::find(sizes.begin(), sizes.end(), 1) != sizes.end() ? 1 : 2;
    return at::randint(0, argument.dtype == c10::kBool ? 2 : bound, sizes, generator, c10::TensorOptions(*argument.dtype));
  }
  const at::Tensor unit = at::rand(sizes, generator, c10::TensorOptions(c10::kDouble)) * 0.8 + 0.1;
  at::Tensor made = elements_ == Elements::kAboveOne ? unit + 1 : unit;
  if (elements_ == Elements::kDefinite && sizes.size() >= 2 && sizes[sizes.size() - 1] == sizes[sizes.size() - 2]) {
    made = unit + unit.transpose(-1, -2) + at::eye(sizes.back(), c10::TensorOptions(c10::kDouble)) * (2 * sizes.back());
  }
  return made.to(*argument.dtype);
}

std::vector<c10::IValue> ExampleCalls::arguments(const Sizes& sizes) const {
  std::vector<c10::IValue> values;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const ArgumentPattern& argument = pattern_.arguments[i];
    values.push_back(argument.dtype ? c10::IValue(tensor(argument, sizes[i])) : argument.constant);
  }
  return values;
}

// The operator says by an exception that it does not take its operands. That is no error here.
bool ExampleCalls::takes(const Sizes& sizes, bool must_be_finite) const {
  for (const std::vector<int64_t>& each : sizes) {
    if (std::accumulate(each.begin(), each.end(), int64_t{1}, std::multiplies<>()) > kMaxElements) {
      return false;
    }
  }
  const at::NoGradGuard no_grad;
  torch::jit::Stack stack = arguments(sizes);
  try {
    pattern_.op->registered->getOperation()(stack);
  } catch (const std::exception&) {
    return false;
  }
  return !must_be_finite || std::all_of(stack.begin(), stack.end(), [](const c10::IValue& result) {
    return !result.isTensor() || !result.toTensor().defined() || !result.toTensor().is_floating_point() ||
           result.toTensor().layout() != c10::kStrided || result.toTensor().isfinite().all().item<bool>();
  });
}

ExampleCalls::Sizes ExampleCalls::with(Sizes sizes, const std::vector<Place>& places, int64_t size) const {
  for (const Place& place : places) {
    sizes[place.argument][place.dim] = size;
  }
  return sizes;
}

bool ExampleCalls::find_base() {
  const bool is_large = std::any_of(pattern_.arguments.begin(), pattern_.arguments.end(),
                                    [](const ArgumentPattern& argument) { return argument.sizes.size() > 4; });
  std::vector<int64_t> candidates = is_large ? std::vector<int64_t>{2, 3} : std::vector<int64_t>{4, 6, 12, 9, 2};
  Sizes known;
  for (const ArgumentPattern& argument : pattern_.arguments) {
    known.emplace_back();
    for (const std::optional<int64_t>& size : argument.sizes) {
      known.back().push_back(size.value_or(0));
      if (size && *size > 1) {
        candidates.insert(candidates.begin(), *size);
      }
    }
  }
  for (const int64_t size : candidates) {
    for (const Elements elements : {Elements::kUnit, Elements::kAboveOne, Elements::kDefinite}) {
      elements_ = elements;
      base_size_ = size;
      base_ = with(known, open_, size);
      if (takes(base_)) {
        return true;
      }
    }
  }
  return false;
}

// Leaves out what need not change so that the operator takes the sizes. Keeps the last place.
std::vector<ExampleCalls::Place> ExampleCalls::fewest_of(std::vector<Place> places, int64_t size) const {
  for (size_t i = 0; i + 1 < places.size();) {
    std::vector<Place> fewer = places;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    if (takes(with(base_, fewer, size))) {
      places = std::move(fewer);
    } else {
      ++i;
    }
  }
  return places;
}

// Returns the smallest set of places with `place` that may change together, others staying as they are.
std::optional<ExampleCalls::Class> ExampleCalls::class_of(const Place& place, const std::vector<Place>& others) const {
  const auto distance_from_end = [this](const Place& each) { return base_[each.argument].size() - each.dim; };
  std::vector<std::vector<Place>> sets = {{place}, {}};
  for (const Place& other : others) {
    if (distance_from_end(other) == distance_from_end(place)) {
      sets[1].push_back(other);  // operands that are broadcast together
    }
  }
  sets[1].push_back(place);
  for (const Place& other : others) {
    sets.push_back({other, place});
  }
  // Last, because places of several dimensions would stay in one set.
  sets.push_back(others);
  sets.back().push_back(place);
  for (const int64_t step : {int64_t{1}, int64_t{2}, base_size_}) {
    for (const std::vector<Place>& places : sets) {
      if (takes(with(base_, places, base_size_ + step))) {
        return Class{fewest_of(places, base_size_ + step), step};
      }
    }
  }
  return std::nullopt;
}

// Returns whether a number of the pattern may be what fixes a size that does not vary.
bool ExampleCalls::explains_fixed_size() const {
  return std::any_of(pattern_.arguments.begin(), pattern_.arguments.end(), [this](const ArgumentPattern& argument) {
    return std::find(argument.sizes.begin(), argument.sizes.end(), std::optional(base_size_)) != argument.sizes.end();
  });
}

bool ExampleCalls::find_classes() {
  std::vector<Place> left = open_;
  while (!left.empty()) {
    const Place place = left.front();
    left.erase(left.begin());
    const std::optional<Class> found = class_of(place, left);
    if (!found && !explains_fixed_size()) {
      return false;
    }
    if (!found) {
      continue;
    }
    std::erase_if(left, [&](const Place& other) {
      return std::any_of(found->places.begin(), found->places.end(),
                         [&](const Place& member) { return member.argument == other.argument && member.dim == other.dim; });
    });
    classes_.push_back(*found);
  }
  return true;
}

// Earlier classes have larger sizes: an image comes before its window. They grow by different numbers.
bool ExampleCalls::choose_sizes() {
  for (size_t number = 0; number < kCount; ++number) {
    std::set<int64_t> used;
    Sizes chosen = base_;
    for (size_t i = classes_.size(); i-- > 0;) {
      const auto rank = static_cast<int64_t>(classes_.size() - i);
      const int64_t growth = number == 0 ? 0 : number == 1 ? 1 + rank % 3 : 4 + rank * 2 % 5;
      int64_t size = base_size_ + classes_[i].step * (rank + growth);
      while (used.contains(size)) {
        size += classes_[i].step;
      }
      used.insert(size);
      chosen = with(chosen, classes_[i].places, size);
    }
    if (!takes(chosen)) {
      return false;
    }
    sizes_.push_back(std::move(chosen));
  }
  return true;
}

void ExampleCalls::find_edges() {
  std::vector<std::vector<Place>> changed;
  for (const Class& each : classes_) {
    changed.push_back(each.places);
    for (const Place& place : each.places) {
      if (each.places.size() > 1) {
        changed.push_back({place});
      }
    }
  }
  for (const std::vector<Place>& places : changed) {
    for (const int64_t size : {1, 0}) {
      Sizes edge = with(sizes_[0], places, size);
      if (takes(edge, /*must_be_finite=*/false)) {
        edges_.push_back(std::move(edge));
      }
    }
  }
}

}  // namespace sconce
