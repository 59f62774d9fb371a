#include "load/check/pickle_check.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <unordered_set>
#include <vector>

namespace sconce {
namespace {

using Kind = PickleKind;

using Index = uint32_t;

constexpr uint16_t kDeepest = 1000;

// Returns the bytes of an element of "FloatStorage" and the like; 0 for a name that is not a storage type.
int64_t item_size_of_storage(std::string_view name) {
#define SCONCE_STORAGE(_, type)                                           \
  if (name == "torch\n" #type "Storage") {                                \
    return static_cast<int64_t>(c10::elementSize(c10::ScalarType::type)); \
  }
  AT_FORALL_SCALAR_TYPES_WITH_COMPLEX_AND_QINTS(SCONCE_STORAGE)
#undef SCONCE_STORAGE
  return 0;
}

class PickleChecker {
 public:
  PickleChecker(Bytes pickle, const StorageBytes& storage_bytes) : pickle_(pickle), storage_bytes_(storage_bytes) {}

  CheckedPickle check() {
    require(byte() == 0x80 && byte() == 2, "it is not in protocol 2");
    while (step()) {
    }
    require(stack_.size() == 1, "it leaves more than one value, or none");
    return {std::move(values_), stack_.back(), has_meta_storages_};
  }

 private:
  void require(bool holds, const char* problem) const {
    if (!holds) {
      throw MalformedArchive(std::string(problem) + " (byte " + std::to_string(position_) + ")");
    }
  }

  // ---- reading ------------------------------------------------------------------------------------------------------

  uint8_t byte() { return take(1)[0]; }
  Bytes take(uint64_t count) {
    require(count <= pickle_.size() - position_, "it ends in the middle");
    const Bytes taken = pickle_.subspan(position_, count);
    position_ += count;
    return taken;
  }
  int64_t number(size_t bytes) {
    uint64_t value = 0;
    const Bytes read = take(bytes);
    for (size_t i = 0; i < bytes; ++i) {
      value |= static_cast<uint64_t>(read[i]) << (8 * i);
    }
    return static_cast<int64_t>(value);
  }
  static std::string_view text_of(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
  // Returns two lines as one text, with the newline between them.
  std::string_view lines() {
    const uint64_t begin = position_;
    for (int ends = 0; ends < 2;) {
      const uint8_t letter = byte();
      const bool is_letter = letter == '_' || letter == '.' || std::isalnum(letter) != 0;
      require(is_letter || letter == '\n', "a name has letters that no name has");
      ends += letter == '\n' ? 1 : 0;
    }
    return text_of(pickle_.subspan(begin, position_ - begin - 1));
  }

  // ---- values -------------------------------------------------------------------------------------------------------

  const PickleValue& value(Index index) const { return values_[index]; }

  Index make(Kind kind, std::vector<Index> parts = {}) {
    PickleValue made;
    made.kind = kind;
    values_.push_back(std::move(made));
    const Index index = static_cast<Index>(values_.size() - 1);
    add_parts(index, parts);
    return index;
  }
  void add_parts(Index whole, const std::vector<Index>& parts) {
    for (const Index part : parts) {
      require(!holds(part, whole), "a value holds itself");
      values_[whole].parts.push_back(part);
      values_[whole].depth = std::max<uint16_t>(values_[whole].depth, static_cast<uint16_t>(value(part).depth + 1));
      require(value(whole).depth <= kDeepest, "values are nested too deeply");
    }
  }
  // A value that occurs once, on the stack, is contained in no other value.
  bool holds(Index part, Index whole) const {
    if (!value(whole).was_recalled) {
      return false;
    }
    std::unordered_set<Index> seen;
    std::vector<Index> open = {part};
    while (!open.empty()) {
      const Index each = open.back();
      open.pop_back();
      if (each == whole) {
        return true;
      }
      if (seen.insert(each).second) {
        open.insert(open.end(), value(each).parts.begin(), value(each).parts.end());
      }
    }
    return false;
  }

  void push(Index index) { stack_.push_back(index); }
  void push_number(int64_t number) {
    push(make(Kind::kInt));
    values_.back().number = number;
  }
  Index pop() {
    require(stack_.size() > (marks_.empty() ? 0 : marks_.back()), "an instruction lacks its operand");
    const Index index = stack_.back();
    stack_.pop_back();
    return index;
  }
  Index top() const {
    require(stack_.size() > (marks_.empty() ? 0 : marks_.back()), "an instruction lacks its operand");
    return stack_.back();
  }
  std::vector<Index> pop_to_mark() {
    require(!marks_.empty(), "a mark is missing");
    const std::vector<Index> popped(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return popped;
  }
  Index top_of_kind(Kind kind) const {
    require(value(top()).kind == kind, "an instruction is given a value of another kind");
    return top();
  }

  // ---- instructions -------------------------------------------------------------------------------------------------

  // Runs one opcode; returns false after the last. The letters are the protocol's.
  bool step() {
    switch (byte()) {
      case '.': return false;                                         // STOP
      case '(': marks_.push_back(stack_.size()); break;               // MARK
      case 'N':                                                       // NONE
      case 0x88:                                                      // NEWTRUE
      case 0x89: push(make(Kind::kOther)); break;                     // NEWFALSE
      case 'K': push_number(number(1)); break;                        // BININT1
      case 'M': push_number(number(2)); break;                        // BININT2
      case 'J': push_number(static_cast<int32_t>(number(4))); break;  // BININT
      case 0x8a:                                                      // LONG1
        require(byte() == 8, "an integer is not of 8 bytes");
        push_number(number(8));
        break;
      case 'G': take(8), push(make(Kind::kOther)); break;                  // BINFLOAT
      case 'X': push_text(take(static_cast<uint64_t>(number(4)))); break;  // BINUNICODE
      case ']': push(make(Kind::kList)); break;                            // EMPTY_LIST
      case '}': push(make(Kind::kDict)); break;                            // EMPTY_DICT
      case ')': push(make(Kind::kTuple)); break;                           // EMPTY_TUPLE
      case 't': push(make(Kind::kTuple, pop_to_mark())); break;            // TUPLE
      case 0x85: push_tuple(1); break;                                     // TUPLE1
      case 0x86: push_tuple(2); break;                                     // TUPLE2
      case 0x87: push_tuple(3); break;                                     // TUPLE3
      case 'l': push(make(Kind::kList, pop_to_mark())); break;             // LIST
      case 'd': push(make(Kind::kDict, pop_pairs())); break;               // DICT
      case 'a': append_one(); break;                                       // APPEND
      case 'e': append(pop_to_mark()); break;                              // APPENDS
      case 'u': set_items(pop_pairs()); break;                             // SETITEMS
      case 's': set_item(); break;                                         // SETITEM
      case 'q': remember(static_cast<uint64_t>(number(1))); break;         // BINPUT
      case 'r': remember(static_cast<uint64_t>(number(4))); break;         // LONG_BINPUT
      case 'h': recall(static_cast<uint64_t>(number(1))); break;           // BINGET
      case 'j': recall(static_cast<uint64_t>(number(4))); break;           // LONG_BINGET
      case 'c':                                                            // GLOBAL
        push(make(Kind::kGlobal));
        values_.back().text = lines();
        break;
      case 0x81: pop(); break;                     // NEWOBJ: LibTorch builds with BUILD
      case 'b':                                    // BUILD
      case 'R': call(); break;                     // REDUCE
      case 'Q': push(find_storage(pop())); break;  // BINPERSID
      default: --position_; require(false, "an instruction is none that LibTorch reads");
    }
    return true;
  }

  void push_text(Bytes text) {
    push(make(Kind::kText));
    values_.back().text = text_of(text);
  }
  void push_tuple(size_t size) {
    std::vector<Index> parts(size);
    for (size_t i = size; i > 0; --i) {
      parts[i - 1] = pop();
    }
    push(make(Kind::kTuple, std::move(parts)));
  }
  std::vector<Index> pop_pairs() {
    std::vector<Index> pairs = pop_to_mark();
    require(pairs.size() % 2 == 0, "a key lacks its value");
    return pairs;
  }
  void append_one() {
    const Index item = pop();
    append({item});
  }
  void append(const std::vector<Index>& items) { add_parts(top_of_kind(Kind::kList), items); }
  void set_items(const std::vector<Index>& pairs) { add_parts(top_of_kind(Kind::kDict), pairs); }
  void set_item() {
    const Index item = pop();
    const Index key = pop();
    set_items({key, item});
  }

  // Every put takes two bytes, so no pickle can reach an index above its size.
  void remember(uint64_t place) {
    require(place < pickle_.size(), "a place of the memo is out of range");
    if (place >= memo_.size()) {
      memo_.resize(place + 1, kNothing);
    }
    memo_[place] = top();
  }
  void recall(uint64_t place) {
    require(place < memo_.size() && memo_[place] != kNothing, "a place of the memo is read before it is written");
    values_[memo_[place]].was_recalled = true;
    push(memo_[place]);
  }

  // Takes a global and its argument.
  void call() {
    const Index argument = pop();
    const Index callee = pop();
    require(value(callee).kind == Kind::kGlobal, "something is called that is no function and no class");
    const std::string_view name = value(callee).text;
    if (rebuilds_tensor(name)) {
      check_tensor(argument);
    } else if (name == "torch._tensor\n_rebuild_from_type_v2") {
      // (function, type of the tensor, its arguments, attributes)
      const auto& parts = value(argument).parts;
      require(value(argument).kind == Kind::kTuple && parts.size() == 4, "a tensor is not described as LibTorch does");
      if (rebuilds_tensor(value(parts[0]).text)) {
        check_tensor(parts[2]);
      }
    }
    // LibTorch's typed lists are the list they are given.
    const bool is_typed =
        name.starts_with("torch.jit._pickle\n") && value(argument).kind == Kind::kTuple && !value(argument).parts.empty();
    push(is_typed ? value(argument).parts[0] : make(Kind::kOther, {argument}));
  }

  static bool rebuilds_tensor(std::string_view name) {
    return name == "torch._utils\n_rebuild_tensor_v2" || name == "torch._utils\n_rebuild_qtensor";
  }

  // ---- tensors ------------------------------------------------------------------------------------------------------

  // ("storage", type, key, device, number of elements)
  Index find_storage(Index tuple) {
    const std::vector<Index> parts = value(tuple).parts;
    require(value(tuple).kind == Kind::kTuple && parts.size() == 5 && value(parts[0]).text == "storage" &&
                value(parts[2]).kind == Kind::kText && value(parts[3]).kind == Kind::kText &&
                value(parts[4]).kind == Kind::kInt,
            "a storage is not described as LibTorch does");
    const int64_t item_size = item_size_of_storage(value(parts[1]).text);
    require(value(parts[1]).kind == Kind::kGlobal && item_size > 0, "a storage has elements of an unknown type");
    const int64_t count = value(parts[4]).number;
    int64_t bytes = 0;
    require(count >= 0 && !__builtin_mul_overflow(count, item_size, &bytes), "a storage has an impossible size");
    const bool is_meta = value(parts[3]).text == "meta";
    has_meta_storages_ = has_meta_storages_ || is_meta;
    if (count > 0 && !is_meta) {
      const auto stored = storage_bytes_(value(parts[2]).text);
      require(stored.has_value(), "a storage is not in the archive");
      require(static_cast<uint64_t>(bytes) <= *stored, "a storage is larger than what the archive holds of it");
    }
    const Index storage = make(Kind::kStorage);
    values_[storage].number = bytes;
    values_[storage].item_size = item_size;
    return storage;
  }

  // (storage, offset, sizes, strides, …): the last element must be inside the storage.
  void check_tensor(Index tuple) const {
    const std::vector<Index>& parts = value(tuple).parts;
    require(value(tuple).kind == Kind::kTuple && parts.size() >= 6 && value(parts[0]).kind == Kind::kStorage &&
                value(parts[1]).kind == Kind::kInt && is_tuple_of_numbers(parts[2]) && is_tuple_of_numbers(parts[3]) &&
                value(parts[2]).parts.size() == value(parts[3]).parts.size(),
            "a tensor is not described as LibTorch does");
    int64_t end = value(parts[1]).number;
    require(end >= 0, "a tensor begins before its storage");
    bool is_empty = false;
    bool is_possible = true;
    for (size_t i = 0; i < value(parts[2]).parts.size(); ++i) {
      const int64_t size = value(value(parts[2]).parts[i]).number;
      const int64_t stride = value(value(parts[3]).parts[i]).number;
      int64_t extent = 0;
      is_possible = is_possible && size >= 0 && stride >= 0 &&
                    !__builtin_mul_overflow(std::max<int64_t>(size - 1, 0), stride, &extent) &&
                    !__builtin_add_overflow(end, extent, &end);
      is_empty = is_empty || size == 0;
    }
    const PickleValue& storage = value(parts[0]);
    require(is_possible && (is_empty || end < storage.number / storage.item_size), "a tensor reaches beyond its storage");
  }
  bool is_tuple_of_numbers(Index tuple) const {
    const auto& parts = value(tuple).parts;
    return value(tuple).kind == Kind::kTuple &&
           std::all_of(parts.begin(), parts.end(), [&](Index part) { return value(part).kind == Kind::kInt; });
  }

  static constexpr Index kNothing = ~Index{0};
  Bytes pickle_;
  const StorageBytes& storage_bytes_;
  bool has_meta_storages_ = false;
  uint64_t position_ = 0;
  std::vector<PickleValue> values_;
  std::vector<Index> stack_;
  std::vector<size_t> marks_;
  std::vector<Index> memo_;
};

}  // namespace

CheckedPickle check_pickle(Bytes pickle, const StorageBytes& storage_bytes) {
  return PickleChecker(pickle, storage_bytes).check();
}

}  // namespace sconce
