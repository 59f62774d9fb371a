#include "executor/argument_spec/argument_spec.h"
#include "executor/argument_spec/words.h"

#include <algorithm>
#include <sstream>

namespace sconce {

std::string describe_spec(std::span<const uint64_t> words) {
  using namespace spec_words;
  std::ostringstream out;
  out << ((words[0] & 1) != 0 ? "grad mode" : "no grad") << ((words[0] & 2) != 0 ? ", inference mode" : "")
      << ((words[0] & 4) != 0 ? ", deterministic" : "");
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
      item << "argument " << (word & 0xffff) << " shares storage with " << ((word >> 16) & 0xffff);
    } else if (word == kPresent) {
      item << "present";
    } else if (word == kLong) {
      item << "long container";
    } else if ((word & kLengthTag) != 0) {
      item << "length " << (word & ~kLengthTag);
    } else if ((word & 3) == kNone) {
      item << "None";
    } else if ((word & 3) == kUndefined) {
      item << "undefined";
    } else {
      item << c10::toString(static_cast<c10::ScalarType>((word >> kDtypeShift) & 0x3f));
      const size_t rank = (word >> kRankShift) & 0x3f;
      item << "(";
      for (size_t dim = 0; dim < rank; ++dim) {
        item << (dim == 0 ? "" : ", ") << (((word >> (kOnesShift + dim)) & 1) != 0 ? "1" : "*");
      }
      item << ")";
      static constexpr const char* kClasses[] = {" strided", "", " channels_last", " channels_last_3d", " permuted"};
      item << kClasses[std::min<uint64_t>((word >> kStrideClassShift) & 7, 4)];
      if (((word >> kRequiresGradShift) & 1) != 0) {
        item << " requires_grad";
      }
      const auto device = static_cast<c10::DeviceType>((word >> kDeviceTypeShift) & 0x1f);
      if (device != c10::kCPU) {
        item << " " << c10::DeviceTypeName(device, true) << ":" << static_cast<int>((word >> kDeviceIndexShift) & 0xff) - 1;
      }
      if ((word & 3) == kExotic) {
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
