// RankGroup: the ranks that a DataParallel stands for.
#pragma once

#include <sconce/data_parallel.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <vector>

namespace sconce {

class GradientBuckets;

// Collectives on one group match by their order alone: where a rank leaves one out, all others hang. So what a step reduces,
// and in which order, follows from the parameters, and not from the program that serves the step on this rank.
//
// Not thread-safe, as the order of collectives is that of one thread.
class RankGroup {
 public:
  // `store`: where ranks leave reasons for each other; null if there is none. `is_own`: nobody else uses the group.
  RankGroup(c10::intrusive_ptr<c10d::ProcessGroup> group, c10::intrusive_ptr<c10d::Store> store, std::string name,
            bool is_own, const DataParallelSettings& settings);
  // Tells other ranks that this one takes part no longer.
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  int rank() const { return rank_; }
  int world() const { return world_; }
  const std::string& name() const { return name_; }  // in c10d's registry, for operators
  const DataParallelSettings& settings() const { return settings_; }
  // Whether a step gives all ranks the parameters and buffers of rank 0 when it is made. One that takes the place of another
  // step does not: buffers may differ by then.
  bool begins_alike() const { return begins_alike_; }
  void set_begins_alike(bool on) { begins_alike_ = on; }
  // Returns the name of a group of these ranks for sums within forward and backward. Which of them come before the reduction
  // of a bucket depends on the program that serves a call; so they have connections of their own. `type`: of the sums.
  // All ranks ask for it in the same order of calls. Throws c10::Error for a group that is not sconce's own.
  const std::string& name_of_norms(c10::DeviceType type);

  // ---- collectives of tensors on CPUs, or on devices whose runtime has an exchange. They throw what c10d throws; `fail`
  // makes the error that the user sees of it.
  using Work = c10::intrusive_ptr<c10d::Work>;
  // Begins to replace the elements of a contiguous tensor by their sums over the ranks.
  Work begin_sum(const at::Tensor& tensor);
  // Begins to put the parts of all ranks, in their order, into a contiguous tensor.
  Work begin_gather(const at::Tensor& whole, const at::Tensor& part);
  // Gives a contiguous tensor the elements that it has on rank 0.
  void send_from_rank_0(const at::Tensor& tensor);
  // The same for tensors of any form, in buckets.
  void broadcast(const std::vector<at::Tensor>& tensors);
  void barrier();
  // Throws c10::Error if rank 0 has given another text. `what` the text describes, for the message. Without a store, does
  // nothing.
  void expect_as_on_rank_0(const std::string& what, const std::string& text);

  // Returns the buckets of the parameters. All ranks ask for the same ones in the same order.
  std::shared_ptr<GradientBuckets> buckets_of(const std::vector<at::Tensor>& parameters);

  // ---- failure
  // Calls a function that uses the group. Whatever it throws breaks the group, as `fail` says.
  template <typename Function>
  decltype(auto) run(const Function& function) {
    expect_usable();
    try {
      return function();
    } catch (...) {
      fail(std::current_exception());
    }
  }
  // Throws the reason if the group is broken.
  void expect_usable() const;
  // Breaks the group because of an exception of a step. Gives the other ranks the reason, if it is this rank's own, and
  // rethrows it; otherwise asks them for theirs, and throws c10::Error that names the rank that is to blame.
  [[noreturn]] void fail(const std::exception_ptr& error);
  // Breaks the group and gives the other ranks the reason. Does nothing if it is broken.
  void leave(const std::string& reason);

 private:
  // Lets a group of sconce's own exchange tensors of this kind of device, too.
  void serve(c10d::ProcessGroup& group, c10::DeviceType type) const;
  // Sets the key of this rank in the store; without an effect if the store is lost.
  void leave_note(const std::string& note) noexcept;
  // Returns what the other ranks say, "rank 2 raised: …" or "rank 2 does not answer", within the time for it.
  std::string notes_of_others() const;
  std::string key_of(int rank) const;
  void close();

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  c10::intrusive_ptr<c10d::ProcessGroup> norms_;  // null until it is asked for
  const c10::intrusive_ptr<c10d::Store> store_;
  const std::string name_;
  const std::string name_of_norms_;
  const bool is_own_;
  bool begins_alike_ = true;
  const DataParallelSettings settings_;
  const int rank_;
  const int world_;
  std::vector<std::shared_ptr<GradientBuckets>> buckets_;
  int texts_ = 0;       // that were compared
  std::string broken_;  // why; empty while the group is whole
};

}  // namespace sconce
