// What is fuzzed: by libFuzzer (libfuzzer/), and by the short runs of `make test`.
#pragma once

#include "base/assert.h"
#include "ir/text/lexer.h"
#include "ir/text/parse.h"
#include "ir/text/print.h"
#include "load/check/archive.h"

#include <c10/util/Exception.h>

#include <string>
#include <string_view>

namespace sconce::testing {

// The checks that a model file passes before LibTorch sees it. Whether they find nothing.
inline bool fuzz_archive_check(Bytes file) {
  try {
    check_archive_bytes(file);
    return true;
  } catch (const MalformedArchive&) {
    return false;
  }
}

// The parser of the IR's text: what it reads prints and parses to the same again. Whether it reads it.
inline bool fuzz_ir_text(std::string_view text) {
  std::unique_ptr<Graph> graph;
  try {
    graph = parse(text);
  } catch (const ParseError&) {
    return false;
  }
  const std::string printed = print(*graph);
  const std::string again = print(*parse(printed));
  SCONCE_ASSERT(again == printed, "not a fixed point:\n", printed, "\nbecame\n", again);
  return true;
}

}  // namespace sconce::testing
