// KernelProgramWriter: writes the values of a group that one nest of loops computes.
#pragma once

#include "fusion/group/group_shapes.h"
#include "fusion/program/rule_arguments.h"
#include "plan/prepared/group.h"

#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace sconce {

// A tensor that a program reads.
struct NestOperand {
  size_t position;  // among the arguments
  // Through these views, each of the one before. The first is of the argument, or of a value that is computed of it.
  std::vector<const Value*> views;
};

class KernelProgramWriter {
 public:
  KernelProgramWriter(const NodeGroup& group, const KernelArguments& arguments, const GroupShapes& shapes);

  // Returns the element of the value; nothing if no kernel computes it.
  std::optional<Element> write(const Value& value);

  ProgramBuilder& builder() { return builder_; }
  const std::vector<NestOperand>& operands() const { return operands_; }
  // The numbers that the program reads, by their positions among the arguments.
  const std::vector<size_t>& numbers() const { return numbers_; }

 private:
  using ViewChain = std::vector<const Value*>;
  std::optional<ElementArgument> argument_of(const Value& value, const ViewChain& views);
  std::optional<ElementArgument> write_argument(const Value& value, const ViewChain& views);
  std::optional<ElementArgument> operand(size_t position, const ViewChain& views);
  std::optional<ElementArgument> computed(const Node& node, const ViewChain& views);
  bool may_be_converted(const Node& node, const std::vector<ElementArgument>& operands) const;

  const NodeGroup& group_;
  const KernelArguments& arguments_;
  const GroupShapes& shapes_;
  std::unordered_map<const Value*, size_t> position_;
  std::map<std::pair<const Value*, ViewChain>, ElementArgument> known_;  // the value as views read it
  ProgramBuilder builder_;
  std::vector<NestOperand> operands_;
  std::vector<size_t> numbers_;
};

// Returns the type in which a kernel gets a number of this value's type.
c10::ScalarType type_of_number(const c10::IValue& number);

}  // namespace sconce
