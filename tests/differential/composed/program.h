// A program of composed operators: TorchScript source, what it is called with, and what is asked of each call.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/api/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace torch::jit {
struct Resolver;
}

namespace sconce::testing::composed {

// One line of source with the lines that are indented below it.
struct Line {
  std::string text;
  std::vector<Line> body = {};
};
using Lines = std::vector<Line>;

enum class Form { kContiguous, kTransposed, kExpanded, kStrided };
enum class Role { kPlain, kLeaf, kComputed };  // no gradient; a leaf that requires one; computed from one

// The value of an input in one call. Tensors are made from a seed.
struct Argument {
  bool is_none = false;
  std::vector<int64_t> sizes = {};
  at::ScalarType dtype = at::kDouble;
  Form form = Form::kContiguous;
  Role role = Role::kPlain;
  int alias_of = -1;  // position of the argument whose memory this one is a view of, or -1
  uint64_t seed = 0;  // of a tensor
  double number = 0;  // of an int, a float, a bool
};

struct Input {
  std::string name;
  std::string type;           // "Tensor", "Optional[Tensor]", "int", "float", "bool"
  bool is_attribute = false;  // of the module: its value is that of the first call
};

struct Call {
  std::vector<Argument> arguments;
  bool records_gradients = true;
  std::vector<bool> asked;  // of each output, whether it receives a gradient
  bool second_order = false;
  uint64_t seed = 0;
};

struct Program {
  uint64_t seed = 0;
  std::vector<Input> inputs;
  Lines lines;
  std::vector<std::string> outputs;
  std::vector<Call> calls;
};

// Resolves `torch.NAME` and `torch.ops.aten.NAME` to operators.
std::shared_ptr<torch::jit::Resolver> operator_resolver();

std::string text_of(const Lines& lines, size_t indent);
// Removes lines whose results no other line and no output uses, and which write nothing.
void remove_dead_lines(Program& program);
// Returns whether the program reads no element of what the line computes: it asks for sizes, dtypes and the like alone.
bool reads_no_element(const Program& program, const std::string& line);
// Returns the method `forward`.
std::string source_of(const Program& program);
// Returns a standalone Python file that runs the calls eagerly and writes the module and the arguments of each call.
std::string python_of(const Program& program);

// Returns a module with attributes of its own. Throws what LibTorch's compiler throws.
torch::jit::Module module_of(const Program& program);

// Returns new arguments of one call, attributes left out.
std::vector<c10::IValue> arguments_of(const Program& program, const Call& call);
// Returns the values of all inputs of one call.
std::vector<c10::IValue> values_of(const std::vector<Input>& inputs, const Call& call);

}  // namespace sconce::testing::composed
