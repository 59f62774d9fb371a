#include "executor/method_table.h"

#include "base/assert.h"
#include "base/libtorch_version.h"
#include "executor/compile.h"
#include "ir/dump.h"

#include <ATen/core/class_type.h>
#include <ATen/core/function.h>
#include <ATen/core/jit_type.h>

namespace sconce {
namespace {

std::vector<bool> arguments_for_tensors(const c10::FunctionSchema& schema) {
  std::vector<bool> takes_tensor;
  for (const c10::Argument& argument : schema.arguments()) {
    takes_tensor.push_back(c10::TensorType::get()->isSubtypeOf(*argument.type()));
  }
  return takes_tensor;
}

// Returns "Net" for "__torch__.models.___torch_mangle_3.Net".
std::string name_of_class(const c10::ClassType& type) { return type.name() ? type.name()->name() : "module"; }

std::string names_of_methods(const c10::ClassType& type) {
  std::string names;
  for (const torch::jit::Function* method : type.methods()) {
    names += (names.empty() ? "" : ", ") + method->name();
  }
  return names;
}

// Throws c10::Error if sconce refuses the function. `constants`: null unless its module is frozen.
std::shared_ptr<GraphExecutor::Impl> compile(torch::jit::Function& function, const std::string& name, const Options& options,
                                             const std::shared_ptr<CalleeTable>& callees, const ModuleConstants* constants,
                                             GraphExecutor::Impl::Kind kind) {
  const InternalErrorContext context("loading of " + name);
  const std::string refused = "sconce cannot run " + name;
  std::unique_ptr<Graph> graph = callees->functions().graph_of(function).value_or_throw(refused)->clone();
  dump(DumpPoint::kLoad, name, *graph);
  CompileSettings settings(options);
  settings.name = name;
  settings.callees = callees.get();
  settings.functions = &callees->functions();
  settings.constants = constants;
  CompiledMethod compiled = compile_method(std::move(graph), settings).value_or_throw(refused);
  return std::make_shared<GraphExecutor::Impl>(std::move(compiled), name, options, callees, kind);
}

}  // namespace

void MethodTable::Method::check(std::vector<c10::IValue>& arguments, const Kwargs& keyword_arguments) const {
  // Quick where every argument is given, and is a tensor where any tensor may be: LibTorch's check asks each tensor for its
  // sizes where an argument has no annotation.
  bool fits = keyword_arguments.empty() && arguments.size() == takes_tensor.size();
  for (size_t i = 1; fits && i < arguments.size(); ++i) {  // the first one is the module
    fits = takes_tensor[i] && arguments[i].isTensor();
  }
  if (fits) {
    return;
  }
  // LibTorch's check looks for missing arguments first, so that a misspelled one would be missing, and counts the module.
  TORCH_CHECK(arguments.size() <= takes_tensor.size(), "Expected at most ", takes_tensor.size() - 1,
              " argument(s) for operator '", name, "', but received ", arguments.size() - 1,
              " argument(s). Declaration: ", schema);
  for (const auto& [keyword, value] : keyword_arguments) {
    TORCH_CHECK(schema.argumentIndexWithName(keyword), "Unknown keyword argument '", keyword, "' for operator '", name,
                "'. Schema: ", schema);
  }
  schema.checkAndNormalizeInputs(arguments, keyword_arguments);
}

std::shared_ptr<GraphExecutor::Impl> MethodTable::program_of(torch::jit::Function& function, const Options& options) {
  auto program =
      compile(function, function.name(), options, CalleeTable::make(options), nullptr, GraphExecutor::Impl::Kind::kGraph);
  program->list_as(function.name());
  return program;
}

MethodTable::MethodTable(const c10::IValue& module, const Options& options, FunctionTable::OwnCode own_code)
    : options_(options), callees_(CalleeTable::make(options, module, own_code)) {
  expect_libtorch_of_build();
}

const MethodTable::Method& MethodTable::method(const std::string& name, const c10::IValue& module) {
  if (const Method* made = find(name)) {
    return *made;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const Method* made = find(name)) {
    return *made;
  }
  methods_.push_back(make_method(name, module));
  first_.store(methods_.back().get(), std::memory_order_release);
  return *methods_.back();
}

bool MethodTable::has_constants() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return constants_.has_value();
}

void MethodTable::wait_for_compiles() {
  for (const Method* method = first_.load(std::memory_order_acquire); method != nullptr; method = method->next) {
    method->program->wait_for_compiles();
  }
}

void MethodTable::forget(const DestroyedModules& modules) {
  for (const Method* method = first_.load(std::memory_order_acquire); method != nullptr; method = method->next) {
    method->program->forget(modules);
  }
}

const MethodTable::Method* MethodTable::find(const std::string& name) const {
  const Method* method = first_.load(std::memory_order_acquire);
  while (method != nullptr && method->name != name) {
    method = method->next;
  }
  return method;
}

std::unique_ptr<MethodTable::Method> MethodTable::make_method(const std::string& name, const c10::IValue& module) {
  const c10::ClassType& type = *module.toObjectRef().type();
  torch::jit::Function* function = type.findMethod(name);
  function = function != nullptr ? function : type.findHook(name);  // methods and hooks have no name in common
  TORCH_CHECK(function != nullptr, "the module has no method '", name, "'; it has: ", names_of_methods(type));
  auto program = compile(*function, name, options_, callees_, options_.frozen() ? &find_constants(module) : nullptr,
                         GraphExecutor::Impl::Kind::kMethod);
  program->list_as(name_of_class(type) + "." + name);
  const c10::FunctionSchema& schema = function->getSchema();
  return std::unique_ptr<Method>(new Method{name, schema, std::move(program), first_.load(), arguments_for_tensors(schema)});
}

const ModuleConstants& MethodTable::find_constants(const c10::IValue& module) {
  if (!constants_) {
    constants_ = ModuleConstants::find(module, options_.preserved(), callees_->functions())
                     .value_or_throw("sconce cannot freeze the module");
  }
  return *constants_;
}

}  // namespace sconce
