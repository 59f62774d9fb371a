// Where a node comes from in the model's Python, kept from the loader to the running plan.
#pragma once

#include <torch/csrc/jit/frontend/source_range.h>

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
  // From LibTorch's range: file, line and column are looked up only when asked for.
  SourceLocation(torch::jit::SourceRange range, std::shared_ptr<const SourceLocation> caller = nullptr,
                 std::string function = {});
  // From the text form's comment `# file.py:12:8`.
  SourceLocation(std::string file, size_t line, size_t column);

  // "model.py:12:8", or empty when the frontend recorded none. Columns count from 0, as the frontend's do.
  std::string file_line_column() const;
  // The lines around the place with the expression underlined; empty when only file and line are known.
  std::string excerpt() const;
  // The qualified name of the method the place lies in, where an inlined call made it known; else empty.
  const std::string& function() const { return function_; }
  const std::shared_ptr<const SourceLocation>& caller() const { return caller_; }
  // LibTorch's range where the place has one (places that were parsed from text do not).
  const torch::jit::SourceRange* range() const { return range_ ? &*range_ : nullptr; }

 private:
  // The range of the original Python, not of the archive's generated code, where the archive kept it.
  torch::jit::SourceRange original_range() const;

  std::optional<torch::jit::SourceRange> range_;
  std::string parsed_;  // "file:line:column" when there is no range
  std::shared_ptr<const SourceLocation> caller_;
  std::string function_;
};

using SourceLocationPtr = std::shared_ptr<const SourceLocation>;

// `location` seen from one more call further out: the chain of callers ends in `caller`. Used by inlining.
SourceLocationPtr with_caller(const SourceLocationPtr& location, const SourceLocationPtr& caller,
                              const std::string& function);

// The whole chain as LibTorch and Python print a stack: the innermost place last, each with its lines and the expression
// underlined; ends in a newline. Empty when nothing is known.
std::string stack_frames(const SourceLocationPtr& location);

// The whole chain, innermost first, one "file:line:column in function" per line; empty when nothing is known.
std::string describe_call_chain(const SourceLocationPtr& location);

}  // namespace sconce
