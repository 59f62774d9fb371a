#include "analysis/memory/memory_dependences.h"

#include "ir/text/print.h"

#include <algorithm>

namespace sconce {
namespace {

bool contains(const std::vector<AliasSets::Memory>& all, AliasSets::Set set) {
  return std::any_of(all.begin(), all.end(), [&](const AliasSets::Memory& each) { return each.set == set; });
}

}  // namespace

MemoryDependences::MemoryDependences(const Graph& graph) {
  const AliasSets aliases(graph);
  wildcard_ = aliases.wildcard();
  for_each_node(graph.body(), [&](Node* node) {
    if (node->schema() == nullptr) {
      return;
    }
    Memories written = aliases.writes_of(*node);
    if (!written.empty()) {
      written_.emplace(node, std::move(written));
    }
    Memories read;
    for (const Value* input : node->inputs()) {
      Memories reached;
      for (AliasSets::Set set = aliases.set_of(*input); set != AliasSets::kNone && !contains(reached, set);
           set = aliases.contents_of(set)) {
        reached.push_back({set, memory_kinds_within(input->type())});
      }
      read.insert(read.end(), reached.begin(), reached.end());
    }
    read_.emplace(node, std::move(read));
  });
}

bool MemoryDependences::reaches(const Node* write, const Node* reader, Wildcard wildcard) const {
  const Memories& written = written_.at(write);
  const Memories& read = read_.at(reader);
  return std::any_of(written.begin(), written.end(), [&](const AliasSets::Memory& wrote) {
    return (wildcard == Wildcard::kCounts || wrote.set != wildcard_) &&
           std::any_of(read.begin(), read.end(), [&](const AliasSets::Memory& reads) {
             return reads.set == wrote.set && (reads.kinds & wrote.kinds) != 0;
           });
  });
}

std::string MemoryDependences::new_since(const MemoryDependences& before) const {
  for (const auto& [write, sets] : written_) {
    if (!before.written_.contains(write)) {
      continue;
    }
    for (const auto& [reader, read] : read_) {
      if (reader != write && before.read_.contains(reader) && reaches(write, reader, Wildcard::kIsLeftOut) &&
          !before.reaches(write, reader, Wildcard::kCounts)) {
        return print_node_line(*write) + " may write what " + print_node_line(*reader) + " reads";
      }
    }
  }
  return "";
}

}  // namespace sconce
