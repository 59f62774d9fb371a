#include "tests/differential/facts_coverage.h"

#include "tests/differential/data_dependence.h"
#include "tests/differential/facts_claims.h"
#include "tests/differential/memory_claims.h"

#include <algorithm>
#include <iomanip>
#include <sstream>
#include <unordered_map>

namespace sconce::testing {
namespace {

bool all_known(const std::optional<std::vector<Dim>>& dims) {
  return dims && std::none_of(dims->begin(), dims->end(), [](Dim dim) { return dim.is_unknown(); });
}

bool is_known(const Value& value) {
  return value.facts() != nullptr && value.facts()->dtype && all_known(value.facts()->sizes);
}

bool is_tensor(const Value& value) { return value.type()->kind() == c10::TypeKind::TensorType; }

// What no run made has the facts of the text, which name no device.
bool was_made(const Value& value) {
  const TensorFacts* facts = value.facts();
  return is_tensor(value) && facts != nullptr && facts->defined != false && facts->sizes && facts->device;
}

}  // namespace

void Coverage::operator+=(const Coverage& other) {
  tensors += other.tensors;
  known += other.known;
  strides += other.strides;
  determined += other.determined;
  determined_known += other.determined_known;
}

Comparison compare_facts(const Graph& claimed, const Graph& seen, const Graph& exact) {
  const auto claims = values_in_order(claimed);
  const auto sights = values_in_order(seen);
  const auto exacts = values_in_order(exact);
  std::unordered_map<const Value*, const Value*> exact_of;
  for (size_t i = 0; i < sights.size(); ++i) {
    exact_of.emplace(sights[i], exacts[i]);
  }
  const DataDependence dependence(seen, [&](const Value& value) { return is_known(*exact_of.at(&value)); });
  Comparison result;
  SymbolNumbers symbols;
  for (size_t i = 0; i < claims.size(); ++i) {
    if (!was_made(*sights[i])) {
      continue;
    }
    const TensorFacts& sight = *sights[i]->facts();
    const TensorFacts claim = claims[i]->facts() == nullptr ? TensorFacts{} : *claims[i]->facts();
    if (contradict(claim, sight, symbols)) {
      result.contradictions.push_back(std::string(claims[i]->node()->kind().toQualString()) + ": " + to_string(claim) +
                                      ", seen was " + to_string(sight));
    }
    const bool known = is_known(*claims[i]);
    const bool determined = all_known(sight.sizes) && !dependence.depends_on_data(*sights[i]);
    result.coverage.tensors += 1;
    result.coverage.known += known ? 1 : 0;
    result.coverage.strides += known && (claim.sizes->empty() || all_known(claim.strides)) ? 1 : 0;
    result.coverage.determined += determined ? 1 : 0;
    result.coverage.determined_known += determined && known ? 1 : 0;
    const auto operands = claims[i]->node()->inputs();
    if (!known && determined && std::all_of(operands.begin(), operands.end(), [](const Value* operand) {
          return !is_tensor(*operand) || is_known(*operand);
        })) {
      ++result.unknown[claims[i]->node()->kind().toQualString()];
    }
  }
  return result;
}

std::string percent(size_t part, size_t whole) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(1)
      << (whole == 0 ? 100.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole)) << " %";
  return out.str();
}

}  // namespace sconce::testing
