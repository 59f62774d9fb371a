// DataParallel: processes that train one model together, each on examples of its own.
//
//   auto ranks = sconce::DataParallel::from_environment();  // under torchrun; alone without it
//   sconce::TrainStep step(module, loss, adam, sconce::TrainOptions().data_parallel(ranks));
//   while (...) step({inputs}, {targets});                  // gradients are the mean over all ranks
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace c10d {
class ProcessGroup;
class Store;
}  // namespace c10d

namespace sconce {

class Module;
class RankGroup;

struct DataParallelSettings {
  // How long a rank waits for another before it takes it for lost. c10d's own default, 30 minutes, is what a hanging run
  // would cost.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  // Gradients are reduced in buckets of about this many bytes. The first one is smaller, so that it is on its way early.
  size_t bucket_bytes = size_t{25} << 20;
  size_t first_bucket_bytes = size_t{1} << 20;
};

// A group of processes ("ranks") on c10d, LibTorch's engine for collectives: gloo between CPUs, NCCL between GPUs,
// one for each rank. All ranks make the same calls in the same order. Copies are the same group.
//
// If a rank raises, dies or hangs, every other rank raises c10::Error, which names that rank and its reason, in the call
// that waits for it. The group is then broken: later calls raise the same at once. Under `torchrun --max-restarts N`, let
// the program end; torchrun starts all ranks again. A program without a handler of SIGPIPE ignores that signal from its
// first group on: a write to a rank that has ended would end it without a word.
class DataParallel {
 public:
  // Joins the group that the environment describes: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as torchrun sets them.
  // Without RANK and WORLD_SIZE, the process is a group of its own. Throws c10::Error that names the variable, the address
  // or the ranks that are missing.
  static DataParallel from_environment(const DataParallelSettings& settings = {});
  // Joins ranks 0 to `world_size` - 1 that meet in `store`: a c10d::TCPStore, FileStore or HashStore.
  DataParallel(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size, const DataParallelSettings& settings = {});
  // The ranks of a group that the caller has made, such as torch.distributed's. If it has gloo between CPUs, they meet in
  // its store once more and exchange gradients on connections of their own, so that the caller's collectives may stand
  // anywhere between calls. A group without gloo is used as it is, with its own time limit: its name must be one that c10d
  // knows (c10d::register_process_group).
  explicit DataParallel(c10::intrusive_ptr<c10d::ProcessGroup> group, const DataParallelSettings& settings = {});

  int rank() const;
  int world_size() const;

  // Gives the module's parameters and buffers on all ranks the elements that they have on rank 0. A TrainStep does so
  // itself.
  void broadcast(const Module& module) const;
  void broadcast(const std::vector<at::Tensor>& tensors) const;
  // Replaces the gradients of the parameters by their mean over all ranks, after `backward()` of any kind, compiled or not.
  // An undefined gradient counts as zero, and stays undefined if it is so on all ranks. The gradients are views of buckets,
  // whose memory later calls reuse. Throws c10::Error for a sparse gradient.
  void average_gradients(const std::vector<at::Tensor>& parameters) const;
  // Replaces the elements of a contiguous tensor by their sums over all ranks: of losses, of metrics.
  void sum(const at::Tensor& tensor) const;
  // Breaks the group, because this rank has failed outside of a call: the others raise with this reason. Does nothing if the
  // group is broken.
  void leave(const std::string& reason) const;
  // Returns when all ranks have called it.
  void barrier() const;

  const std::shared_ptr<RankGroup>& group() const { return group_; }  // for sconce itself

 private:
  std::shared_ptr<RankGroup> group_;
};

}  // namespace sconce
