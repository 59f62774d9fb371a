#include "executor/recorded_calls/result_checks.h"

#include "base/storage_of.h"
#include "trace/tracer.h"

#include <algorithm>

namespace sconce {
namespace {

// Adds the lists and dicts in a value.
void add_containers(const c10::IValue& value, std::vector<c10::IValue>& found) {
  if (value.isTuple()) {
    for (const c10::IValue& element : value.toTupleRef().elements()) {
      add_containers(element, found);
    }
  } else if (value.isList()) {
    found.push_back(value);
    for (const c10::IValue& element : value.toListRef()) {
      add_containers(element, found);
    }
  } else if (value.isGenericDict()) {
    found.push_back(value);
    for (const auto& entry : value.toGenericDict()) {
      add_containers(entry.value(), found);
    }
  }
}

}  // namespace

bool is_plain(const c10::IValue& value) {
  if (value.isTuple()) {
    return std::ranges::all_of(value.toTupleRef().elements(), is_plain);
  }
  if (value.isList()) {
    return std::ranges::all_of(value.toListRef(), is_plain);
  }
  if (value.isGenericDict()) {
    const auto dict = value.toGenericDict();
    return std::all_of(dict.begin(), dict.end(), [](const auto& entry) { return is_plain(entry.value()); });
  }
  return value.isTensor() || value.isNone() || value.isScalar() || value.isString() || value.isDevice();
}

bool share_containers(const c10::IValue& value, const std::vector<c10::IValue>& others) {
  std::vector<c10::IValue> own;
  std::vector<c10::IValue> of_others;
  add_containers(value, own);
  for (const c10::IValue& other : others) {
    add_containers(other, of_others);
  }
  return std::ranges::any_of(own, [&](const c10::IValue& container) {
    return std::ranges::any_of(of_others, [&](const c10::IValue& other) { return container.is(other); });
  });
}

const char* why_not_new(const std::vector<at::Tensor>& results, const std::vector<at::Tensor>& others) {
  std::vector<const c10::StorageImpl*> known;
  for (const at::Tensor& other : others) {
    known.push_back(storage_of(real_of(other)));
  }
  for (const at::Tensor& result : results) {
    const c10::StorageImpl* storage = storage_of(real_of(result));
    if (TraceTensor::of(result) == nullptr || storage == nullptr) {
      return "it returns a tensor that no operator has computed in the call";
    }
    if (result.requires_grad() && result.is_leaf()) {
      return "it has a result require a gradient";
    }
    if (result.retains_grad()) {
      return "it retains the gradient of a result";
    }
    if (real_of(result).is_conj() || real_of(result).is_neg()) {
      return "a result is conjugated or negated when it is read";
    }
    // A plan hands out memory of its own for each result, without what lies between or below the elements of a view.
    if (!real_of(result).is_non_overlapping_and_dense()) {
      return "a result is a view whose elements have gaps or overlap";
    }
    if (std::ranges::find(known, storage) != known.end()) {
      return "a result shares memory with an argument, a parameter or another result";
    }
    known.push_back(storage);
  }
  return nullptr;
}

}  // namespace sconce
