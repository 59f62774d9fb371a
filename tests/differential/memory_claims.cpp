#include "tests/differential/memory_claims.h"

#include "analysis/effects.h"
#include "analysis/memory/alias_sets.h"
#include "analysis/memory/escapes.h"

#include <algorithm>

namespace sconce::testing {
namespace {

class ClaimsCheck {
 public:
  ClaimsCheck(const Graph& graph, const RecordedRun& run, Autograd autograd)
      : graph_(graph), run_(run), autograd_(autograd), sets_(graph), claims_(run.pieces.size()) {}

  std::vector<std::string> run() {
    check_sharing();
    check_writes();
    check_escapes();
    return std::move(found_);
  }

 private:
  using Set = AliasSets::Set;
  // Who says in which set a piece lies.
  struct Claim {
    Set set = AliasSets::kNone;
    const Value* holder = nullptr;
    const Value* unnamed_in = nullptr;  // a container that holds it, of whose set no operator takes anything out
    std::vector<Set> entered = {};      // a container's contents have been claimed as those of these sets
  };

  void check_sharing() {
    for (const Value* value : values_in_order(graph_)) {
      if (const auto held = run_.held.find(value); held != run_.held.end()) {
        for (const Piece piece : held->second) {
          claim(piece, sets_.set_of(*value), *value);
        }
      }
    }
    for (const Claim& claim : claims_) {
      if (claim.unnamed_in != nullptr && claim.holder != nullptr) {
        found_.push_back(describe(*claim.holder) + " lies in " + describe(*claim.unnamed_in) +
                         ", of whose contents nothing is known");
      }
    }
  }

  void claim(Piece piece, Set set, const Value& value) {
    if (set == AliasSets::kNone) {
      found_.push_back(describe(value) + " holds memory, and lies in no set");
      return;
    }
    Claim& claimed = claims_[piece];
    if (claimed.holder == nullptr) {
      claimed.holder = &value;
      claimed.set = set;
    } else if (claimed.set != set) {
      found_.push_back(describe(*claimed.holder) + " and " + describe(value) + " share memory, and are called distinct");
      return;
    }
    if (std::find(claimed.entered.begin(), claimed.entered.end(), set) != claimed.entered.end()) {
      return;
    }
    claimed.entered.push_back(set);
    const Set contents = sets_.contents_of(set);
    for (const Piece inside : run_.pieces[piece].contents) {
      if (contents == AliasSets::kNone) {
        claims_[inside].unnamed_in = &value;
      } else {
        claim(inside, contents, value);
      }
    }
  }

  void check_writes() {
    for_each_node(graph_.body(), [&](Node* node) {
      const auto changed = run_.changed.find(node);
      if (changed == run_.changed.end()) {
        return;
      }
      const Effects effects = effects_of(*node);
      if (!effects.writes && !effects.unknown) {
        found_.push_back(describe(*node) + " writes, and its effects do not say so");
      }
      for (const Piece piece : changed->second) {
        const Claim& claim = claims_[piece];
        if (claim.holder != nullptr && !may_write(*node, piece, claim)) {
          found_.push_back(describe(*node) + " writes the memory of " + describe(*claim.holder) +
                           ", and may_write does not say so");
        }
      }
    });
  }

  // What lies in the holder has no type here, but bytes are those of tensors.
  bool may_write(const Node& node, Piece piece, const Claim& claim) const {
    if (const auto held = run_.held.find(claim.holder); held != run_.held.end() && held->second.contains(piece)) {
      return sets_.may_write(node, *claim.holder);
    }
    const MemoryKinds kinds = run_.pieces[piece].is_bytes ? kTensorMemory : kAnyMemory;
    const auto writes = sets_.writes_of(node);
    return std::any_of(writes.begin(), writes.end(),
                       [&](const AliasSets::Memory& write) { return write.set == claim.set && (write.kinds & kinds) != 0; });
  }

  void check_escapes() {
    const auto escaping = find_escaping_values(graph_, sets_, autograd_ == Autograd::kOn);
    for (const Value* value : values_in_order(graph_)) {
      const auto held = run_.held.find(value);
      if (held == run_.held.end()) {
        continue;
      }
      bool outlives = false;
      bool was_made = false;
      for (const Piece piece : held->second) {
        outlives = outlives || run_.pieces[piece].outlives_run;
        was_made = was_made || (run_.pieces[piece].outlives_run && run_.pieces[piece].made_for == value);
      }
      if (outlives && !escaping.contains(value)) {
        found_.push_back(describe(*value) + " outlives the run, and find_escaping_values does not say so");
      }
      // What an operator of which nothing is known does with its results, is not a question of who uses them.
      const bool is_plain = value->node()->kind() != prim::Constant && !effects_of(*value->node()).unknown;
      if (autograd_ == Autograd::kOff && was_made && is_plain && !may_escape(*value)) {
        found_.push_back(describe(*value) + " outlives the run, and may_escape does not say so");
      }
    }
  }

  static std::string describe(const Value& value) { return testing::describe(value); }
  static std::string describe(const Node& node) {
    return std::string(node.kind().toQualString()) +
           (node.outputs().empty() ? "" : " of %" + std::to_string(node.output()->id()));
  }

  const Graph& graph_;
  const RecordedRun& run_;
  Autograd autograd_;
  AliasSets sets_;
  std::vector<Claim> claims_;  // by piece
  std::vector<std::string> found_;
};

}  // namespace

std::vector<std::string> wrong_claims(const Graph& graph, const RecordedRun& run, Autograd autograd) {
  return ClaimsCheck(graph, run, autograd).run();
}

std::vector<const Value*> values_in_order(const Graph& graph) {
  std::vector<const Value*> values(graph.inputs().begin(), graph.inputs().end());
  for_each_node(graph.body(), [&](Node* node) {
    values.insert(values.end(), node->outputs().begin(), node->outputs().end());
    for (const Block* block : node->blocks()) {
      values.insert(values.end(), block->params().begin(), block->params().end());
    }
  });
  return values;
}

std::string describe(const Value& value) {
  return "%" + (value.name().empty() ? std::to_string(value.id()) : value.name()) + " (" +
         value.node()->kind().toQualString() + ")";
}

}  // namespace sconce::testing
