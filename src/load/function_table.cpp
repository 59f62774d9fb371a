#include "load/function_table.h"

#include "base/tensors_in.h"
#include "ir/refusal.h"
#include "load/convert.h"

#include <ATen/core/class_type.h>
#include <ATen/core/function.h>
#include <ATen/core/jit_type.h>
#include <torch/csrc/jit/api/function_impl.h>

#include <unordered_set>

namespace sconce {
namespace {

// Returns what owns the code of a method; null for a function. A function is called by a method of the same unit.
std::shared_ptr<const torch::jit::CompilationUnit> unit_of(torch::jit::Function& function) {
  const auto& arguments = function.getSchema().arguments();
  const auto self = arguments.empty() ? nullptr : arguments.front().type()->cast<c10::ClassType>();
  return self == nullptr ? nullptr : self->compilation_unit();
}

// Finds what the functions of a program assign.
class AssignmentFinder {
 public:
  void find_in(const c10::IValue& module) {
    for_each_part(module, [this](const c10::IValue& part) {
      if (part.isObject()) {
        find_in(*part.type()->expect<c10::ClassType>());
      }
    });
  }

  AssignedAttributes found;

 private:
  void find_in(const c10::ClassType& type) {
    if (!types_.insert(&type).second) {
      return;
    }
    for (const auto& functions : {type.methods(), type.getForwardPreHooks(), type.getForwardHooks()}) {
      for (torch::jit::Function* function : functions) {
        find_in(*function);
      }
    }
  }

  void find_in(torch::jit::Function& function) {
    if (functions_.insert(&function).second && function.isGraphFunction()) {
      function.ensure_defined();
      find_in(*torch::jit::toGraphFunction(function).graph()->block());
    }
  }

  // Returns whether the node changes a list of tensors that its function did not make.
  static bool changes_list(const torch::jit::Node& node) {
    const c10::FunctionSchema* schema = node.maybeSchema();
    for (size_t i = 0; schema != nullptr && schema->is_mutable() && i < node.inputs().size(); ++i) {
      const auto list = node.input(i)->type()->cast<c10::ListType>();
      if (list && list->getElementType()->isSubtypeOf(*c10::TensorType::get()) &&
          schema->is_mutable({c10::SchemaArgType::input, i}) && node.input(i)->node()->kind() != prim::ListConstruct) {
        return true;
      }
    }
    return false;
  }

  void find_in(torch::jit::Block& block) {
    for (torch::jit::Node* node : block.nodes()) {
      if (node->kind() == prim::SetAttr) {
        found.add(*node->input(0)->type(), node->s(attr::kName));
      } else if (changes_list(*node)) {
        found.add_changed_list();
      } else if (node->kind() == prim::CallFunction) {
        find_in(*node->input(0)->type()->expectRef<c10::FunctionType>().function());
      }
      for (torch::jit::Block* inner : node->blocks()) {
        find_in(*inner);
      }
    }
  }

  std::unordered_set<const c10::ClassType*> types_;
  std::unordered_set<const torch::jit::Function*> functions_;
};

}  // namespace

FunctionTable::FunctionTable(const c10::IValue& module, OwnCode own_code) {
  if (own_code == OwnCode::kOwnsTable) {
    not_kept_ = module.toObjectRef().compilation_unit().get();
  }
  AssignmentFinder finder;
  finder.find_in(module);
  assigned_ = std::move(finder.found);
}

Expected<const Graph*> FunctionTable::graph_of(torch::jit::Function& function) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto found = graphs_.find(&function); found != graphs_.end()) {
    return found->second.graph.get();
  }
  function.ensure_defined();
  if (!function.isGraphFunction()) {
    return Refusal::because(function.qualname().qualifiedName() + " is built in: it has no graph");
  }
  auto graph = convert(*torch::jit::toGraphFunction(function).graph());
  if (!graph) {
    return graph.refusal();
  }
  std::shared_ptr<const torch::jit::CompilationUnit> unit = unit_of(function);
  if (unit.get() == not_kept_) {
    unit = nullptr;
  }
  return graphs_.emplace(&function, Entry{std::move(*graph), std::move(unit)}).first->second.graph.get();
}

Expected<torch::jit::Function*> FunctionTable::callee_of(const Node& call) {
  const c10::TypePtr& callee = call.input(0)->type();
  if (call.kind() == prim::CallFunction) {
    return callee->expectRef<c10::FunctionType>().function();
  }
  const std::string& name = call.attribute_as<std::string>(attr::kName);
  const auto class_type = callee->cast<c10::ClassType>();
  if (!class_type) {
    return static_cast<torch::jit::Function*>(nullptr);
  }
  torch::jit::Function* method = class_type->findMethod(name);
  if (method == nullptr) {
    return refusal_of(call, callee->str() + " has no method '" + name + "'");
  }
  return method;
}

}  // namespace sconce
