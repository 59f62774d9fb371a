#include "ir/write_reach.h"

#include "ir/print.h"

#include <algorithm>

namespace sconce {
namespace {

bool contains(const std::vector<AliasSets::Set>& sets, AliasSets::Set set) {
  return std::find(sets.begin(), sets.end(), set) != sets.end();
}

}  // namespace

WriteReach::WriteReach(const Graph& graph) {
  const AliasSets aliases(graph);
  wildcard_ = aliases.wildcard();
  for_each_node(graph.body(), [&](Node* node) {
    if (node->schema() == nullptr) {
      return;
    }
    Sets written = aliases.sets_written_by(*node);
    if (!written.empty()) {
      written_.emplace(node, std::move(written));
    }
    Sets read;
    for (const Value* input : node->inputs()) {
      for (AliasSets::Set set = aliases.set_of(*input); set != AliasSets::kNone && !contains(read, set);
           set = aliases.contents_of(set)) {
        read.push_back(set);
      }
    }
    read_.emplace(node, std::move(read));
  });
}

bool WriteReach::reaches(const Node* write, const Node* reader, Wildcard wildcard) const {
  const Sets& written = written_.at(write);
  const Sets& read = read_.at(reader);
  return std::any_of(written.begin(), written.end(), [&](AliasSets::Set set) {
    return contains(read, set) && (wildcard == Wildcard::kCounts || set != wildcard_);
  });
}

std::string WriteReach::grown_since(const WriteReach& before) const {
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
