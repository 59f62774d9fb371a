// Programs around one operator, on sconce and on LibTorch's interpreter.
#pragma once

#include "ops/op.h"

#include <sconce/graph_executor.h>

#include <ATen/core/ivalue.h>

#include <memory>
#include <string>
#include <vector>

namespace sconce::testing {

// What a program looks like around the operator.
enum class ProgramForm {
  kGiven,      // each argument is an argument of the program, or a list of some, and each result a result
  kConstants,  // arguments that hold no tensors are constants; pointwise operators stand before and after the operator
};

// Returns copies of tensors and lists, which calls may write.
std::vector<c10::IValue> copied(const std::vector<c10::IValue>& values);

// What a call returned, or how it raised.
struct Outcome {
  std::vector<c10::IValue> results;
  std::string error;  // the first line of what the call threw; empty if it returned
};
// Returns how `got` differs from `expected`: one raises and the other does not, the messages differ, or the results. Empty:
// not.
std::string difference(const Outcome& got, const Outcome& expected);

// One program.
class TwinProgram {
 public:
  // A program for arguments like these: the types of numbers, the lengths of lists, which optional ones are None, and for
  // results like those.
  TwinProgram(const Op& op, const std::vector<c10::IValue>& like, ProgramForm form, const std::vector<c10::IValue>& results);
  ~TwinProgram();

  // Returns what tells programs apart: arguments of equal signatures fit one program.
  static std::string signature(const Op& op, const std::vector<c10::IValue>& values, ProgramForm form);

  // Returns an executor of sconce's.
  std::unique_ptr<GraphExecutor> executor(CompileMode mode) const;

  Outcome run(GraphExecutor& executor, const std::vector<c10::IValue>& values) const;
  Outcome run_libtorch(const std::vector<c10::IValue>& values) const;

 private:
  struct Oracle;
  std::vector<c10::IValue> inputs_of(const std::vector<c10::IValue>& values) const;

  const ProgramForm form_;
  std::unique_ptr<Graph> graph_;
  std::unique_ptr<Oracle> oracle_;
};

}  // namespace sconce::testing
