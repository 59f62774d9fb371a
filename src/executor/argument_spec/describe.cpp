#include "executor/argument_spec/argument_spec.h"
#include "executor/argument_spec/reader.h"
#include "executor/argument_spec/writer.h"

#include <c10/core/DispatchKeySet.h>

#include <algorithm>
#include <bit>
#include <iomanip>
#include <limits>
#include <sstream>
#include <utility>
#include <vector>

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
  for (const auto& [field, device] : {std::pair(kAutocastDtype, ""), std::pair(kDeviceAutocastDtype, " on the device")}) {
    if (const uint64_t dtype = field.of(word); dtype != 0) {
      text += std::string(", autocast to ") + c10::toString(static_cast<c10::ScalarType>(dtype - 1)) + device;
    }
  }
  const bool casts = kAutocastDtype.of(word) != 0 || kDeviceAutocastDtype.of(word) != 0;
  text += casts && kAutocastCache.of(word) == 0 ? " without its cache" : "";
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
  static constexpr const char* kClasses[] = {" strided",          "",          " channels_last",
                                             " channels_last_3d", " permuted", " nearly_contiguous"};
  text += std::string(")") + kClasses[std::min<uint64_t>(kStrideClass.of(word), std::size(kClasses) - 1)];
  return text + (kRequiresGrad.of(word) != 0 ? " requires_grad" : "") + (kInference.of(word) != 0 ? " inference" : "") +
         describe_device(word);
}

// In as many digits as distinguish it, with a point.
std::string describe_number(double number) {
  std::ostringstream out;
  out << std::setprecision(std::numeric_limits<double>::max_digits10) << number;
  return out.str() + (out.str().find_first_of(".en") == std::string::npos ? ".0" : "");
}

std::string describe_exotic(uint64_t word, uint64_t keys) {
  return std::string("exotic ") + c10::toString(static_cast<c10::ScalarType>(kDtype.of(word))) +
         (kRequiresGrad.of(word) != 0 ? " requires_grad" : "") + describe_device(word) + ", keys: " + names_of_keys(keys);
}

std::string describe_integers(std::span<const uint64_t> integers) {
  std::string text;
  for (const uint64_t integer : integers) {
    text += (text.empty() ? "" : ", ") + std::to_string(static_cast<int64_t>(integer));
  }
  return "[" + text + "]";
}

std::string describe_other(const SpecItem& item) {
  const std::string length = std::to_string(item.length());
  switch (static_cast<Form>(kForm.of(item.word))) {
    case kPresent: return "present";
    case kLong: return "long container";
    case kList: return "list of " + length;
    case kTuple: return "tuple of " + length;
    case kNumbers: return "numbers: " + length;
    case kDict: return "dict of " + length;
    case kTensorDict: return "dict by tensors of " + length;
    case kInteger: return std::to_string(static_cast<int64_t>(item.payload[0]));
    case kFloat: return describe_number(std::bit_cast<double>(item.payload[0]));
    case kBool: return item.length() != 0 ? "true" : "false";
    case kString: return c10::str(std::quoted(item.text()));
    case kIntegers: return describe_integers(item.payload);
    case kSizes: break;  // described together
  }
  return "unknown";
}

std::string describe_item(const SpecItem& item) {
  if (item.is_shared_storage()) {
    return (kIsAttribute.of(item.word) != 0 ? "attribute " : "argument ") + std::to_string(kSharer.of(item.word)) +
           " shares storage with argument " + std::to_string(kFirst.of(item.word));
  }
  if (item.is_other()) {
    return describe_other(item);
  }
  switch (static_cast<Kind>(item.kind())) {
    case kNone: return "None";
    case kUndefined: return "undefined";
    case kExotic: return describe_exotic(item.word, item.payload[0]);
    case kPlain: return describe_plain(item.word);
  }
  return "unknown";
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
  std::vector<uint64_t> sizes;
  for (SpecReader reader(words); !reader.is_at_end();) {
    const SpecItem next = reader.next();
    if (next.has_form(kSizes)) {
      sizes.push_back(next.length());
      sizes.insert(sizes.end(), next.payload.begin(), next.payload.end());
      continue;
    }
    const std::string item = describe_item(next);
    if (item != previous) {
      flush();
      previous = item;
    }
    ++repeats;
  }
  flush();
  if (!sizes.empty()) {
    out << "; parameters of sizes #" << std::hex << hash_words(sizes.data(), sizes.size());
  }
  return out.str();
}

}  // namespace sconce
