// The processes that train together, as torchrun starts them; one process without it.
#pragma once

#include "tools/sconce/train/placement.h"

#include <sconce/data_parallel.h>

#include <optional>
#include <string>
#include <vector>

namespace sconce::cli {

// Every process makes the same calls in the same order. Each of them throws c10::Error, which names the process that is to
// blame, where another has failed.
class Ranks {
 public:
  // A process that is alone.
  Ranks() = default;
  explicit Ranks(const DataParallel& group);
  // Joins the processes that the environment describes (DataParallel::from_environment).
  static Ranks of_environment();

  const std::optional<DataParallel>& group() const { return group_; }  // nothing for a process that is alone
  const Placement& placement() const { return placement_; }
  bool is_alone() const { return !group_; }

  // Returns the sums over all processes.
  std::vector<double> sum(const std::vector<double>& numbers) const;
  // Returns the bytes of all processes, in their order.
  std::vector<std::string> gather(const std::string& bytes) const;
  // Gives the tensors the elements that they have in the first process.
  void broadcast(const std::vector<at::Tensor>& tensors) const;
  // Lets the other processes end with this reason.
  void leave(const std::string& reason) const;

 private:
  std::optional<DataParallel> group_;
  Placement placement_;
};

}  // namespace sconce::cli
