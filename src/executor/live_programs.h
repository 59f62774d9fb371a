// LivePrograms: the methods and functions of the process that sconce runs, and counts of those that are destroyed.
#pragma once

#include <sconce/graph_executor.h>
#include <sconce/status.h>

#include <map>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

namespace sconce {

// Thread-safe.
class LivePrograms {
 public:
  static LivePrograms& of_process();

  // Lists the program under a name while this lives.
  class Entry {
   public:
    Entry(std::string name, const GraphExecutor::Impl& program);
    ~Entry();
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    // Adds the program's counters to those of the past, before they are reset.
    void keep_counters() const;

   private:
    const std::string name_;
    const GraphExecutor::Impl& program_;
  };

  std::vector<MethodStatus> status();

 private:
  struct Named {
    std::unordered_set<const GraphExecutor::Impl*> programs;
    Counters past;
  };
  std::mutex mutex_;
  std::map<std::string, Named> by_name_;
};

}  // namespace sconce
