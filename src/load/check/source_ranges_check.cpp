#include "load/check/pickle_check.h"

namespace sconce {
namespace {

using Kind = PickleKind;

void require(bool holds) {
  if (!holds) {
    throw MalformedArchive("a source range is not described as LibTorch does");
  }
}

// The pickle has two forms. Since PyTorch 1.11 it is ("FORMAT_WITH_STRING_TABLE", texts, rows); sources are lists of
// indices into `texts`, and file names are indices, too. Before 1.11 it has the rows only, with both as texts.
class SourceRanges {
 public:
  explicit SourceRanges(const CheckedPickle& pickle) : pickle_(pickle) {}

  void check() {
    const PickleValue* rows = &pickle_[pickle_.root];
    const auto& parts = rows->parts;
    if (parts.size() == 3 && pickle_[parts[0]].text == "FORMAT_WITH_STRING_TABLE") {
      texts_ = &pickle_[parts[1]];
      rows = &pickle_[parts[2]];
      for (const uint32_t text : texts_->parts) {
        require(pickle_[text].kind == Kind::kText);
      }
    }
    require(rows->kind == Kind::kTuple || rows->kind == Kind::kList);
    for (const uint32_t row : rows->parts) {
      check_row(pickle_[row]);
    }
  }

 private:
  // (byte of the code, range[, tag])
  void check_row(const PickleValue& row) const {
    require(row.kind == Kind::kTuple && (row.parts.size() == 2 || row.parts.size() == 3));
    require(pickle_[row.parts[0]].kind == Kind::kInt);
    check_range(pickle_[row.parts[1]]);
  }

  // (source, first byte, end)
  void check_range(const PickleValue& range) const {
    require(range.kind == Kind::kTuple && range.parts.size() == 3);
    const PickleValue& begin = pickle_[range.parts[1]];
    const PickleValue& end = pickle_[range.parts[2]];
    require(begin.kind == Kind::kInt && end.kind == Kind::kInt);
    const int64_t length = length_of(pickle_[range.parts[0]]);
    // Python counts `1e9` as if it were `1000000000.0`, so that a range may end after its text; LibTorch's readers then take
    // the end of the text.
    require(begin.number >= 0 && begin.number <= end.number && begin.number <= length + 1);
  }

  // (text, file name, line)
  int64_t length_of(const PickleValue& source) const {
    require(source.kind == Kind::kTuple && source.parts.size() == 3);
    const PickleValue& text = pickle_[source.parts[0]];
    require(pickle_[source.parts[2]].kind == Kind::kInt);
    if (texts_ == nullptr) {
      require(text.kind == Kind::kText);
      return static_cast<int64_t>(text.text.size());
    }
    place_in_texts(source.parts[1]);
    require(text.kind == Kind::kList);
    int64_t length = 0;
    for (const uint32_t piece : text.parts) {
      length += static_cast<int64_t>(place_in_texts(piece).text.size());
    }
    return length;
  }

  const PickleValue& place_in_texts(uint32_t number) const {
    const PickleValue& place = pickle_[number];
    require(place.kind == Kind::kInt && place.number >= 0 && static_cast<uint64_t>(place.number) < texts_->parts.size());
    return pickle_[texts_->parts[static_cast<size_t>(place.number)]];
  }

  const CheckedPickle& pickle_;
  const PickleValue* texts_ = nullptr;
};

}  // namespace

void check_source_ranges(const CheckedPickle& pickle) { SourceRanges(pickle).check(); }

}  // namespace sconce
