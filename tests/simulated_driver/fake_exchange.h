// Simulates NCCL: exchanges tensors in the memory of a FakeDriver between ranks that are threads of this process, by gloo.
#pragma once

#include "tests/simulated_driver/fake_driver.h"

#include "cuda/torch_bridge.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <string>
#include <vector>

namespace sconce::cuda {

// A collective reads its operands after all work that the current stream was given before, and is over when the call
// returns. On a captured stream it throws.
class FakeExchange final : public c10d::Backend {
 public:
  FakeExchange(FakeDriver& driver, TorchBridge& bridge, c10::intrusive_ptr<c10d::Store> store, int rank, int world,
               std::chrono::milliseconds timeout);

  const std::string getBackendName() const override { return "simulated"; }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override;
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& whole, at::Tensor& part,
                                                 const c10d::AllgatherOptions& options) override;

 private:
  // Waits for the work of the tensor's stream. Returns a tensor of the CPU with its memory.
  at::Tensor on_host(const at::Tensor& tensor);

  FakeDriver& driver_;
  TorchBridge& bridge_;
  const c10::intrusive_ptr<c10d::ProcessGroup> hosts_;
};

}  // namespace sconce::cuda
