// Schedule: in how many passes over a row a program is computed.
//
// A reduction (a sum, a maximum) needs a pass over the whole row before its value is known. So softmax has three: the
// maximum; the exponentials and their sum; the quotients.
#pragma once

#include "fusion/program/kernel_program.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace sconce {

// A value that one pass computes and a later pass reads, because computing it again would cost more.
struct RowBuffer {
  uint32_t value;
  c10::ScalarType type;
  // The output that is written in the last pass that reads the value, and serves as the buffer until then.
  std::optional<uint32_t> output;
};

struct Schedule {
  uint32_t passes = 1;
  std::vector<bool> is_of_row;  // by instruction: one value for the whole row
  // By instruction: the first pass that can compute it. For a value of the row: the number of passes before it is known.
  std::vector<uint32_t> stage;
  std::vector<bool> is_cheap;  // by instruction: few instructions compute it for an element
  std::vector<RowBuffer> buffers;

  std::optional<size_t> buffer_of(uint32_t value) const;
};

Schedule schedule_of(const KernelProgram& program);

}  // namespace sconce
