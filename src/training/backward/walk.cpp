#include "training/backward/walk.h"

#include "plan/autograd/backward_node.h"
#include "trace/trace_key.h"
#include "training/backward/node_hooks.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <array>
#include <queue>
#include <string_view>
#include <typeinfo>
#include <unordered_map>

namespace sconce {
namespace {

using AutogradNode = torch::autograd::Node;

// The engine runs the node of the highest sequence number first. A leaf's is the highest of all.
struct RunsLater {
  bool operator()(const std::shared_ptr<AutogradNode>& a, const std::shared_ptr<AutogradNode>& b) const {
    return a->sequence_nr() < b->sequence_nr();
  }
};

// The formula of a torch::autograd::Function is code of the user's, which need not be operators alone.
bool is_function_of_user(const AutogradNode& node) {
  return std::string_view(typeid(node).name()).find("5torch8autograd7CppNodeI") != std::string_view::npos;
}

template <typename T>
void append(std::string& key, const T& value) {
  key.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

BackwardWalk::BackwardWalk(const std::shared_ptr<AutogradNode>& root, const torch::autograd::GraphTask& task) {
  std::unordered_map<AutogradNode*, int> dependencies = task.dependencies_;
  std::priority_queue<std::shared_ptr<AutogradNode>, std::vector<std::shared_ptr<AutogradNode>>, RunsLater> ready;
  ready.push(root);
  while (!ready.empty() && why_not_.empty()) {
    const std::shared_ptr<AutogradNode> node = ready.top();
    ready.pop();
    add(node, task);
    for (const torch::autograd::Edge& edge : node->next_edges()) {
      if (!edge.is_valid()) {
        continue;
      }
      if (!task.exec_info_.empty()) {
        const auto info = task.exec_info_.find(edge.function.get());
        if (info == task.exec_info_.end() || !info->second.should_execute()) {
          continue;
        }
      }
      if (--dependencies.at(edge.function.get()) == 0) {
        ready.push(edge.function);
      }
    }
  }
  if (why_not_.empty()) {
    finish_key();
  }
}

void BackwardWalk::add(const std::shared_ptr<AutogradNode>& node, const torch::autograd::GraphTask& task) {
  BackwardCall& call = calls_.emplace_back();
  call.node = node;
  call.is_leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(node.get()) != nullptr;
  if (const auto info = task.exec_info_.find(node.get()); info != task.exec_info_.end()) {
    call.is_needed = info->second.needed_;
    if (info->second.captures_ != nullptr) {
      for (const auto& capture : *info->second.captures_) {
        if (!capture.DO_NOT_USE_DEPRECATED_get_capture_hooks().empty()) {
          why_not_ = "a gradient that is returned has a capture hook";
        }
        call.captures.push_back({capture.input_idx_, capture.output_idx_});
      }
    }
  }
  append(key_, typeid(*node).hash_code());
  append(key_, call.is_needed);
  for (const BackwardCall::Capture& capture : call.captures) {
    append(key_, capture);
  }
  const bool has_hooks = has_hooks_before(*node) || has_hooks_after(*node) ||
                         (call.is_leaf && node->tensor_post_acc_grad_hooks() != nullptr);
  append(key_, std::array{has_hooks_before(*node), has_hooks_after(*node), has_tensor_hooks(*node), has_hooks});
  runs_other_code_ = runs_other_code_ || has_hooks;
  if (!call.is_leaf) {
    collect(call);
  }
}

void BackwardWalk::collect(BackwardCall& call) {
  call.entry = &compiler_.node_calls.lookup(call.node);
  torch::dynamo::autograd::CompiledNodeArgs arguments(compiler_, *call.entry);
  if (call.is_needed) {
    const bool is_own = dynamic_cast<BackwardNode*>(call.node.get()) != nullptr;  // runs plans, and nothing else
    call.is_opaque = is_own || is_function_of_user(*call.node);
    if (!call.is_opaque) {
      try {
        call.node->compiled_args(arguments);
      } catch (const c10::NotImplementedError&) {
        call.is_opaque = true;
      }
    }
    arguments.collect(call.node->next_edges());
    append(key_, call.is_opaque);
    runs_other_code_ = runs_other_code_ || (call.is_opaque && !is_own);
  }
  const torch::dynamo::autograd::CacheKey key = arguments.key();
  append(key_, key.key_size);
  key_.append(reinterpret_cast<const char*>(key.key), key.key_size);
}

// LibTorch's key leaves out sizes and strides, on which what is recorded may depend.
void BackwardWalk::finish_key() {
  if (!compiler_.lifted_ivalue_args.args.empty()) {
    why_not_ = "a node has saved numbers";
    return;
  }
  for (const torch::dynamo::autograd::SizeInput& size : compiler_.all_size_inputs) {
    append(key_, size.value);
  }
  for (const int64_t word : trace_key(tensors())) {
    append(key_, word);
  }
}

}  // namespace sconce
