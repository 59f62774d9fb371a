// BackwardPrograms: the plans of backwards, by what they depend on. The implementation of sconce::BackwardCache.
#pragma once

#include "executor/captured_graph.h"
#include "executor/plan_cache/striped_counter.h"
#include "trace/seen_keys.h"
#include "training/backward/record.h"

#include <sconce/compiled_backward.h>

#include <list>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>

namespace sconce {

class BackwardPrograms {
 public:
  using Compiler = BackwardCache::Compiler;
  using Compiled = BackwardCache::Compiled;

  BackwardPrograms(const Options& options, Compiler compiler) : options_(options), compiler_(std::move(compiler)) {}

  // Runs a backward as LibTorch's engine would. Returns the gradients that were asked for.
  torch::autograd::variable_list run(const std::shared_ptr<torch::autograd::Node>& root,
                                     const torch::autograd::GraphTask& task, const torch::autograd::edge_list& outputs);

  BackwardExplanation explain() const;
  void clear();
  void wait_for_compiles() const;

 private:
  // What is known of backwards with one key.
  struct Entry {
    std::string why_not;  // recording was refused
    BackwardProgram program;
    std::vector<std::shared_ptr<CapturedGraph>> plans;  // of the program's stages; none with a compiler of the user's
    bool is_ready() const;
  };
  using EntryPtr = std::shared_ptr<const Entry>;
  using Order = std::list<std::string>;

  bool should_record(const std::string& key);
  EntryPtr find(const std::string& key);
  void insert(const std::string& key, EntryPtr entry);
  EntryPtr record(BackwardWalk& walk, bool keeps_graph, torch::autograd::variable_list& results) const;
  torch::autograd::variable_list run_by_engine(const std::shared_ptr<torch::autograd::Node>& root,
                                               const torch::autograd::GraphTask& task, const std::string& reason);

  const Options options_;
  const Compiler compiler_;
  StripedCounter by_plan_;
  StripedCounter recorded_;
  mutable std::mutex mutex_;  // guards what follows
  Order order_;               // keys, those used last first
  std::unordered_map<std::string, std::pair<EntryPtr, Order::iterator>> entries_;
  std::map<std::string, uint64_t> reasons_;
  SeenKeys seen_;
};

}  // namespace sconce
