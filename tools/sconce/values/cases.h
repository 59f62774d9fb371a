// CASES files: recorded calls and their correct results.
#pragma once

#include "tools/sconce/values/compare.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <variant>
#include <vector>

namespace torch::jit {
struct Module;
}

namespace sconce::cli {

// The first form: calls of one method of a model that is in another file.
struct ModelCases {
  std::string method = "forward";
  uint64_t seed = 0;  // torch::manual_seed before each call
  double rtol = 1e-3;
  double atol = 1e-4;
  std::vector<std::vector<c10::IValue>> inputs;
  std::vector<c10::IValue> outputs;  // one per case, or none at all
  // For case 0; empty if not recorded.
  std::vector<std::string> grad_names;
  std::vector<at::Tensor> grads;
  std::vector<std::string> buffer_names;
  std::vector<at::Tensor> buffers_after;
};

// One row of the second form: a method of the file itself, tensors in, tensors out.
struct OperatorCase {
  std::string name;  // distinct in its file
  std::string method;
  std::vector<at::Tensor> inputs;
  std::vector<bool> needs_grad;     // per input
  std::vector<at::Tensor> outputs;  // flattened depth first, numbers as 0-d tensors
  std::vector<at::Tensor> grads;    // per input that needs grad; empty: not recorded
  double rtol = 1e-3;
  double atol = 1e-4;
};
using OperatorCases = std::vector<OperatorCase>;

using Cases = std::variant<ModelCases, OperatorCases>;

// Throws UserError, or c10::Error from the loader, with one line that begins with the path.
Cases read_cases(const std::string& path);
Cases read_cases(const torch::jit::Module& module, const std::string& path);

// The default file of a model's recorded calls: NAME.cases.pt beside NAME.pt.
struct CasesBeside {
  std::string path;     // empty: no such file, or one that records no call of the method
  std::string why_not;  // why the path is empty, in words that go on a sentence
};
// Finds the recorded calls of the method, or of any method if it is empty. Throws what `read_cases` throws.
CasesBeside find_cases_beside(const std::string& model, const std::string& method);

// Returns whether the file is a TorchScript archive, such as a CASES file; false for one written by torch.save.
bool is_script_archive(const std::string& path);
bool is_file_of_arguments(const std::string& path);

// Returns whether the module is a CASES file of the first form, which has no methods.
bool is_cases_module(const torch::jit::Module& module);

}  // namespace sconce::cli
