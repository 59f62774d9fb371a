#include "tests/support/operator_cases.h"

#include "tests/support/graphs.h"

#include <ATen/ATen.h>
#include <ATen/core/jit_type.h>
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/frontend/resolver.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <stdexcept>

namespace sconce::testing {
namespace {

constexpr int kSeed = 7;

// What lines make their arguments with; 7 is float64.
constexpr const char* kMakers = R"(
def x(sizes: List[int]):
    return torch.rand(sizes, dtype=7) * 4 - 2
def positive(sizes: List[int]):
    return torch.rand(sizes, dtype=7) * 2 + 0.5
def unit(sizes: List[int]):
    return torch.rand(sizes, dtype=7) * 0.8 + 0.1
def mask(sizes: List[int]):
    return torch.rand(sizes) > 0.5
def index(high: int, sizes: List[int]):
    return torch.randint(high, sizes)
def kinks(n: int):
    return torch.tensor([-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0, 6.0], dtype=7).repeat([n])
def none():
    missing: Optional[Tensor] = None
    return missing
)";

const Op& op_of_case(const std::string& qualified) {
  const size_t dot = qualified.find('.');
  const std::string overload = dot == std::string::npos ? "" : qualified.substr(dot + 1);
  const auto found = torch::jit::findOperatorFor({qualified.substr(0, dot), overload});
  if (found == nullptr) {
    throw std::logic_error("no operator " + qualified);
  }
  return op_of(found->schema());
}

// A literal of the language has no empty list of numbers, no list of optional tensors, and integers stand for floats.
c10::IValue as_type(const c10::IValue& value, const c10::Type& type) {
  const c10::TypePtr wanted = type.kind() == c10::TypeKind::OptionalType && !value.isNone()
                                  ? type.expectRef<c10::OptionalType>().getElementType()
                                  : nullptr;
  const c10::Type& bare = wanted != nullptr ? *wanted : type;
  if (value.isList() && value.toListRef().empty() && bare.kind() == c10::TypeKind::ListType) {
    return c10::impl::GenericList(bare.expectRef<c10::ListType>().getElementType());
  }
  if (value.isTensorList() && bare.expectRef<c10::ListType>().getElementType()->kind() == c10::TypeKind::OptionalType) {
    c10::List<std::optional<at::Tensor>> tensors;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      tensors.push_back(tensor);
    }
    return tensors;
  }
  return bare.kind() == c10::TypeKind::FloatType && value.isInt() ? c10::IValue(static_cast<double>(value.toInt())) : value;
}

}  // namespace

CallPattern pattern_of(const Op& op, const Values& arguments, const std::vector<size_t>& required) {
  CallPattern pattern{&op, {}};
  for (size_t i = 0; i < arguments.size(); ++i) {
    ArgumentPattern& argument = pattern.arguments.emplace_back();
    if (!arguments[i].isTensor() || !arguments[i].toTensor().defined()) {
      argument.constant = arguments[i].isTensor() ? c10::IValue() : arguments[i];
      continue;
    }
    const at::Tensor tensor = arguments[i].toTensor();
    argument.dtype = tensor.scalar_type();
    argument.requires_grad = std::find(required.begin(), required.end(), i) != required.end();
    for (const int64_t size : tensor.sizes()) {
      argument.sizes.push_back(size == 1 ? std::optional(size) : std::nullopt);
    }
  }
  return pattern;
}

std::vector<OperatorCase> read_operator_cases(const std::string& folder) {
  std::vector<OperatorCase> cases;
  const auto makers = std::make_shared<torch::jit::CompilationUnit>();
  std::string source = kMakers;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".cases") {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  for (const std::filesystem::path& file : files) {
    std::istringstream lines(read_text(file.string()));
    for (std::string line; std::getline(lines, line);) {
      if (line.empty() || line.front() == '#') {
        continue;
      }
      const size_t open = line.find('(');
      const std::string arguments = line.substr(open + 1, line.rfind(')') - open - 1);
      const std::string maker = "case_" + std::to_string(cases.size());
      source += "def " + maker + "(n: int):\n    return (" + arguments + ", 0)\n";
      cases.push_back({&op_of_case(line.substr(0, open)), line, file.stem().string(), makers, maker});
    }
  }
  makers->define(std::nullopt, source, torch::jit::nativeResolver(), nullptr);
  return cases;
}

Values OperatorCase::arguments(int64_t n) const {
  at::manual_seed(kSeed + n);
  Values values = makers->get_function(maker)({n}).toTupleRef().elements().vec();
  values.pop_back();
  const auto& declared = op->schema->arguments();
  for (size_t i = 0; i < declared.size(); ++i) {
    if (i >= values.size()) {
      if (!declared[i].default_value()) {
        throw std::logic_error("an argument without a default is missing: " + text);
      }
      values.push_back(*declared[i].default_value());
    }
    values[i] = as_type(values[i], *declared[i].type());
  }
  return values;
}

}  // namespace sconce::testing
