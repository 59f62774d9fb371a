// The bits of the words of an ArgumentSpec, as argument_spec.h draws them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sconce::spec_words {

enum Kind : uint64_t { kNone = 0, kUndefined = 1, kPlain = 2, kExotic = 3 };
constexpr int kDtypeShift = 2;
constexpr int kDeviceTypeShift = 8;
constexpr int kDeviceIndexShift = 13;
constexpr int kRankShift = 21;
constexpr int kRequiresGradShift = 27;
constexpr int kStrideClassShift = 28;
constexpr int kOnesShift = 31;
constexpr size_t kMaxRank = 16;
// Lengths and groups: no tensor's word has its highest bits set.
constexpr uint64_t kLengthTag = uint64_t{1} << 62;
constexpr uint64_t kPresent = kLengthTag | uint64_t{1} << 61;
constexpr uint64_t kLong = kLengthTag | uint64_t{1} << 60;
constexpr size_t kMaxElements = 64;
constexpr uint64_t kSharedStorageTag = uint64_t{1} << 63;
// The words of the thread's and the process's state stand first.
constexpr size_t kStateWords = 3;

}  // namespace sconce::spec_words
