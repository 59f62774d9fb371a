#include "executor/argument_spec/argument_spec.h"
#include "executor/argument_spec/fields.h"

#include <algorithm>
#include <sstream>

namespace sconce {

std::string describe_spec(std::span<const uint64_t> words) {
  using namespace spec_words;
  std::ostringstream out;
  out << (kGradMode.of(words[0]) != 0 ? "grad mode" : "no grad")
      << (kInferenceMode.of(words[0]) != 0 ? ", inference mode" : "")
      << (kDeterministic.of(words[0]) != 0 ? ", deterministic" : "");
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
    std::ostringstream item;
    if ((word & kSharedStorageTag) != 0) {
      item << "argument " << kArgument.of(word) << " shares storage with " << kFirst.of(word);
    } else if (word == kPresent) {
      item << "present";
    } else if (word == kLong) {
      item << "long container";
    } else if ((word & kLengthTag) != 0) {
      item << "length " << kLength.of(word);
    } else if (kKind.of(word) == kNone) {
      item << "None";
    } else if (kKind.of(word) == kUndefined) {
      item << "undefined";
    } else {
      item << c10::toString(static_cast<c10::ScalarType>(kDtype.of(word)));
      const size_t rank = kRank.of(word);
      item << "(";
      for (size_t dim = 0; dim < rank; ++dim) {
        item << (dim == 0 ? "" : ", ") << (((kOnes.of(word) >> dim) & 1) != 0 ? "1" : "*");
      }
      item << ")";
      static constexpr const char* kClasses[] = {" strided", "", " channels_last", " channels_last_3d", " permuted"};
      item << kClasses[std::min<uint64_t>(kStrideClass.of(word), 4)];
      if (kRequiresGrad.of(word) != 0) {
        item << " requires_grad";
      }
      const auto device = static_cast<c10::DeviceType>(kDeviceType.of(word));
      if (device != c10::kCPU) {
        item << " " << c10::DeviceTypeName(device, true) << ":" << static_cast<int>(kDeviceIndex.of(word)) - 1;
      }
      if (kKind.of(word) == kExotic) {
        item << " exotic";
        ++i;  // its key set
      }
    }
    if (item.str() != previous) {
      flush();
      previous = item.str();
    }
    ++repeats;
  }
  flush();
  return out.str();
}

}  // namespace sconce
