#include "passes/loops/batch_loop_products.h"

#include "base/flat_map.h"
#include "ir/constant_operands.h"
#include "passes/insert_node.h"
#include "passes/loops/carried_sums.h"

#include <ATen/core/jit_type.h>

#include <algorithm>

namespace sconce {
namespace {

constexpr int64_t kIterations = 16;  // their matrices live at the same time

bool is_matrix(const Value& value) {
  return value.facts() != nullptr && value.facts()->sizes && value.facts()->sizes->size() == 2;
}

// A sum of products mm(t(rows), columns), or of sums of `rows` over their first dim if there are no columns.
struct BatchedSum {
  size_t position;
  Value* rows;
  Value* columns;
};

std::optional<BatchedSum> batched_sum(const CarriedSum& sum, const Node& loop) {
  const Node& part = *sum.part;
  Value* rows = nullptr;
  Value* columns = nullptr;
  if (part.kind() == aten::mm && part.input(0)->node()->kind() == aten::t) {
    rows = part.input(0)->node()->input(0);
    columns = part.input(1);
  } else if (part.kind() == aten::sum && part.inputs().size() == 4) {
    const c10::IValue* dims = part.input(1)->constant();
    const bool over_rows = dims != nullptr && dims->isIntList() && dims->toIntVector() == std::vector<int64_t>{0};
    rows = over_rows && constant_bool(*part.input(2)) == false && is_none(*part.input(3)) ? part.input(0) : nullptr;
  }
  if (rows == nullptr || !is_matrix(*rows) || !is_made_in_body(*rows, loop)) {
    return std::nullopt;
  }
  return columns == nullptr || is_matrix(*columns) ? std::optional(BatchedSum{sum.position, rows, columns}) : std::nullopt;
}

class LoopBatching {
 public:
  LoopBatching(Node& loop, std::vector<BatchedSum> sums) : graph_(loop.graph()), loop_(loop), sums_(std::move(sums)) {}

  void run() {
    Block& body = *loop_.block(0);
    Node* const end = body.return_node();
    for (const BatchedSum& sum : sums_) {
      collect(sum.rows, *end);
      if (sum.columns != nullptr) {
        collect(sum.columns, *end);
      }
    }
    Values before;
    for (const BatchedSum& sum : sums_) {
      before.push_back(body.params()[sum.position + 1]);
    }
    const Values in_loop = insert_batch(kIterations, before, *end, /*clears=*/true);
    Node* const next = loop_.next();
    Values outputs;
    for (size_t i = 0; i < sums_.size(); ++i) {
      Node* add = body.returns()[sums_[i].position + 1]->node();
      body.set_return(sums_[i].position + 1, in_loop[i]);
      Node* part = add->input(1)->node();
      add->erase();
      part->erase();
      outputs.push_back(loop_.output(sums_[i].position));
    }
    Node& after = next != nullptr ? *next : *loop_.owning_block()->return_node();
    std::vector<std::vector<Use>> uses;
    std::ranges::transform(outputs, std::back_inserter(uses), [](const Value* output) { return output->uses().vec(); });
    const Values all = insert_batch(1, outputs, after, /*clears=*/false);
    for (size_t i = 0; i < all.size(); ++i) {
      for (const Use& use : uses[i]) {
        use.user->set_input(use.index, all[i]);
      }
    }
  }

 private:
  using Values = std::vector<Value*>;

  // Keeps the matrix of every iteration in a list.
  void collect(Value* matrix, Node& end) {
    Value*& list = lists_[matrix];
    if (list == nullptr) {
      list = insert_list({}, c10::TensorType::get(), loop_);
      insert_operator(aten::append, {list, matrix}, end, {}, list->type());
      order_.push_back(matrix);
    }
  }

  // Adds the products of the lists to the sums, if the lists have at least `count` matrices. Returns the sums.
  Values insert_batch(int64_t count, const Values& sums, Node& position, bool clears) {
    Value* length = insert_operator(aten::len, {lists_.at(order_[0])}, position, {}, c10::IntType::get());
    Value* least = graph_.insert_constant(count, &position);
    Value* is_full = insert_operator(aten::ge, {length, least}, position, {}, c10::BoolType::get());
    Node* either = graph_.create(prim::If, {is_full}, sums.size());
    either->set_location(loop_.location())->insert_before(&position);
    Block* full = either->add_block();
    Node& end = *full->return_node();
    Value* const zero = graph_.insert_constant(0, &end);
    FlatMap<const Value*, Value*> joined;
    const auto join = [&](const Value* matrix) {
      Value*& found = joined[matrix];
      if (found == nullptr) {
        found = insert_operator(aten::cat, {lists_.at(matrix), zero}, end);
      }
      return found;
    };
    for (size_t i = 0; i < sums.size(); ++i) {
      full->add_return(insert_operator(prim::AutogradAdd, {sums[i], insert_part(sums_[i], join, end)}, end));
    }
    for (const Value* matrix : order_) {
      if (clears) {
        graph_.create(aten::clear, {lists_.at(matrix)}, 0)->insert_before(&end);
        resolve(*end.previous());
      }
    }
    Block* otherwise = either->add_block();
    for (Value* sum : sums) {
      otherwise->add_return(sum);
    }
    return either->outputs().vec();
  }

  template <typename Join>
  Value* insert_part(const BatchedSum& sum, const Join& join, Node& position) {
    Value* rows = join(sum.rows);
    if (sum.columns != nullptr) {
      return insert_operator(aten::mm, {insert_operator(aten::t, {rows}, position), join(sum.columns)}, position);
    }
    Value* dims = graph_.insert_constant(std::vector<int64_t>{0}, &position);
    Value* no = graph_.insert_constant(false, &position);
    return insert_operator(aten::sum, {rows, dims, no, graph_.insert_constant(c10::IValue(), &position)}, position);
  }

  Graph& graph_;
  Node& loop_;
  const std::vector<BatchedSum> sums_;
  FlatMap<const Value*, Value*> lists_;  // by matrix
  std::vector<const Value*> order_;      // of the lists
};

bool batch_in(const Block& block) {
  bool changed = false;
  for (Node* node : block.nodes()) {
    for (const Block* nested : node->blocks()) {
      changed |= batch_in(*nested);
    }
    std::vector<BatchedSum> sums;
    for (const CarriedSum& sum : node->kind() == prim::Loop ? carried_sums(*node) : std::vector<CarriedSum>()) {
      if (const auto batched = batched_sum(sum, *node)) {
        sums.push_back(*batched);
      }
    }
    if (std::ranges::any_of(sums, [](const BatchedSum& sum) { return sum.columns != nullptr; })) {
      LoopBatching(*node, std::move(sums)).run();
      changed = true;
    }
  }
  return changed;
}

}  // namespace

bool batch_loop_products(Graph& graph) { return batch_in(graph.body()); }

}  // namespace sconce
