#include "passes/simplify/check_inplace.h"

#include "analysis/memory/alias_sets.h"
#include "base/assert.h"
#include "ir/text/print.h"

#include <algorithm>
#include <unordered_set>

namespace sconce {
namespace {

class Check {
 public:
  void run(const Graph& graph) {
    for_each_node(graph.body(), [&](Node* node) {
      if (node->kind() == prim::Constant && node->attribute(folded_attribute()) != nullptr) {
        reach(node->output());
      }
    });
    while (!pending_.empty()) {
      const Value* value = pending_.back();
      pending_.pop_back();
      for (const Use& use : value->uses()) {
        follow(use);
      }
    }
  }

 private:
  void reach(const Value* value) {
    if (holds_memory(value->type()) && seen_.insert(value).second) {
      pending_.push_back(value);
    }
  }

  void follow(const Use& use) {
    const Node& user = *use.user;
    if (user.kind() == prim::Return) {
      follow_return(*user.owning_block(), use.index);
    } else if (user.kind() == prim::Loop) {
      reach(user.block(0)->params()[use.index - 1]);
      reach(user.output(use.index - 2));
    } else if (user.kind() == prim::unchecked_cast) {
      reach(user.output());
    } else if (user.schema() != nullptr && use.index < user.schema()->arguments().size()) {
      follow_argument(user, use.index);
    }
  }

  void follow_return(const Block& block, size_t index) {
    const Node* owner = block.owner();
    if (owner != nullptr && owner->kind() == prim::If) {
      reach(owner->output(index));
    } else if (owner != nullptr && owner->kind() == prim::Loop) {
      reach(block.params()[index]);
      reach(owner->output(index - 1));
    }
  }

  void follow_argument(const Node& user, size_t index) {
    const c10::FunctionSchema& schema = *user.schema();
    const c10::AliasInfo* argument = schema.arguments()[index].alias_info();
    SCONCE_ASSERT(argument == nullptr || !argument->isWrite(),
                  "a constant that was folded is written, in all runs to come, by ", print_node_line(user));
    for (size_t i = 0; argument != nullptr && i < std::min(schema.returns().size(), user.outputs().size()); ++i) {
      const c10::AliasInfo* result = schema.returns()[i].alias_info();
      if (result != nullptr && result->beforeSets() == argument->beforeSets()) {
        reach(user.output(i));
      }
    }
  }

  std::unordered_set<const Value*> seen_;
  std::vector<const Value*> pending_;
};

}  // namespace

bool check_inplace(Graph& graph) {
  Check().run(graph);
  return false;
}

c10::Symbol folded_attribute() {
  static const c10::Symbol name = c10::Symbol::attr("folded");
  return name;
}

}  // namespace sconce
