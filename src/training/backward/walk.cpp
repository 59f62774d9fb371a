#include "training/backward/walk.h"

#include "plan/autograd/backward_node.h"
#include "trace/trace_key.h"
#include "trace/tracer.h"
#include "training/backward/node_hooks.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/tensor.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <queue>
#include <string_view>
#include <typeinfo>

namespace sconce {
namespace {

using AutogradNode = torch::autograd::Node;

// The engine runs the node of the highest sequence number first. A leaf's is the highest of all.
struct RunsLater {
  bool operator()(const std::shared_ptr<AutogradNode>* a, const std::shared_ptr<AutogradNode>* b) const {
    return (*a)->sequence_nr() < (*b)->sequence_nr();
  }
};

enum class NodeClass : uint8_t { kLeaf, kOwn, kFunctionOfUser, kOther };

NodeClass find_class(const AutogradNode& node) {
  if (dynamic_cast<const torch::autograd::AccumulateGrad*>(&node) != nullptr) {
    return NodeClass::kLeaf;
  }
  if (dynamic_cast<const BackwardNode*>(&node) != nullptr || dynamic_cast<const IntermediatesNode*>(&node) != nullptr) {
    return NodeClass::kOwn;
  }
  // The formula of a torch::autograd::Function is code of the user's, which need not be operators alone. The mangled name
  // has to tell: CppNode<T> has no base class but Node.
  const std::string_view name = typeid(node).name();
  return name.find("5torch8autograd7CppNodeI") != name.npos ? NodeClass::kFunctionOfUser : NodeClass::kOther;
}

// By the address of the type: a process has few.
NodeClass class_of(const AutogradNode& node) {
  static thread_local FlatMap<const std::type_info*, NodeClass> known;
  const std::type_info* type = &typeid(node);
  const auto found = known.find(type);
  return found != known.end() ? found->second : known.emplace(type, find_class(node)).first->second;
}

template <typename T>
void append(std::string& key, const T& value) {
  key.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void append_metadata(std::string& key, std::vector<int64_t>& sizes, const torch::autograd::InputMetadata& metadata) {
  const auto shape = metadata.shape_as_dim_vector();
  append(key, static_cast<int64_t>(shape.size()) << 48 | static_cast<int64_t>(metadata.dtype().toScalarType()) << 32 |
                  static_cast<int64_t>(metadata.layout()) << 16 | static_cast<int64_t>(metadata.device().type()) << 8 |
                  static_cast<uint8_t>(metadata.device().index()));
  for (const c10::SymInt& size : shape) {
    sizes.push_back(size.expect_int());
  }
}

// A torch.autograd.Function of Python's would run Python to tell what it has saved, and this thread may not hold its lock.
bool is_python_function(const torch::autograd::Node& node) {
  return std::string_view(typeid(node).name()) == "N5torch8autograd6PyNodeE";
}

}  // namespace

// The engine's schedule without its calls: a node is ready once all edges to it that GraphTask::dependencies_ counts have
// been followed. RunsLater orders those that are ready.
BackwardSchedule::BackwardSchedule(const std::shared_ptr<AutogradNode>& root, const torch::autograd::GraphTask& task) {
  structure_.reserve(4096);
  sizes_.reserve(256);
  calls_.reserve(task.dependencies_.size() + 1);
  targets_.reserve(task.dependencies_.size());
  std::priority_queue<const std::shared_ptr<AutogradNode>*, std::vector<const std::shared_ptr<AutogradNode>*>, RunsLater>
      ready;
  ready.push(&root);
  while (!ready.empty() && why_not_.empty()) {
    const std::shared_ptr<AutogradNode>& node = *ready.top();
    ready.pop();
    add(node, task);
    calls_.back().first_size = sizes_.size();
    for (const torch::autograd::Edge& edge : node->next_edges()) {
      // The key has edges that are not followed, too: formulas ask which of their edges are (`task_should_compute_output`),
      // and need not compute other gradients.
      append(structure_, edge.is_valid() ? static_cast<int64_t>(edge.input_nr) : int64_t{-1});
      if (!edge.is_valid() || !should_run(*edge.function, task)) {
        continue;
      }
      Target& target = target_of(*edge.function, task);
      append(structure_, target.number);
      append_metadata(structure_, sizes_, edge.function->input_metadata(edge.input_nr));
      if (--target.edges_left == 0) {
        ready.push(&edge.function);
      }
    }
  }
  if (why_not_.empty()) {
    finish_key();
  }
}

bool BackwardSchedule::should_run(AutogradNode& node, const torch::autograd::GraphTask& task) {
  // LibTorch leaves it empty unless the caller names tensors, for autograd::grad or as `inputs` of backward.
  if (task.exec_info_.empty()) {
    return true;
  }
  const auto info = task.exec_info_.find(&node);
  return info != task.exec_info_.end() && info->second.should_execute();
}

BackwardSchedule::Target& BackwardSchedule::target_of(AutogradNode& node, const torch::autograd::GraphTask& task) {
  const auto [found, is_new] = targets_.emplace(&node, Target{});
  if (is_new) {
    // The number stands for the node in the key: another backward has its nodes at other addresses.
    found->second = {static_cast<int32_t>(targets_.size()), task.dependencies_.at(&node)};
  }
  return found->second;
}

void BackwardSchedule::add(const std::shared_ptr<AutogradNode>& node, const torch::autograd::GraphTask& task) {
  BackwardCall& call = calls_.emplace_back();
  call.node = node;
  const NodeClass node_class = class_of(*node);
  call.is_leaf = node_class == NodeClass::kLeaf;
  if (const auto info = task.exec_info_.find(node.get()); info != task.exec_info_.end()) {
    call.is_needed = info->second.needed_;
    if (info->second.captures_ != nullptr) {
      for (const auto& capture : *info->second.captures_) {
        if (!capture.DO_NOT_USE_DEPRECATED_get_capture_hooks().empty()) {
          // LibTorch's distributed engine sets these hooks. No code here calls them.
          why_not_ = "a gradient that is returned has a capture hook";
        }
        call.captures.push_back({capture.input_idx_, capture.output_idx_});
      }
    }
  }
  call.is_opaque = node_class == NodeClass::kOwn || node_class == NodeClass::kFunctionOfUser;
  const bool hooks_before = has_hooks_before(*node);
  const bool hooks_after = has_hooks_after(*node);
  const bool has_hooks = hooks_before || hooks_after || (call.is_leaf && node->tensor_post_acc_grad_hooks() != nullptr);
  // This unpacks saved tensors. For a node that is not called, that could raise where the engine does not.
  if (call.is_needed && !call.is_leaf && !call.is_opaque) {
    collect(call);
  }
  // After `collect`, which may find the formula opaque. sconce's own nodes run plans, and nothing else.
  runs_other_code_ = runs_other_code_ || has_hooks || (call.is_opaque && node_class != NodeClass::kOwn);
  has_nodes_on_host_ = has_nodes_on_host_ || has_hooks || call.is_opaque;
  const auto met = targets_.find(node.get());
  append(structure_, met != targets_.end() ? met->second.number : 0);  // 0: the root
  append(structure_, &typeid(*node));
  append(structure_, node->num_inputs());  // formulas of cuts ask how many parts there were
  append(structure_, std::array{call.is_needed, call.is_opaque, hooks_before, hooks_after,
                                hooks_before && has_tensor_hooks(*node), has_hooks});
  for (const BackwardCall::Capture& capture : call.captures) {
    append(structure_, capture);
  }
}

void BackwardSchedule::collect(BackwardCall& call) {
  call.entry = &compiler_.node_calls.lookup(call.node);
  if (const auto* copy = dynamic_cast<const torch::autograd::CopySlices*>(call.node.get()); copy != nullptr && !copy->fn) {
    why_not_ = "a backward before has freed what this one reads";  // which LibTorch's engine tells when it gets there
    return;
  }
  torch::dynamo::autograd::CompiledNodeArgs arguments(compiler_, *call.entry);
  try {
    if (is_python_function(*call.node)) {
      call.is_opaque = true;
    } else {
      call.node->compiled_args(arguments);
    }
  } catch (const c10::NotImplementedError&) {
    call.is_opaque = true;  // LibTorch raises this for classes that do not tell what they have saved
  }
  if (!compiler_.sv_to_hooks.empty()) {
    why_not_ = "a tensor was saved with hooks";
    return;
  }
  const torch::dynamo::autograd::CacheKey key = arguments.key();
  append(structure_, key.key_size);
  structure_.append(reinterpret_cast<const char*>(key.key), key.key_size);
}

// LibTorch's key leaves out sizes and strides, on which what is recorded may depend.
void BackwardSchedule::finish_key() {
  // When a node is recorded, LibTorch replaces these numbers by proxies. No code here gives the proxies values.
  if (!compiler_.lifted_ivalue_args.args.empty()) {
    why_not_ = "a node has saved numbers";
    return;
  }
  first_saved_size_ = sizes_.size();
  for (const torch::dynamo::autograd::SizeInput& size : compiler_.all_size_inputs) {
    sizes_.push_back(size.value);
  }
  append(structure_, compiler_.all_size_inputs.size());
  first_size_of_tensors_ = sizes_.size();
  std::transform(saved_tensors().begin(), saved_tensors().end(), std::back_inserter(tensors_), real_of);
  const TraceKeyParts key = trace_key_parts(tensors());
  structure_.append(reinterpret_cast<const char*>(key.structure.data()), key.structure.size() * sizeof(int64_t));
  sizes_.insert(sizes_.end(), key.sizes.begin(), key.sizes.end());
}

}  // namespace sconce
