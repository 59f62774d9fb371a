#include "executor/argument_spec/argument_spec.h"
#include "executor/argument_spec/fields.h"

#include <c10/core/DispatchKeySet.h>

#include <algorithm>
#include <bit>
#include <sstream>

namespace sconce {
namespace {

using namespace spec_words;

// Returns the names of the backends and functionalities in the raw representation of a DispatchKeySet. One for each bit,
// so that other sets have other names.
std::string names_of_keys(uint64_t keys) {
  std::string names;
  for (; keys != 0; keys &= keys - 1) {
    const int bit = std::countr_zero(keys);
    names += names.empty() ? "" : " ";
    names += bit < c10::num_backends ? c10::toString(static_cast<c10::BackendComponent>(bit + 1))
                                     : c10::toString(static_cast<c10::DispatchKey>(bit - c10::num_backends + 1));
  }
  return names;
}

std::string keys_if_any(const char* what, uint64_t keys) {
  return keys == 0 ? "" : std::string(", ") + what + " " + names_of_keys(keys);
}

// Describes the words of the state: the modes of autograd, and whatever differs from a new thread in these modes.
std::string describe_state(std::span<const uint64_t> words) {
  const uint64_t word = words[0];
  const bool is_inference = kInferenceMode.of(word) != 0;
  std::string text = kGradMode.of(word) != 0 ? "grad mode" : "no grad";
  text += is_inference ? ", inference mode" : "";
  text += kDeterministic.of(word) != 0 ? ", deterministic" : "";
  text += kWarnOnly.of(word) != 0 ? ", warn only" : "";
  if (const auto dtype = static_cast<c10::ScalarType>(kDefaultDtype.of(word)); dtype != c10::kFloat) {
    text += std::string(", default dtype ") + c10::toString(dtype);
  }
  // c10::InferenceMode changes both sets.
  uint64_t included = c10::default_included_set.raw_repr();
  uint64_t excluded = c10::default_excluded_set.raw_repr();
  if (is_inference) {
    included &= ~c10::DispatchKeySet(c10::DispatchKey::ADInplaceOrView).raw_repr();
    excluded |= c10::autograd_dispatch_keyset.raw_repr();
  }
  return text + keys_if_any("also included:", words[1] & ~included) + keys_if_any("not included:", included & ~words[1]) +
         keys_if_any("also excluded:", words[2] & ~excluded) + keys_if_any("not excluded:", excluded & ~words[2]);
}

std::string describe_device(uint64_t word) {
  const auto type = static_cast<c10::DeviceType>(kDeviceType.of(word));
  const uint64_t index = kDeviceIndex.of(word);
  if (type == c10::kCPU && index == 0) {
    return "";
  }
  return " " + c10::DeviceTypeName(type, true) + (index == 0 ? "" : ":" + std::to_string(index - 1));
}

std::string describe_plain(uint64_t word) {
  std::string text = std::string(c10::toString(static_cast<c10::ScalarType>(kDtype.of(word)))) + "(";
  for (size_t dim = 0; dim < kRank.of(word); ++dim) {
    text += dim == 0 ? "" : ", ";
    text += ((kOnes.of(word) >> dim) & 1) != 0 ? "1" : "*";
  }
  static constexpr const char* kClasses[] = {" strided", "", " channels_last", " channels_last_3d", " permuted"};
  text += std::string(")") + kClasses[std::min<uint64_t>(kStrideClass.of(word), 4)];
  return text + (kRequiresGrad.of(word) != 0 ? " requires_grad" : "") + describe_device(word);
}

std::string describe_exotic(uint64_t word, uint64_t keys) {
  return std::string("exotic ") + c10::toString(static_cast<c10::ScalarType>(kDtype.of(word))) +
         (kRequiresGrad.of(word) != 0 ? " requires_grad" : "") + describe_device(word) + ", keys: " + names_of_keys(keys);
}

}  // namespace

std::string describe_spec(std::span<const uint64_t> words) {
  std::ostringstream out;
  out << describe_state(words);
  // Repeated descriptions are counted.
  std::string previous;
  size_t repeats = 0;
  const auto flush = [&] {
    if (repeats > 0) {
      out << "; " << previous << (repeats > 1 ? " x" + std::to_string(repeats) : "");
    }
    repeats = 0;
  };
  for (size_t i = kStateWords; i < words.size(); ++i) {
    const uint64_t word = words[i];
    std::string item;
    if ((word & kSharedStorageTag) != 0) {
      item = "argument " + std::to_string(kArgument.of(word)) + " shares storage with " + std::to_string(kFirst.of(word));
    } else if (word == kPresent) {
      item = "present";
    } else if (word == kLong) {
      item = "long container";
    } else if ((word & kLengthTag) != 0) {
      item = "length " + std::to_string(kLength.of(word));
    } else if (kKind.of(word) == kNone) {
      item = "None";
    } else if (kKind.of(word) == kUndefined) {
      item = "undefined";
    } else if (kKind.of(word) == kExotic) {
      item = describe_exotic(word, words[++i]);
    } else {
      item = describe_plain(word);
    }
    if (item != previous) {
      flush();
      previous = item;
    }
    ++repeats;
  }
  flush();
  return out.str();
}

}  // namespace sconce
