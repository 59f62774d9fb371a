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
#include <optional>
#include <set>
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
  // What is known of backwards with one structure and sizes of one pattern.
  struct Entry {
    SizePattern pattern;
    std::string why_not;  // recording was refused
    BackwardProgram program;
    std::vector<std::shared_ptr<CapturedGraph>> plans;  // of the program's stages; none with a compiler of the user's
    bool is_ready() const;
    // Requires that some plan was not ready. Another thread may have made it since then.
    std::string why_no_plan() const;
  };
  using EntryPtr = std::shared_ptr<const Entry>;
  struct Structure;
  struct Use {
    EntryPtr entry;
    Structure* structure;
  };
  using Uses = std::list<Use>;
  // What is known of backwards with one structure.
  struct Structure {
    std::string key;
    std::vector<Uses::iterator> entries;  // those of one size first
    std::vector<int64_t> first_sizes;     // for which the first entry was recorded
    std::vector<bool> symbolic;           // which sizes an entry leaves open
    size_t general_entries = 0;
    bool keeps_sizes = false;  // no trace can leave sizes open
  };
  struct Found {
    EntryPtr entry;
    std::vector<int64_t> symbols;
  };

  Found find(const BackwardWalk& walk);
  // Returns the sizes for which to record a backward that no entry serves; nothing if its kind came for the first time.
  std::optional<SizePattern> pattern_to_record(const BackwardWalk& walk);
  void insert(const BackwardWalk& walk, EntryPtr entry);
  void drop_oldest(Uses& dropped, const Structure& kept);
  EntryPtr record(BackwardWalk& walk, const SizePattern& pattern, bool keeps_graph,
                  torch::autograd::variable_list& results) const;
  torch::autograd::variable_list run_by_engine(const std::shared_ptr<torch::autograd::Node>& root,
                                               const torch::autograd::GraphTask& task, const std::string& reason);

  const Options options_;
  const Compiler compiler_;
  StripedCounter by_plan_;
  StripedCounter recorded_;
  mutable std::mutex mutex_;  // guards what follows
  Uses uses_;                 // entries, those used last first
  std::unordered_map<std::string, std::unique_ptr<Structure>> structures_;
  std::map<std::string, uint64_t> reasons_;
  std::set<std::string> why_sizes_are_fixed_;
  SeenKeys seen_;
};

}  // namespace sconce
