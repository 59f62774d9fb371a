// Checks a pickle before LibTorch's unpickler reads it, because the unpickler trusts much of its input.
#pragma once

#include "load/check/zip_file.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

namespace sconce {

// Returns the size in bytes of the record that holds the storage with this key; nothing if there is none.
using StorageBytes = std::function<std::optional<uint64_t>(std::string_view key)>;

enum class PickleKind : uint8_t { kOther, kInt, kText, kTuple, kList, kDict, kGlobal, kStorage };

// The properties of a value that the checks need. Values are kept in one pool and referred to by index.
struct PickleValue {
  PickleKind kind = PickleKind::kOther;
  bool was_recalled = false;  // read from the memo, so it may occur in several places
  uint16_t depth = 0;
  int64_t number = 0;     // kInt: the value, kStorage: its bytes
  int64_t item_size = 0;  // kStorage: bytes of an element
  std::string_view text;  // kText; kGlobal: "module\nname". Views the pickle.
  std::vector<uint32_t> parts;
};

struct CheckedPickle {
  std::vector<PickleValue> values;
  uint32_t root = 0;
  bool has_meta_storages = false;  // some storage has a size and no data
  const PickleValue& operator[](uint32_t place) const { return values[place]; }
};

// Walks through a pickle of protocol 2, as LibTorch reads it, without creating objects. Python's pickletools.py documents
// the protocol. Throws MalformedArchive, with the place, unless
//   - LibTorch knows every opcode, and each opcode finds its operands on the stack;
//   - no value contains itself, or nests deeper than a thousand levels;
//   - every tensor is inside its storage, and every storage inside its record. A storage on the meta device has no record.
CheckedPickle check_pickle(Bytes pickle, const StorageBytes& storage_bytes);

// Checks the pickle of source ranges that belongs to a file of code. Throws MalformedArchive unless every text that it names
// is in its table, and every range is inside its text: LibTorch looks them up unchecked.
void check_source_ranges(const CheckedPickle& pickle);

}  // namespace sconce
