// Checks a pickle before LibTorch's unpickler, which trusts much of it, sees it.
#pragma once

#include "load/check/zip_file.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

namespace sconce {

// The size in bytes of the record that holds the storage with this key; absent when there is none.
using StorageBytes = std::function<std::optional<uint64_t>(std::string_view key)>;

enum class PickleKind : uint8_t { kOther, kInt, kText, kTuple, kList, kDict, kGlobal, kStorage };

// What the checks need to know of a value. Values stand in one pool and are named by their place in it.
struct PickleValue {
  PickleKind kind = PickleKind::kOther;
  bool was_recalled = false;  // from the memo: it may stand in several places
  uint16_t depth = 0;
  int64_t number = 0;     // kInt: the value, kStorage: its bytes
  int64_t item_size = 0;  // kStorage: bytes of an element
  std::string_view text;  // kText; kGlobal: "module\nname". Views the pickle.
  std::vector<uint32_t> parts;
};

struct CheckedPickle {
  std::vector<PickleValue> values;
  uint32_t root = 0;
  bool has_meta_storages = false;  // they have a size and no data
  const PickleValue& operator[](uint32_t place) const { return values[place]; }
};

// Walks through protocol 2 of Python's pickle, as LibTorch reads it, without making anything. Throws MalformedArchive, with
// the place, unless every opcode is one that LibTorch knows and finds on the stack what it takes, nothing holds itself or is
// nested deeper than a thousand times, and every tensor lies inside of its storage and every storage inside of its record;
// one on the meta device has none. The protocol: Python's pickletools.py.
CheckedPickle check_pickle(Bytes pickle, const StorageBytes& storage_bytes);

// The pickle behind a file of code: which lines of the model's Python it came from. Throws MalformedArchive unless every
// text it names is in its table and every range lies inside of its text: LibTorch looks them up without asking.
void check_source_ranges(const CheckedPickle& pickle);

}  // namespace sconce
