#include "executor/argument_spec/reader.h"

#include "base/assert.h"

namespace sconce {

using namespace spec_words;

uint64_t SpecItem::element_count() const {
  if (!is_other()) {
    return 0;
  }
  switch (static_cast<Form>(kForm.of(word))) {
    case kList:
    case kTuple:
    case kDict: return length();
    case kTensorDict: return 2 * length();
    default: return 0;
  }
}

std::string SpecItem::text() const {
  std::string bytes(reinterpret_cast<const char*>(payload.data()), payload.size_bytes());
  bytes.resize(length());
  return bytes;
}

SpecItem SpecReader::next() {
  SCONCE_ASSERT(!words_.empty(), "a spec ends early");
  SpecItem item{words_.front(), {}};
  size_t payload = 0;
  if (item.has_form(kInteger) || item.has_form(kFloat)) {
    payload = 1;
  } else if (item.has_form(kSizes) || item.has_form(kIntegers)) {
    payload = item.length();
  } else if (item.has_form(kString)) {
    payload = (item.length() + sizeof(uint64_t) - 1) / sizeof(uint64_t);
  } else if (!item.is_shared_storage() && !item.is_other() && item.kind() == kExotic) {
    payload = 1;
  }
  item.payload = words_.subspan(1, payload);
  words_ = words_.subspan(1 + payload);
  return item;
}

}  // namespace sconce
