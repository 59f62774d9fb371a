// NestWriter: writes the values of a group that one nest of loops computes.
#pragma once

#include "fusion/group_shapes.h"
#include "fusion/writing.h"
#include "plan/prepared/group.h"

#include <optional>
#include <unordered_map>
#include <vector>

namespace sconce {

class NestWriter {
 public:
  NestWriter(const NodeGroup& group, const KernelArguments& arguments, const GroupShapes& shapes);

  // Returns the element of the value; nothing if no kernel computes it.
  std::optional<Element> write(const Value& value);

  ProgramBuilder& builder() { return builder_; }
  // The arguments that the program reads, by their positions: tensors, and numbers.
  const std::vector<size_t>& operands() const { return operands_; }
  const std::vector<size_t>& numbers() const { return numbers_; }

 private:
  std::optional<ElementArgument> argument_of(const Value& value);
  std::optional<ElementArgument> operand(size_t position);
  std::optional<ElementArgument> computed(const Node& node);
  bool may_be_converted(const Node& node, const std::vector<ElementArgument>& operands) const;

  const KernelArguments& arguments_;
  const GroupShapes& shapes_;
  std::unordered_map<const Value*, size_t> position_;
  std::unordered_map<const Value*, ElementArgument> known_;
  ProgramBuilder builder_;
  std::vector<size_t> operands_;
  std::vector<size_t> numbers_;
};

// Returns the type in which a kernel gets a number of this value's type.
c10::ScalarType type_of_number(const c10::IValue& number);

}  // namespace sconce
