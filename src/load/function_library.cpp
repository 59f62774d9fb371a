#include "load/function_library.h"

#include "base/assert.h"
#include "load/convert.h"

#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/frontend/resolver.h>
#include <torch/csrc/jit/ir/ir.h>

#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace sconce {
namespace {

// Inlines calls of functions that contain no calls.
void inline_calls_in(torch::jit::Block& block) {
  for (auto at = block.nodes().begin(); at != block.nodes().end();) {
    torch::jit::Node* node = *at++;
    for (torch::jit::Block* nested : node->blocks()) {
      inline_calls_in(*nested);
    }
    if (node->kind() == prim::CallFunction) {
      torch::jit::Node* callee = node->input(0)->node();
      node->removeInput(0);
      inlineCallTo(node, &torch::jit::toGraphFunction(*callee->output()->type()->expectRef<c10::FunctionType>().function()));
      if (!callee->hasUses()) {
        callee->destroy();
      }
    }
  }
}

// The value of `ops` in serialized TorchScript: ops.prim.RaiseException is prim::RaiseException.
class OperatorNamespaces : public torch::jit::SugaredValue {
 public:
  std::string kind() const override { return "namespaces of operators"; }
  std::shared_ptr<SugaredValue> attr(const torch::jit::SourceRange& /*where*/, torch::jit::GraphFunction& /*caller*/,
                                     const std::string& name) override {
    return std::make_shared<torch::jit::BuiltinModule>(name);
  }
};

// The names that only serialized TorchScript uses.
const std::unordered_map<std::string, std::shared_ptr<torch::jit::SugaredValue>>& serialized_forms() {
  using torch::jit::SpecialFormValue;
  static const auto& forms = *new std::unordered_map<std::string, std::shared_ptr<torch::jit::SugaredValue>>{
      {"ops", std::make_shared<OperatorNamespaces>()},
      {"annotate", SpecialFormValue::create(prim::annotate)},
      {"unchecked_cast", SpecialFormValue::create(prim::unchecked_cast)},
      {"uninitialized", SpecialFormValue::create(prim::Uninitialized)},
  };
  return forms;
}

// Splits at the lines that begin with "def ", and names each part.
std::unordered_map<std::string, std::string> definitions_in(std::string_view source) {
  constexpr std::string_view kDefinition = "\ndef ";
  std::unordered_map<std::string, std::string> definitions;
  const std::string text = "\n" + std::string(source);
  for (size_t begin = text.find(kDefinition); begin != std::string::npos;) {
    const size_t end = text.find(kDefinition, begin + 1);
    const size_t name = begin + kDefinition.size();
    definitions[text.substr(name, text.find('(', name) - name)] = text.substr(begin + 1, end - begin);
    begin = end;
  }
  return definitions;
}

torch::jit::Graph& graph_in(torch::jit::Function& function) { return *torch::jit::toGraphFunction(function).graph(); }

}  // namespace

// The frontend asks this for the names that a function does not define, in the middle of that function's compilation.
class FunctionLibrary::Functions : public torch::jit::NativeResolver,
                                   public std::enable_shared_from_this<FunctionLibrary::Functions> {
 public:
  explicit Functions(std::string_view source) : definitions_(definitions_in(source)) {}

  std::shared_ptr<torch::jit::SugaredValue> resolveValue(const std::string& name, torch::jit::GraphFunction& caller,
                                                         const torch::jit::SourceRange& where) override {
    if (definitions_.contains(name)) {
      return std::make_shared<torch::jit::FunctionValue>(find(name));
    }
    if (const auto form = serialized_forms().find(name); form != serialized_forms().end()) {
      return form->second;
    }
    return NativeResolver::resolveValue(name, caller, where);
  }

  torch::jit::Function* find(const std::string& name) {
    if (torch::jit::Function* known = unit_.find_function(name)) {
      return known;
    }
    return define(unit_, definitions_.at(name));
  }

  // Returns the last function of the source.
  torch::jit::Function* define(torch::jit::CompilationUnit& unit, std::string_view source) {
    const std::vector<torch::jit::Function*> defined =
        unit.define(std::nullopt, std::string(source), shared_from_this(), nullptr);
    for (torch::jit::Function* function : defined) {
      inline_calls_in(*graph_in(*function).block());
    }
    return defined.back();
  }

  std::recursive_mutex& mutex() { return mutex_; }

 private:
  std::unordered_map<std::string, std::string> definitions_;
  torch::jit::CompilationUnit unit_;
  std::recursive_mutex mutex_;
};

FunctionLibrary::FunctionLibrary(std::string_view source) : functions_(std::make_shared<Functions>(source)) {}
FunctionLibrary::~FunctionLibrary() = default;

std::unique_ptr<Graph> FunctionLibrary::graph_of(const std::string& name) {
  const std::lock_guard lock(functions_->mutex());
  auto graph = convert(graph_in(*functions_->find(name)));
  SCONCE_ASSERT(graph, name, ": ", graph.refusal().reason);
  return std::move(*graph);
}

std::unique_ptr<Graph> FunctionLibrary::compile(std::string_view owner, std::string_view source) {
  const std::lock_guard lock(functions_->mutex());
  torch::jit::CompilationUnit unit;
  torch::jit::Function* last = nullptr;
  try {
    last = functions_->define(unit, source);
  } catch (const std::exception& error) {
    SCONCE_ASSERT(false, owner, " does not compile: ", error.what());
  }
  auto graph = convert(graph_in(*last));
  SCONCE_ASSERT(graph, owner, ": ", graph.refusal().reason);
  return std::move(*graph);
}

void start_frontend() {
  static const std::unique_ptr<Graph> first = FunctionLibrary("").compile("the frontend's first function", R"(
def first(x: Tensor, count: int, flag: bool):
    for i in range(count):
        if flag and i < 3.5:
            x = x + x
    return x
)");
  static_cast<void>(first);
}

}  // namespace sconce
