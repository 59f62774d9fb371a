#include <sconce/in_place.h>

#include "base/exception_message.h"
#include "base/tensors_in.h"
#include "executor/method_table.h"
#include "in_place/accelerated_functions.h"
#include "in_place/operands.h"

#include <torch/csrc/jit/api/module.h>

#include <mutex>
#include <unordered_set>

namespace sconce {
namespace {

using torch::jit::GraphFunction;

// Makes the programs of one class. They run on any module of the class.
class ClassPrograms {
 public:
  explicit ClassPrograms(const Options& options) : options_(options) {}

  std::shared_ptr<MethodTable> table(const c10::IValue& module) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (table_ == nullptr) {
      table_ = std::make_shared<MethodTable>(module, options_, FunctionTable::OwnCode::kOwnsTable);
    }
    return table_;
  }

 private:
  const Options options_;
  std::mutex mutex_;
  std::shared_ptr<MethodTable> table_;
};

// Visits the class of the module and the class of each submodule once.
template <class Visit>
void for_each_class(const torch::jit::Module& module, const Visit& visit) {
  std::unordered_set<const c10::ClassType*> seen;
  for_each_part(module._ivalue(), [&](const c10::IValue& part) {
    if (part.isObject()) {
      const auto type = part.toObjectRef().type();
      if (type->is_module() && seen.insert(type.get()).second) {
        visit(*type);
      }
    }
  });
}

template <class Visit>
void for_each_function(const c10::ClassType& type, const Visit& visit) {
  for (torch::jit::Function* method : type.methods()) {
    if (GraphFunction* function = torch::jit::tryToGraphFunction(*method)) {
      visit(*function);
    }
  }
}

void add_explanation(GraphFunction& function, const c10::IValue* self, std::vector<Explanation>& explanations) {
  const std::shared_ptr<AcceleratedFunction> accelerated = AcceleratedFunction::of(function);
  if (accelerated == nullptr || accelerated->calls() == 0) {
    return;
  }
  if (const std::string refusal = accelerated->refusal(); !refusal.empty()) {
    Explanation refused;
    refused.method = accelerated->name();
    refused.counters.invocations = accelerated->calls();
    refused.refusals.push_back({.what = "method " + accelerated->name(), .reason = refusal, .node = {}, .source = {}});
    refused.counters.refusals = 1;
    explanations.push_back(std::move(refused));
  } else if (const auto program = accelerated->program()) {
    explanations.push_back(program->explain(self));
  }
}

GraphFunction& graph_function(torch::jit::Function& function) {
  GraphFunction* graph = torch::jit::tryToGraphFunction(function);
  TORCH_CHECK(graph != nullptr, "accelerate: ", function.name(), " is built in: it has no graph");
  return *graph;
}

void wait_for_compiles_of(GraphFunction& function) {
  const auto accelerated = AcceleratedFunction::of(function);
  if (const auto program = accelerated != nullptr ? accelerated->program() : nullptr) {
    program->wait_for_compiles();
  }
}

}  // namespace

void expect_to_fit_in_place(const Options& options) {
  TORCH_CHECK(!options.frozen(),
              "accelerate: a module that is accelerated in place cannot be frozen, as others may change its attributes; "
              "freeze it first (torch.jit.freeze), or load it by sconce::load");
  TORCH_CHECK(!options.device(), "accelerate: move the module to the device by its own `to`");
}

void accelerate_in_place(const torch::jit::Module& module, const Options& options) {
  without_frames([&] {
    expect_to_fit_in_place(options);
    AcceleratedFunctions::get().forget_destroyed();
    for_each_class(module, [&](const c10::ClassType& type) {
      const auto programs = std::make_shared<ClassPrograms>(options);
      for_each_function(type, [&](GraphFunction& function) {
        AcceleratedFunction::install(function, [programs, name = function.name()](const c10::IValue* self) {
          return programs->table(*self)->method(name, *self).program;
        });
      });
    });
  });
}

void accelerate_in_place(torch::jit::Function& function, const Options& options) {
  without_frames([&] {
    expect_to_fit_in_place(options);
    AcceleratedFunction::install(graph_function(function), [&function, options](const c10::IValue* /*first*/) {
      return MethodTable::program_of(function, options);
    });
  });
}

bool restore(const torch::jit::Module& module) {
  bool was_accelerated = false;
  for_each_class(module, [&](const c10::ClassType& type) {
    for_each_function(
        type, [&](GraphFunction& function) { was_accelerated = AcceleratedFunction::remove(function) || was_accelerated; });
  });
  AcceleratedFunctions::get().forget_destroyed();
  return was_accelerated;
}

bool restore(torch::jit::Function& function) {
  return without_frames([&] { return AcceleratedFunction::remove(graph_function(function)); });
}

bool is_accelerated(const torch::jit::Module& module) {
  bool found = false;
  for_each_function(*module.type(),
                    [&](GraphFunction& function) { found = found || AcceleratedFunction::of(function) != nullptr; });
  return found;
}

bool is_accelerated(torch::jit::Function& function) { return AcceleratedFunction::of(graph_function(function)) != nullptr; }

std::vector<Explanation> explain_in_place(const torch::jit::Module& module) {
  return without_frames([&] {
    TORCH_CHECK(is_accelerated(module), "explain: the module is not accelerated");
    std::vector<Explanation> explanations;
    const c10::IValue self = module._ivalue();
    for_each_function(*module.type(), [&](GraphFunction& function) { add_explanation(function, &self, explanations); });
    return explanations;
  });
}

std::vector<Explanation> explain_in_place(torch::jit::Function& function) {
  return without_frames([&] {
    TORCH_CHECK(is_accelerated(function), "explain: the function is not accelerated");
    std::vector<Explanation> explanations;
    add_explanation(graph_function(function), nullptr, explanations);
    return explanations;
  });
}

void wait_for_compiles_in_place(const torch::jit::Module& module) {
  for_each_class(module, [&](const c10::ClassType& type) { for_each_function(type, wait_for_compiles_of); });
}

void wait_for_compiles_in_place(torch::jit::Function& function) { wait_for_compiles_of(graph_function(function)); }

}  // namespace sconce
