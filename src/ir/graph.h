// The program: TorchScript's SSA form with nested blocks, in sconce's own data structures.
//
//   Graph ── owns every Node, Value and Block ever created in it (raw pointers inside, never freed one by one)
//     └─ body(): Block
//          ├─ params ──► Value Value …         (outputs of the block's hidden param node)
//          ├─ Node ⇄ Node ⇄ Node …             (program order; effects happen in this order)
//          │    ├─ inputs:  Value* …           (each registered in Value::uses)
//          │    ├─ outputs: Value …
//          │    └─ blocks:  Block …            (prim::If has two, prim::Loop one)
//          └─ returns ◄── Value*…              (inputs of the block's hidden return node)
//
// A value may be used after its definition, in the block that defines it and in blocks nested in that.
// A node's operator record (ops/op.h) says what it does; code outside ops/ asks the record. The few rewrites
// and tables that name operators stand in tests/structure/operator_names.py, with their reasons.
#pragma once

#include "base/arena.h"
#include "base/assert.h"
#include "base/flat_map.h"
#include "ir/attributes.h"
#include "ir/facts.h"
#include "ir/source.h"
#include "ops/op.h"

#include <ATen/core/function_schema.h>
#include <ATen/core/interned_strings.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/FunctionRef.h>
#include <c10/util/SmallVector.h>

#include <memory>
#include <string>
#include <string_view>

namespace sconce {

namespace aten = c10::aten;
namespace prim = c10::prim;

class Block;
class Node;
class Value;

struct Use {
  Node* user;
  size_t index;  // user->inputs()[index] is the value
};

class Value {
 public:
  // The node that produces the value; for a block's parameter, the block's hidden param node.
  Node* node() const { return node_; }
  size_t offset() const { return offset_; }  // position among node()->outputs()
  size_t id() const { return id_; }          // unique in the graph, in order of creation
  Graph& graph() const;

  // The frontend's name ("x.1"), or empty. The printer makes names unique and prints values without a name as numbers.
  const std::string& name() const { return name_; }
  Value* set_name(std::string name);

  // The type. A tensor's is always plain `Tensor`; everything else that is known about it is in the facts.
  const c10::TypePtr& type() const { return type_; }
  // Sets the type. A TensorType with details is split into `Tensor` and facts.
  Value* set_type(c10::TypePtr type);

  // Null if nothing is known.
  const TensorFacts* facts() const { return facts_.get(); }
  void set_facts(TensorFacts facts);

  // In no order.
  c10::ArrayRef<Use> uses() const { return uses_; }
  bool has_uses() const { return !uses_.empty(); }
  void replace_all_uses_with(Value* replacement);

  // The constant, if a prim::Constant produces this value.
  const c10::IValue* constant() const;

 private:
  friend class Graph;
  friend class Node;
  friend class Block;
  Node* node_ = nullptr;
  size_t offset_ = 0;
  size_t id_ = 0;
  c10::TypePtr type_;
  std::string name_;
  std::unique_ptr<TensorFacts> facts_;
  c10::SmallVector<Use, 2> uses_;
};

class Node {
 public:
  // Only a graph makes nodes, see Graph::create.
  class Key {
    friend class Graph;
    Key() = default;
  };
  Node(Key, Graph* graph, c10::Symbol kind);
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  c10::Symbol kind() const { return kind_; }
  // The record of the node's operator. A new node of the language's own kinds has its record; any other is unresolved until
  // resolve() (schema_match.h) or set_op() gives it one.
  const Op& op() const { return *op_; }
  void set_op(const Op& op) { op_ = &op; }
  Opcode opcode() const { return op_->opcode; }
  // Null for the node kinds of the language itself (prim::If, prim::GetAttr, …) and for unresolved nodes.
  const c10::FunctionSchema* schema() const { return op_->schema; }

  c10::ArrayRef<Value*> inputs() const { return inputs_; }
  Value* input(size_t index) const { return inputs_[index]; }
  // The input for the schema's argument `name`; null if the schema has no such argument.
  Value* named_input(std::string_view name) const;
  void add_input(Value* value);
  void set_input(size_t index, Value* value);
  void remove_input(size_t index);

  c10::ArrayRef<Value*> outputs() const { return outputs_; }
  Value* output(size_t index = 0) const { return outputs_[index]; }
  Value* add_output(c10::TypePtr type);
  void remove_output(size_t index);  // requires: unused

  c10::ArrayRef<Block*> blocks() const { return blocks_; }
  Block* block(size_t index) const { return blocks_[index]; }
  Block* add_block();

  c10::ArrayRef<Attribute> attributes() const { return attributes_; }
  const AttributeValue* attribute(c10::Symbol name) const;  // null when absent
  Node* set_attribute(c10::Symbol name, AttributeValue value);
  void remove_attribute(c10::Symbol name);  // if it is there
  template <typename T>
  const T& attribute_as(c10::Symbol name) const;  // asserts that it is there and of that form

  const SourceLocationPtr& location() const { return location_; }
  Node* set_location(SourceLocationPtr location);

  // The block that the node is in; null while it is in none.
  Block* owning_block() const { return owning_block_; }
  Graph& graph() const { return *graph_; }
  Node* next() const;      // null at the end of the block
  Node* previous() const;  // null at the beginning

  Node* insert_before(Node* position);
  Node* insert_after(Node* position);
  Node* append_to(Block& block);
  // Removes the node from its block. It can be inserted again.
  void detach();
  // Removes the node and its blocks for good. Requires that no output is used. The graph keeps the storage.
  void erase();
  bool is_erased() const { return erased_; }

 private:
  friend class Graph;
  friend class Block;
  friend class Value;
  void link_between(Node* before, Node* after, Block* block);
  void drop_use(size_t index);

  // First what a walk over the graph reads.
  c10::Symbol kind_;
  bool erased_ = false;
  const Op* op_;
  Graph* graph_;
  Block* owning_block_ = nullptr;
  Node* previous_ = nullptr;
  Node* next_ = nullptr;
  c10::SmallVector<Block*, 2> blocks_;
  c10::SmallVector<Value*, 4> inputs_;
  c10::SmallVector<uint32_t, 4> use_positions_;  // for each input, the index of its use in Value::uses
  c10::SmallVector<Value*, 2> outputs_;
  std::vector<Attribute> attributes_;
  SourceLocationPtr location_;
};

// The nodes of a block in program order. The node at the iterator may be erased or moved during the iteration.
class NodeRange {
 public:
  class Iterator {
   public:
    explicit Iterator(Node* node) : node_(node), next_(node != nullptr ? node->next() : nullptr) {}
    Node* operator*() const { return node_; }
    Iterator& operator++() { return *this = Iterator(next_); }
    bool operator!=(const Iterator& other) const { return node_ != other.node_; }

   private:
    Node* node_;
    Node* next_;
  };
  explicit NodeRange(Node* first) : first_(first) {}
  Iterator begin() const { return Iterator(first_); }
  Iterator end() const { return Iterator(nullptr); }

 private:
  Node* first_;
};

class Block {
 public:
  c10::ArrayRef<Value*> params() const { return param_node_->outputs(); }
  Value* add_param(c10::TypePtr type) { return param_node_->add_output(std::move(type)); }
  void remove_param(size_t index) { param_node_->remove_output(index); }  // requires: unused

  c10::ArrayRef<Value*> returns() const { return return_node_->inputs(); }
  void add_return(Value* value) { return_node_->add_input(value); }
  void set_return(size_t index, Value* value) { return_node_->set_input(index, value); }
  void remove_return(size_t index) { return_node_->remove_input(index); }

  NodeRange nodes() const { return NodeRange(first()); }
  Node* first() const;  // null when the block is empty
  Node* last() const;
  bool empty() const { return first() == nullptr; }

  // The node the block belongs to; null for a graph's body.
  Node* owner() const { return owner_; }
  Graph& graph() const { return *graph_; }
  // Hidden nodes at the ends of the block (prim::Param and prim::Return): positions for insertion, and the user of the
  // returns.
  Node* param_node() const { return param_node_; }
  Node* return_node() const { return return_node_; }

 private:
  friend class Graph;
  friend class Node;
  Graph* graph_ = nullptr;
  Node* owner_ = nullptr;
  Node* param_node_ = nullptr;
  Node* return_node_ = nullptr;
};

using ValueMap = FlatMap<const Value*, Value*>;

class Graph {
 public:
  Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  Block& body() { return *body_; }
  const Block& body() const { return *body_; }
  c10::ArrayRef<Value*> inputs() const { return body_->params(); }
  c10::ArrayRef<Value*> outputs() const { return body_->returns(); }
  Value* add_input(std::string name, c10::TypePtr type);
  void add_output(Value* value) { body_->add_return(value); }

  // Creates a node with `outputs` outputs of type Tensor, in no block yet.
  Node* create(c10::Symbol kind, c10::ArrayRef<Value*> inputs, size_t outputs = 1);
  // Inserts a prim::Constant before `position`. By default it has the value's own type.
  Value* insert_constant(c10::IValue value, Node* position, c10::TypePtr type = nullptr);

  // Copies the nodes of `source` to before `position`. `values` must map the params of `source` and every value that it uses
  // from outside; the copies are added to it. Returns the copies of the block's returns.
  std::vector<Value*> copy_nodes(const Block& source, Node* position, ValueMap& values);
  // The same for a block of this graph: replaces its params by `params`, and keeps values used from outside.
  std::vector<Value*> repeat_nodes(const Block& source, c10::ArrayRef<Value*> params, Node* position);
  // Copies one node to before `position`; `values` as in `copy_nodes`.
  Node* copy_node(const Node& source, Node* position, ValueMap& values);
  std::unique_ptr<Graph> clone() const;

  // Values have ids below this.
  size_t id_bound() const { return next_id_; }
  // The number of nodes in the graph, nested blocks included.
  size_t node_count() const;

 private:
  friend class Node;
  Block* new_block(Node* owner);
  Value* new_value(Node* node, c10::TypePtr type);
  Node* new_node(c10::Symbol kind);
  void copy_block_contents(const Block& source, Block& target, ValueMap& values);

  Arena<Value> values_;
  Arena<Block> blocks_;
  Arena<Node> nodes_;
  size_t next_id_ = 0;
  Block* body_;
};

// Calls `visit` for every node of the block and of blocks nested in it, in program order, a node before its blocks. `visit`
// may erase the node.
void for_each_node(const Block& block, c10::function_ref<void(Node*)> visit);

template <typename T>
const T& Node::attribute_as(c10::Symbol name) const {
  const AttributeValue* value = attribute(name);
  SCONCE_ASSERT(value != nullptr && std::holds_alternative<T>(*value), kind_.toQualString(), " has no attribute ",
                name.toUnqualString(), " of the expected form");
  return std::get<T>(*value);
}

}  // namespace sconce
