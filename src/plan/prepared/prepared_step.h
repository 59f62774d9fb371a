// PreparedStep: an operator whose set-up is done once for operands of a form, and not in every run.
#pragma once

#include "plan/prepared/kernel.h"
#include "plan/steps/steps.h"

#include <optional>
#include <vector>

namespace sconce {

// An attribute of an object that the run does not change, at the end of a chain of attributes.
struct AttributePath {
  Register object;              // where the chain begins
  std::vector<uint32_t> slots;  // of the objects along the chain
};

// Where a prepared step finds an argument.
struct PreparedOperand {
  static constexpr uint32_t kNone = UINT32_MAX;
  enum class Source : uint8_t {
    kSlot,      // a tensor in `slot`; `box` holds it, too, after an ordinary step made it
    kBox,       // a tensor
    kValue,     // any other value
    kElement,   // an element of a list of ints
    kRunTime,   // a number that the kernel reads in each run
    kConstant,  // a value of the plan
  };
  Source source;
  Register box;
  uint32_t position;  // of the argument in the schema; consecutive operands of one position form a list
  bool in_list = false;
  uint32_t slot = kNone;
  uint32_t attribute = kNone;  // index of the attribute that is the operand: `box` is empty
};

struct PreparedResult {
  static constexpr uint32_t kNoSlot = UINT32_MAX;
  Register box;
  uint32_t slot = kNoSlot;  // without a slot the result is a new tensor in each run
  bool is_boxed = true;     // whether ordinary steps read the result: a slot's shell is put into `box`
};

struct PreparedStepParts {
  std::vector<PreparedOperand> operands;
  std::vector<AttributePath> attributes;
  std::vector<PreparedResult> results;
  std::vector<Register> dropped;   // registers whose values are used for the last time
  std::vector<uint32_t> released;  // slots whose memory is used for the last time
  std::vector<StepPtr> ordinary;   // what runs when gradients are recorded or the operands do not fit
  const KernelRow* kernel;
  size_t arguments;       // of the schema
  bool is_exact = false;  // kernels whose results differ in the last bits are refused
  uint32_t state;         // index of the step's state in a frame
};

// In each run the step compares its operands with those that the kernel was prepared for: sizes, strides, dtypes, and the
// values of numbers and lists. If they differ, it prepares the kernel again. If the kernel cannot serve them, the ordinary
// steps run, and the slot takes their result. The step assumes nothing else, so no guard protects it.
StepPtr make_prepared_step(const Node& node, PreparedStepParts parts);

// Frees the memory of slots after their last use, if it is not in the arena.
StepPtr make_release_step(std::vector<uint32_t> slots);

// Runs the step in runs that use no kernels. Reads an attribute that only prepared steps use.
StepPtr make_unprepared_step(StepPtr step);

}  // namespace sconce
