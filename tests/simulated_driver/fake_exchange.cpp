#include "tests/simulated_driver/fake_exchange.h"

#include "training/parallel/gloo.h"

#include <ATen/ops/from_blob.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace sconce::cuda {
namespace {

class WorkDone final : public c10d::Work {
 public:
  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  bool wait(std::chrono::milliseconds /*timeout*/) override { return true; }
};

}  // namespace

FakeExchange::FakeExchange(FakeDriver& driver, TorchBridge& bridge, c10::intrusive_ptr<c10d::Store> store, int rank,
                           int world, std::chrono::milliseconds timeout)
    : Backend(rank, world),
      driver_(driver),
      bridge_(bridge),
      hosts_(make_gloo_group(store, "simulated", rank, world, timeout)) {}

at::Tensor FakeExchange::on_host(const at::Tensor& tensor) {
  const Expected<void> status = driver_.synchronize_stream(bridge_.handle(bridge_.current_stream(tensor.get_device())));
  TORCH_CHECK(status, "a collective on a captured stream: ", status.refusal().reason);
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU));
}

c10::intrusive_ptr<c10d::Work> FakeExchange::allreduce(std::vector<at::Tensor>& tensors,
                                                       const c10d::AllreduceOptions& options) {
  std::vector<at::Tensor> same = {on_host(tensors.at(0))};
  hosts_->allreduce(same, options)->wait();
  return c10::make_intrusive<WorkDone>();
}

c10::intrusive_ptr<c10d::Work> FakeExchange::broadcast(std::vector<at::Tensor>& tensors,
                                                       const c10d::BroadcastOptions& options) {
  std::vector<at::Tensor> same = {on_host(tensors.at(0))};
  hosts_->broadcast(same, options)->wait();
  return c10::make_intrusive<WorkDone>();
}

c10::intrusive_ptr<c10d::Work> FakeExchange::_allgather_base(at::Tensor& whole, at::Tensor& part,
                                                             const c10d::AllgatherOptions& options) {
  at::Tensor to = on_host(whole);
  at::Tensor from = on_host(part);
  hosts_->_allgather_base(to, from, options)->wait();
  return c10::make_intrusive<WorkDone>();
}

}  // namespace sconce::cuda
