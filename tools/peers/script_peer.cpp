#include "tools/peers/script_peer.h"

#include "base/exception_message.h"

#include <c10/util/Exception.h>
#include <torch/csrc/jit/passes/autocast.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/passes/peephole.h>

namespace sconce::peers {
namespace {

class ScriptSession : public Peer::Session {
 public:
  ScriptSession(const ExecutorSettings& settings, torch::jit::Module module, const std::string& method)
      : scope_(settings),
        module_(std::move(module)),
        method_(module_.get_method(method)),
        has_hooks_(has_hooks(module_, method)) {}

  c10::IValue run(std::vector<c10::IValue> arguments) override {
    return has_hooks_ ? module_(std::move(arguments)) : method_(std::move(arguments));
  }

 private:
  static bool has_hooks(const torch::jit::Module& module, const std::string& method) {
    return method == "forward" &&
           (!module.type()->getForwardPreHooks().empty() || !module.type()->getForwardHooks().empty());
  }

  const ExecutorScope scope_;
  torch::jit::Module module_;
  torch::jit::Method method_;
  const bool has_hooks_;
};

bool is_autocast(const c10::Type& type) {
  const auto* const class_type = type.castRaw<c10::ClassType>();
  return class_type != nullptr && class_type->name() && class_type->name()->name() == "autocast";
}

bool holds_autocast_block(const torch::jit::Block& block) {
  for (const torch::jit::Node* node : block.nodes()) {
    if (node->kind() == c10::prim::Enter && is_autocast(*node->input()->type())) {
      return true;
    }
    for (const torch::jit::Block* nested : node->blocks()) {
      if (holds_autocast_block(*nested)) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace

std::optional<std::string> ScriptPeer::prepare(const torch::jit::Module& module, const std::string& method) {
  module_ = module;
  method_ = method;
  return module.find_method(method) ? std::nullopt : std::make_optional("the model has no method '" + method + "'");
}

std::unique_ptr<Peer::Session> ScriptPeer::session() { return std::make_unique<ScriptSession>(settings_, module_, method_); }

std::optional<std::string> EagerPeer::prepare(const torch::jit::Module& module, const std::string& method) {
  if (auto reason = ScriptPeer::prepare(module, method)) {
    return reason;
  }
  // Inlined on a copy, to find autocast blocks in callees, too.
  auto graph = module.get_method(method).graph();
  const auto inlined = graph->copy();
  torch::jit::Inline(*inlined);
  if (holds_autocast_block(*inlined->block())) {
    // Autocast blocks have an effect only after lowering, which LibTorch does before it optimizes. The lowered graph
    // replaces the method's for this module.
    torch::jit::Inline(*graph);
    torch::jit::PeepholeOptimize(graph, /*disable_shape_peepholes=*/true);
    torch::jit::ConstantPropagationImmutableTypes(graph);
    torch::jit::Autocast(graph);
  }
  return std::nullopt;
}

std::optional<std::string> FrozenPeer::prepare(const torch::jit::Module& module, const std::string& method) {
  if (is_in_training_mode(module)) {
    return "freezing needs eval mode, the model was saved in training mode";
  }
  if (!module.find_method(method)) {
    return "the model has no method '" + method + "'";
  }
  try {
    const bool is_forward = method == "forward";
    torch::jit::Module frozen =
        torch::jit::freeze(module.copy(), is_forward ? std::vector<std::string>{} : std::vector{method});
    frozen = torch::jit::optimize_for_inference(frozen, is_forward ? std::vector<std::string>{} : std::vector{method});
    return ScriptPeer::prepare(frozen, method);
  } catch (const std::exception& failure) {
    return "freezing failed: " + one_line_message(failure);
  }
}

bool is_in_training_mode(const torch::jit::Module& module) {
  return module.hasattr("training") && module.attr("training").isBool() && module.is_training();
}

}  // namespace sconce::peers
