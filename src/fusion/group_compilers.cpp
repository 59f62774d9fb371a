#include "fusion/group_compilers.h"

#include "fusion/cpu/cpu_nests.h"
#include "fusion/group_kernel.h"
#include "fusion/program/kernel_backend.h"
#include "fusion/program/kernel_width.h"
#include "fusion/program/reductions.h"
#include "kernels/clamped_convolution.h"

#include <algorithm>
#include <utility>

namespace sconce {
namespace {

bool reductions(const Node& node) {
  if (node.schema() == nullptr || !may_reduce(node.op())) {
    return false;
  }
  const TensorFacts* facts = node.input(0)->facts();
  const size_t rank = facts != nullptr && facts->sizes ? facts->sizes->size() : DimSet().size();
  return reduction_of(node, static_cast<int64_t>(rank)).has_value();
}

// Returns whether the group may compute some rows without the others: it reduces no dimensions, and is no convolution with
// what clamps it. Whether it can is known when it is prepared (PreparedKernel::takes_rows).
bool may_take_rows(const NodeGroup& group) {
  return group.writes.empty() && !is_known_convolution(*group.nodes.front()) &&
         std::none_of(group.nodes.begin(), group.nodes.end(), [](const Node* node) { return reductions(*node); });
}

class KernelsOfGroups final : public GroupCompiler {
 public:
  explicit KernelsOfGroups(std::shared_ptr<const KernelBackend> backend) : backend_(std::move(backend)) {}
  c10::Device device() const override { return backend_->device(); }
  bool may_take_rows(const NodeGroup& group) const override { return device().is_cpu() && sconce::may_take_rows(group); }
  KernelPtr make_kernel(const NodeGroup& group) const override {
    KernelPtr own = device().is_cpu() ? make_clamped_convolution(group) : nullptr;
    own = own != nullptr ? std::move(own) : backend_->make_drawing_kernel(group);
    return own != nullptr ? std::move(own) : make_group_kernel(group, *backend_);
  }

 private:
  const std::shared_ptr<const KernelBackend> backend_;
};

}  // namespace

const GroupCompiler& background_kernels() {
  static const auto& compiler =  // jobs may outlive static objects
      *new KernelsOfGroups(make_cpu_nests(kernel_lanes(), /*is_blocking=*/false, /*is_selective=*/true));
  return compiler;
}

const GroupCompiler& blocking_kernels() {
  static const auto& compiler =
      *new KernelsOfGroups(make_cpu_nests(kernel_lanes(), /*is_blocking=*/true, /*is_selective=*/true));
  return compiler;
}

std::unique_ptr<GroupCompiler> make_kernels(std::shared_ptr<const KernelBackend> backend) {
  return std::make_unique<KernelsOfGroups>(std::move(backend));
}

std::unique_ptr<GroupCompiler> make_blocking_kernels(size_t lanes) {
  return make_kernels(make_cpu_nests(lanes, /*is_blocking=*/true, /*is_selective=*/false));
}

}  // namespace sconce
