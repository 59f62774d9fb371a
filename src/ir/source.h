// Source locations: where a node comes from in the model's Python. They are kept from the loader to the running plan.
#pragma once

#include "base/flat_map.h"

#include <torch/csrc/jit/frontend/source_range.h>

#include <memory>
#include <optional>
#include <string>

namespace sconce {

// A place in the model's Python source, and the call it was inlined from.
//
//   model.py:12:8 in Block.forward        <- the node
//     model.py:30:4 in Model.forward      <- caller(): the call site that was inlined
//
// Owned by a Graph (or by the graph it was cloned from: locations are immutable and shared).
class SourceLocation {
 public:
  // From LibTorch's range. File, line and column are looked up on demand.
  SourceLocation(torch::jit::SourceRange range, std::shared_ptr<const SourceLocation> caller = nullptr,
                 std::shared_ptr<const std::string> function = nullptr);
  // From a comment of the text form, `# file.py:12:8`.
  SourceLocation(std::string file, size_t line, size_t column);

  // Returns "model.py:12:8", or an empty string if the frontend recorded no place. Columns count from 0, as the frontend's
  // do.
  std::string file_line_column() const;
  // Returns the lines around the place with the expression underlined. Empty if only file and line are known.
  std::string excerpt() const;
  // Returns the qualified name of the method that the place is in. Empty unless the location came from an inlined call.
  const std::string& function() const;
  const std::shared_ptr<const SourceLocation>& caller() const { return caller_; }
  // Returns LibTorch's range; null for a place that was parsed from text.
  const torch::jit::SourceRange* range() const { return range_ ? &*range_ : nullptr; }

 private:
  // Returns the range in the original Python if the archive kept it, else the range in the archive's generated code.
  torch::jit::SourceRange original_range() const;

  std::optional<torch::jit::SourceRange> range_;
  std::string parsed_;  // "file:line:column" when there is no range
  std::shared_ptr<const SourceLocation> caller_;
  std::shared_ptr<const std::string> function_;  // null: empty

  friend class InlinedCall;
};

using SourceLocationPtr = std::shared_ptr<const SourceLocation>;

// An inlined call: adds its place at the outer end of the chains of the nodes that came from the callee. Places that share
// callers share the longer chain, too.
class InlinedCall {
 public:
  // `function`: the qualified name of the callee.
  InlinedCall(SourceLocationPtr place, std::string function)
      : place_(std::move(place)), function_(std::make_shared<std::string>(std::move(function))) {}

  SourceLocationPtr extended(const SourceLocationPtr& location);

 private:
  SourceLocationPtr place_;
  std::shared_ptr<const std::string> function_;
  FlatMap<SourceLocationPtr, SourceLocationPtr> extended_;
};

// Returns the whole chain as LibTorch and Python print a stack: the innermost place last, each with its source lines and the
// expression underlined. Ends in a newline. Empty if no place is known.
std::string stack_frames(const SourceLocationPtr& location);

// Returns the whole chain, innermost first, one "file:line:column in function" per line. Empty if no place is known.
std::string describe_call_chain(const SourceLocationPtr& location);

}  // namespace sconce
