// Every operator that sconce computes by itself without gradients (element rules, folds, prepared kernels, scalar steps,
// decompositions) with arguments that LibTorch rejects: sconce raises where LibTorch's interpreter raises, with the same
// first line, in the generic and in the specialized plan, in the first call and after valid ones.
//
//   SCONCE_TWINS=gru …/negative_test      the calls whose text contains "gru" alone
//   SCONCE_TWIN_STRIDE=1 …                every twin; by default each fifth of a call, others for each call
#include "tests/negative/twin_programs.h"
#include "tests/support/children.h"
#include "tests/support/environment_number.h"
#include "tests/support/graphs.h"
#include "tests/support/negative_arguments.h"
#include "tests/support/operator_cases.h"

#include "fusion/program/operators.h"
#include "kernels/kernel_table.h"
#include "plan/steps/steps.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <malloc.h>

#include <map>
#include <set>

namespace sconce::testing {
namespace {

// Operators that passes replace by others.
bool is_decomposed(const Op& op) {
  static const std::set<std::string> names = {"aten::lstm.input",     "aten::gru.input",    "aten::rnn_tanh.input",
                                              "aten::rnn_relu.input", "aten::lstm_cell",    "aten::gru_cell",
                                              "aten::rnn_tanh_cell",  "aten::rnn_relu_cell"};
  return names.contains(c10::toString(op.schema->operator_name()));
}

// LibTorch compares no sizes of its operands, and reads memory that is not theirs if they do not fit.
bool is_unchecked(const Op& op) {
  static const std::set<std::string> names = {"aten::_embedding_bag_backward",
                                              "aten::_scaled_dot_product_flash_attention_for_cpu",
                                              "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
                                              "aten::native_batch_norm",
                                              "aten::native_batch_norm_backward",
                                              "aten::native_layer_norm_backward"};
  return names.contains(op.kind.toQualString());
}

bool is_computed_by_sconce(const Op& op) {
  if (is_unchecked(op)) {
    return false;
  }
  return has_element_rule(op) || find_kernel_row(op) != nullptr || has_scalar_step(op) || is_decomposed(op);
}

// Operators that accept every twin of their arguments.
const std::set<std::string>& accepting_operators() {
  static const std::set<std::string> all = {"aten::__contains__.int_list",
                                            "aten::__is__",
                                            "aten::__isnot__",
                                            "aten::__not__",
                                            "aten::add.int",
                                            "aten::append.t",
                                            "aten::dim",
                                            "aten::eq.int",
                                            "aten::eq.str",
                                            "aten::ge.int",
                                            "aten::gt.int",
                                            "aten::le.int",
                                            "aten::len.t",
                                            "aten::lt.int",
                                            "aten::mul.int",
                                            "aten::ne.int",
                                            "aten::ne.str",
                                            "aten::sub.int",
                                            "prim::device",
                                            "prim::dtype"};
  return all;
}

// Numbers of one dtype for all floating tensors: prepared products are of float32.
c10::IValue as_float32(const c10::IValue& value) {
  if (value.isTensor() && value.toTensor().defined()) {
    const at::Tensor& tensor = value.toTensor();
    return tensor.scalar_type() == at::kDouble ? tensor.to(at::kFloat) : tensor;
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> tensors;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      tensors.push_back(as_float32(tensor).toTensor());
    }
    return tensors;
  }
  return value;
}

struct TwinCase {
  const Op* op;
  const OperatorCase* source;
  std::string text;
};

std::vector<c10::IValue> valid_arguments(const OperatorCase& of) {
  std::vector<c10::IValue> values;
  for (const c10::IValue& value : of.arguments(/*n=*/3)) {
    values.push_back(as_float32(value));
  }
  return values;
}

// Returns whether LibTorch takes the arguments of a functional operator for the one in place, whose result must fit the
// first.
bool is_accepted(const Op& in_place, const OperatorCase& of) {
  torch::jit::Stack stack = copied(valid_arguments(of));
  try {
    in_place.registered->getOperation()(stack);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

// The calls of operators that sconce computes, and of those in place that passes replace by them.
std::vector<TwinCase> twin_cases() {
  static const auto* const sources = [] {
    auto* all = new std::vector<OperatorCase>(read_operator_cases(tests_dir() + "/negative"));
    for (OperatorCase& each : read_operator_cases(tests_dir() + "/ops/gradients")) {
      all->push_back(std::move(each));
    }
    return all;
  }();
  const char* wanted = std::getenv("SCONCE_TWINS");
  std::vector<TwinCase> cases;
  for (const OperatorCase& source : *sources) {
    if (!is_computed_by_sconce(*source.op) || (wanted != nullptr && source.text.find(wanted) == std::string::npos)) {
      continue;
    }
    cases.push_back({source.op, &source, source.text});
    const auto name = source.op->schema->operator_name();
    if (const auto in_place = torch::jit::findOperatorFor({name.name + "_", name.overload_name})) {
      const Op& writing = op_of(in_place->schema());
      if (writing.functional == source.op && is_accepted(writing, source)) {
        cases.push_back({&writing, &source, source.text + " in place"});
      }
    }
  }
  return cases;
}

constexpr std::pair<CompileMode, const char*> kTiers[] = {{CompileMode::kNever, "generic plan"},
                                                          {CompileMode::kBlocking, "specialized plan"}};

// Makes the allocator fill new memory with the byte, and freed memory with its complement. Results that read such memory
// differ from fill to fill.
void fill_new_memory(int byte) {
#ifdef M_PERTURB
  mallopt(M_PERTURB, ~byte & 0xff);
#else
  (void)byte;
#endif
}

// All twins of one call.
class TwinCheck {
 public:
  TwinCheck(const TwinCase& of, const ReportLine& report)
      : op_(*of.op), report_(report), valid_(valid_arguments(*of.source)) {
    // oneDNN's LSTM checks no sizes: it reads and writes memory beyond its operands.
    at::globalContext().setUserEnabledMkldnn(op_.schema->operator_name() != c10::OperatorName("aten::lstm", "input"));
    results_ = copied(valid_);
    op_.registered->getOperation()(results_);
  }

  // Checks each `stride`-th twin.
  void run(size_t first, size_t stride) {
    const std::vector<NegativeTwin> twins = negative_twins(*op_.schema, valid_);
    for (size_t k = first; k < twins.size(); ++k) {
      if ((k + twins.size()) % stride == 0) {
        check(k, twins[k], ProgramForm::kGiven);
        // What stands before an operator on numbers may be unused.
        if (!has_scalar_step(op_)) {
          check(k, twins[k], ProgramForm::kConstants);
        }
      }
    }
    report_("= " + std::to_string(raised_) + " of " + std::to_string(checked_));
  }

 private:
  // Programs and executors that one signature shares.
  struct Shared {
    std::unique_ptr<TwinProgram> program;
    std::vector<c10::IValue> valid;                         // valid arguments of the signature, if there are some
    std::vector<std::unique_ptr<GraphExecutor>> executors;  // by tier; they have run valid arguments
  };

  // Numbers as another type, where the twin has it.
  std::vector<c10::IValue> valid_like(const NegativeTwin& twin) const {
    std::vector<c10::IValue> valid = valid_;
    c10::IValue& number = valid[twin.position];
    if (number.isInt() && twin.values[twin.position].isDouble()) {
      number = static_cast<double>(number.toInt());
    }
    return valid;
  }

  Shared& shared(const NegativeTwin& twin, ProgramForm form) {
    const std::string signature = TwinProgram::signature(op_, twin.values, form);
    Shared& found = shared_[static_cast<int>(form)][signature];
    if (found.program == nullptr) {
      found.program = std::make_unique<TwinProgram>(op_, twin.values, form, results_);
      found.valid = valid_like(twin);
      if (TwinProgram::signature(op_, found.valid, form) == signature) {
        const Outcome expected = found.program->run_libtorch(found.valid);
        for (const auto& [mode, name] : kTiers) {
          found.executors.push_back(found.program->executor(mode));
          for (int call = 1; call <= 2; ++call) {
            compare(*found.program, *found.executors.back(), found.valid, expected, std::string(name) + ", valid arguments");
          }
        }
      }
    }
    return found;
  }

  void compare(const TwinProgram& program, GraphExecutor& executor, const std::vector<c10::IValue>& values,
               const Outcome& expected, const std::string& what) {
    const Outcome outcome = program.run(executor, values);
    // What computes with an undefined tensor raises in other words below autograd.
    const bool has_other_words = expected.error.find("an undefined Tensor in C++") != std::string::npos;
    if (has_other_words && !outcome.error.empty()) {
      return;
    }
    if (const std::string text = difference(outcome, expected); !text.empty()) {
      report_("! " + what + ": " + text);
    }
  }

  void check(size_t k, const NegativeTwin& twin, ProgramForm form) {
    const std::string of = twin.change + (form == ProgramForm::kGiven ? ", given" : ", between others");
    report_("@ " + std::to_string(k) + " sconce: valid before " + of);
    Shared& with = shared(twin, form);
    report_("@ " + std::to_string(k) + " LibTorch: " + of);
    fill_new_memory(0x3f);
    const Outcome expected = with.program->run_libtorch(twin.values);
    fill_new_memory(0x40);
    if (!difference(with.program->run_libtorch(twin.values), expected).empty()) {
      return;  // LibTorch reads or returns memory that it has not written
    }
    ++checked_;
    raised_ += expected.error.empty() ? 0 : 1;
    report_("@ " + std::to_string(k) + " sconce: " + of);
    for (size_t tier = 0; tier < std::size(kTiers); ++tier) {
      const auto& [mode, name] = kTiers[tier];
      const auto executor = with.program->executor(mode);
      for (int call = 1; call <= 2; ++call) {
        compare(*with.program, *executor, twin.values, expected, of + ", " + name + ", call " + std::to_string(call));
      }
      if (!with.executors.empty()) {
        compare(*with.program, *with.executors[tier], twin.values, expected, of + ", " + name + ", after valid calls");
      }
    }
  }

  const Op& op_;
  const ReportLine& report_;
  const std::vector<c10::IValue> valid_;
  torch::jit::Stack results_;  // of the valid call
  std::map<std::string, Shared> shared_[2];
  size_t checked_ = 0;
  size_t raised_ = 0;
};

TEST(NegativeTwins, RaiseWhereLibTorchRaises) {
  const std::vector<TwinCase> cases = twin_cases();
  const size_t stride = environment_number("SCONCE_TWIN_STRIDE", 5);
  const size_t shown = environment_number("SCONCE_TWIN_FAILURES", 3);
  const auto reports = run_in_children(cases.size(), /*seconds=*/120, [&](size_t i, size_t first, const ReportLine& report) {
    try {
      TwinCheck(cases[i], report).run(first, stride);
    } catch (const std::exception& failure) {
      report("! " + std::string(failure.what()));
    }
  });
  std::map<const Op*, size_t> raised;
  size_t checked = 0;
  size_t crashes_of_libtorch = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    size_t failures = 0;
    for (const std::string& line : reports[i].lines) {
      if (line.front() == '=') {
        std::istringstream numbers(line.substr(2));
        size_t raising = 0;
        size_t all = 0;
        std::string of;
        numbers >> raising >> of >> all;
        raised[cases[i].op] += raising;
        checked += all;
      } else if (++failures <= shown) {
        ADD_FAILURE() << cases[i].text << ": " << line.substr(2);
      }
    }
    if (failures > shown) {
      ADD_FAILURE() << cases[i].text << ": " << failures - shown << " more";
    }
    for (const std::string& crash : reports[i].crashes) {
      if (crash.starts_with("LibTorch: ")) {
        ++crashes_of_libtorch;
      } else {
        ADD_FAILURE() << cases[i].text << ": crashes or hangs: " << crash;
      }
    }
    // A child that crashed has not reported how many raised.
    if (!reports[i].crashes.empty()) {
      raised[cases[i].op] += 1;
    }
  }
  std::cout << cases.size() << " calls, " << checked << " twins, " << crashes_of_libtorch << " crashes of LibTorch\n";
  if (stride == 1) {
    for (const auto& [op, count] : raised) {
      const std::string name = c10::toString(op->schema->operator_name());
      EXPECT_TRUE(count > 0 || accepting_operators().contains(name)) << name << " has no twin that LibTorch rejects";
    }
  }
}

TEST(NegativeTwins, AreOfEveryOperatorThatSconceComputes) {
  std::set<const Op*> called;
  for (const TwinCase& each : twin_cases()) {
    called.insert(each.op);
  }
  for (const auto& registered : torch::jit::getAllOperators()) {
    const Op& op = op_of(registered->schema());
    EXPECT_TRUE(!is_computed_by_sconce(op) || called.contains(&op))
        << c10::toString(registered->schema().operator_name()) << " needs a line in tests/negative/*.cases";
  }
}

}  // namespace
}  // namespace sconce::testing
