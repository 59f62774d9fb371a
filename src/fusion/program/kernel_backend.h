// KernelBackend: what compiles and runs the programs of a group on one kind of device.
#pragma once

#include "fusion/program/iteration.h"
#include "fusion/program/kernel_program.h"
#include "plan/prepared/group.h"

#include <sconce/explanation.h>

#include <c10/core/Device.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace sconce {

class ProgramBuilder;

struct KernelCallArguments {
  c10::SmallVector<void*, 16> first;  // of the inputs, then of the outputs: their first elements
  c10::SmallVector<int64_t, 8> numbers;
  // Where on the device the kernel reads each number instead, or null. Empty: nowhere.
  c10::SmallVector<const void*, 8> number_memory;
};

// The code of a program, with the loops that it runs.
class NestCode {
 public:
  virtual ~NestCode() = default;
  // Takes the loops for operands of other sizes or strides.
  virtual void set_loops(Iteration iteration) = 0;
  // Returns whether all elements are computed in one row, whose length `set_elements` changes.
  virtual bool is_flat() const = 0;
  virtual void set_elements(int64_t count) = 0;
  // Returns why there is no code and will be none; empty while there may be.
  virtual std::string refusal() const = 0;
  // Returns whether the code is compiled. Has it compiled if the queue was full before.
  virtual bool is_compiled() const = 0;
  // Returns whether the code that is compiled serves inputs at these addresses. Has other code compiled if it does not.
  virtual bool serves(std::span<void* const> /*inputs*/) const { return true; }
  // Returns whether `serves` depends on the addresses.
  virtual bool asks_for_addresses() const { return false; }
  // Returns whether the loops compute `rows` rows of equal length one after the other, and the input's elements lie in this
  // order without gaps. Then `run_rows` computes some of them, on the caller's thread, after `begin_rows`.
  virtual bool has_rows(size_t /*input*/, int64_t /*rows*/) const { return false; }
  virtual void begin_rows(const KernelCallArguments& /*arguments*/) const {}
  virtual void run_rows(const KernelCallArguments& /*arguments*/, int64_t /*rows*/, int64_t /*first*/,
                        int64_t /*last*/) const {}
  // Requires `is_compiled`.
  virtual void run(const KernelCallArguments& arguments) const = 0;
};

// A backend computes what it accepts as LibTorch does, and no slower.
class KernelBackend {
 public:
  virtual ~KernelBackend() = default;
  virtual c10::Device device() const = 0;
  virtual bool has_kernels() const = 0;
  virtual bool accepts(const ProgramBuilder& builder) const = 0;
  // Returns why the backend leaves the loops to the operators; nothing if it takes them.
  virtual std::optional<NotPrepared> why_not(const KernelProgram& program, const Iteration& iteration,
                                             bool reduces_rows) const = 0;
  // Asks whether one kernel is good for rows of any length.
  virtual bool accepts_any_length(const KernelProgram& program) const = 0;
  // `writes`: the kernel writes operands in place. `group` names what it computes.
  virtual std::unique_ptr<NestCode> make(const KernelProgram& program, bool reduces_rows, bool writes,
                                         const std::string& group) const = 0;
  // Returns the kernel of a group that draws random numbers; null for any other group.
  virtual KernelPtr make_drawing_kernel(const NodeGroup& /*group*/) const { return nullptr; }
};

}  // namespace sconce
