#include "ir/graph.h"

#include "base/assert.h"

#include <utility>

namespace sconce {

// ---- Value ----------------------------------------------------------------------------------------------------------

Graph& Value::graph() const { return node_->graph(); }

Value* Value::set_name(std::string name) {
  name_ = std::move(name);
  return this;
}

Value* Value::set_type(c10::TypePtr type) {
  SCONCE_ASSERT(type != nullptr);
  if (type->kind() == c10::TypeKind::TensorType) {
    set_facts(facts_of(type->expectRef<c10::TensorType>()));
    type_ = c10::TensorType::get();
  } else {
    facts_.reset();
    type_ = std::move(type);
  }
  return this;
}

void Value::set_facts(TensorFacts facts) {
  facts_ = facts.empty() ? nullptr : std::make_unique<TensorFacts>(std::move(facts));
}

void Value::replace_all_uses_with(Value* replacement) {
  SCONCE_ASSERT(replacement != this);
  while (!uses_.empty()) {
    const Use use = uses_.back();
    use.user->set_input(use.index, replacement);
  }
}

const c10::IValue* Value::constant() const {
  if (node_->kind() != prim::Constant) {
    return nullptr;
  }
  static const c10::IValue none;
  const AttributeValue* value = node_->attribute(attr::kValue);
  return value != nullptr ? &std::get<c10::IValue>(*value) : &none;
}

Node::Node(Key, Graph* graph, c10::Symbol kind) : kind_(kind), op_(language_op(kind)), graph_(graph) {
  op_ = op_ != nullptr ? op_ : &unresolved_op();
}

// ---- Node: operands -------------------------------------------------------------------------------------------------

Value* Node::named_input(std::string_view name) const {
  const auto index = op_->argument_index(name);
  return index && *index < inputs_.size() ? inputs_[*index] : nullptr;
}

void Node::add_input(Value* value) {
  SCONCE_ASSERT(value != nullptr, "an input of ", kind_.toQualString(), " is null");
  SCONCE_DEBUG_ASSERT(&value->graph() == graph_, "a value of another graph");
  use_positions_.push_back(static_cast<uint32_t>(value->uses_.size()));
  value->uses_.push_back({this, inputs_.size()});
  inputs_.push_back(value);
}

void Node::drop_use(size_t index) {
  // Moves the last use to the free place: a constant may have as many uses as the graph has nodes.
  auto& uses = inputs_[index]->uses_;
  const uint32_t position = use_positions_[index];
  SCONCE_DEBUG_ASSERT(uses[position].user == this && uses[position].index == index, "a use in another place");
  uses[position] = uses.back();
  uses[position].user->use_positions_[uses[position].index] = position;
  uses.pop_back();
}

void Node::set_input(size_t index, Value* value) {
  SCONCE_ASSERT(value != nullptr && index < inputs_.size(), "input ", index, " of ", kind_.toQualString(), ", which has ",
                inputs_.size(), value == nullptr ? ", is set to null" : "");
  drop_use(index);
  inputs_[index] = value;
  use_positions_[index] = static_cast<uint32_t>(value->uses_.size());
  value->uses_.push_back({this, index});
}

void Node::remove_input(size_t index) {
  drop_use(index);
  for (size_t later = index + 1; later < inputs_.size(); ++later) {
    inputs_[later]->uses_[use_positions_[later]].index = later - 1;
  }
  inputs_.erase(inputs_.begin() + static_cast<std::ptrdiff_t>(index));
  use_positions_.erase(use_positions_.begin() + static_cast<std::ptrdiff_t>(index));
}

Value* Node::add_output(c10::TypePtr type) { return graph_->new_value(this, std::move(type)); }

void Node::remove_output(size_t index) {
  SCONCE_ASSERT(!outputs_[index]->has_uses(), "removing a used output of ", kind_.toQualString());
  outputs_.erase(outputs_.begin() + static_cast<std::ptrdiff_t>(index));
  for (size_t i = index; i < outputs_.size(); ++i) {
    outputs_[i]->offset_ = i;
  }
}

Block* Node::add_block() {
  blocks_.push_back(graph_->new_block(this));
  return blocks_.back();
}

const AttributeValue* Node::attribute(c10::Symbol name) const {
  for (const Attribute& attribute : attributes_) {
    if (attribute.name == name) {
      return &attribute.value;
    }
  }
  return nullptr;
}

Node* Node::set_attribute(c10::Symbol name, AttributeValue value) {
  for (Attribute& attribute : attributes_) {
    if (attribute.name == name) {
      attribute.value = std::move(value);
      return this;
    }
  }
  attributes_.push_back({name, std::move(value)});
  return this;
}

void Node::remove_attribute(c10::Symbol name) {
  std::erase_if(attributes_, [&](const Attribute& attribute) { return attribute.name == name; });
}

Node* Node::set_location(SourceLocationPtr location) {
  location_ = std::move(location);
  return this;
}

// ---- Node: position -------------------------------------------------------------------------------------------------

Node* Node::next() const { return next_ == nullptr || next_->kind_ == prim::Return ? nullptr : next_; }
Node* Node::previous() const { return previous_ == nullptr || previous_->kind_ == prim::Param ? nullptr : previous_; }

void Node::link_between(Node* before, Node* after, Block* block) {
  SCONCE_ASSERT(owning_block_ == nullptr && !erased_, "inserting a node that stands somewhere or was erased");
  previous_ = before;
  next_ = after;
  before->next_ = this;
  after->previous_ = this;
  owning_block_ = block;
}

Node* Node::insert_before(Node* position) {
  link_between(position->previous_, position, position->owning_block_);
  return this;
}

Node* Node::insert_after(Node* position) {
  link_between(position, position->next_, position->owning_block_);
  return this;
}

Node* Node::append_to(Block& block) { return insert_before(block.return_node()); }

void Node::detach() {
  SCONCE_ASSERT(owning_block_ != nullptr);
  previous_->next_ = next_;
  next_->previous_ = previous_;
  previous_ = next_ = nullptr;
  owning_block_ = nullptr;
}

void Node::erase() {
  for (const Value* output : outputs_) {
    SCONCE_ASSERT(!output->has_uses(), "erasing ", kind_.toQualString(), " whose output is used");
  }
  // Last node first: a nested node may use a value defined by a node beside its owner.
  for (Block* block : blocks_) {
    while (block->return_node_->inputs_.size() > 0) {
      block->return_node_->remove_input(block->return_node_->inputs_.size() - 1);
    }
    while (Node* last = block->last()) {
      last->erase();
    }
  }
  while (!inputs_.empty()) {
    remove_input(inputs_.size() - 1);
  }
  if (owning_block_ != nullptr) {
    detach();
  }
  attributes_.clear();
  location_.reset();
  erased_ = true;
}

// ---- Block ----------------------------------------------------------------------------------------------------------

Node* Block::first() const { return param_node_->next(); }
Node* Block::last() const { return return_node_->previous(); }

// ---- Graph ----------------------------------------------------------------------------------------------------------

Graph::Graph() : body_(new_block(nullptr)) {}

Block* Graph::new_block(Node* owner) {
  Block& block = blocks_.emplace_back();
  block.graph_ = this;
  block.owner_ = owner;
  block.param_node_ = new_node(prim::Param);
  block.return_node_ = new_node(prim::Return);
  block.param_node_->next_ = block.return_node_;
  block.return_node_->previous_ = block.param_node_;
  block.param_node_->owning_block_ = block.return_node_->owning_block_ = &block;
  return &block;
}

Value* Graph::new_value(Node* node, c10::TypePtr type) {
  Value& value = values_.emplace_back();
  value.node_ = node;
  value.offset_ = node->outputs_.size();
  value.id_ = next_id_++;
  value.set_type(std::move(type));
  node->outputs_.push_back(&value);
  return &value;
}

Node* Graph::new_node(c10::Symbol kind) { return &nodes_.emplace_back(Node::Key(), this, kind); }

Value* Graph::add_input(std::string name, c10::TypePtr type) {
  return body_->add_param(std::move(type))->set_name(std::move(name));
}

Node* Graph::create(c10::Symbol kind, c10::ArrayRef<Value*> inputs, size_t outputs) {
  Node* node = new_node(kind);
  for (Value* input : inputs) {
    node->add_input(input);
  }
  for (size_t i = 0; i < outputs; ++i) {
    node->add_output(c10::TensorType::get());
  }
  return node;
}

Value* Graph::insert_constant(c10::IValue value, Node* position, c10::TypePtr type) {
  Node* node = create(prim::Constant, {}, 0);
  node->add_output(type ? std::move(type) : value.type());
  if (!value.isNone()) {
    node->set_attribute(attr::kValue, std::move(value));
  }
  node->insert_before(position);
  return node->output();
}

Node* Graph::copy_node(const Node& source, Node* position, ValueMap& values) {
  Node* copy = new_node(source.kind_);
  copy->op_ = source.op_;
  copy->location_ = source.location_;
  copy->attributes_ = source.attributes_;
  for (Attribute& attribute : copy->attributes_) {
    auto* subgraph = std::get_if<std::shared_ptr<Graph>>(&attribute.value);
    // A program runs the body of a fork, and nothing changes it: copies share it (plan/callees.h).
    if (subgraph != nullptr && copy->opcode() != Opcode::kFork && copy->opcode() != Opcode::kAwaitable) {
      attribute.value = std::shared_ptr<Graph>((*subgraph)->clone());
    }
  }
  for (const Value* input : source.inputs_) {
    const auto found = values.find(input);
    SCONCE_ASSERT(found != values.end(), "copying ", source.kind_.toQualString(), " without a copy of its input %",
                  input->name().empty() ? std::to_string(input->id()) : input->name());
    copy->add_input(found->second);
  }
  for (const Value* output : source.outputs_) {
    Value* value = copy->add_output(output->type_);
    value->name_ = output->name_;
    if (output->facts_) {
      value->set_facts(*output->facts_);
    }
    values[output] = value;
  }
  copy->insert_before(position);
  for (const Block* block : source.blocks_) {
    copy_block_contents(*block, *copy->add_block(), values);
  }
  return copy;
}

void Graph::copy_block_contents(const Block& source, Block& target, ValueMap& values) {
  for (const Value* param : source.params()) {
    Value* value = target.add_param(param->type_);
    value->name_ = param->name_;
    if (param->facts_) {
      value->set_facts(*param->facts_);
    }
    values[param] = value;
  }
  for (Value* result : copy_nodes(source, target.return_node(), values)) {
    target.add_return(result);
  }
}

std::vector<Value*> Graph::copy_nodes(const Block& source, Node* position, ValueMap& values) {
  for (const Node* node : source.nodes()) {
    copy_node(*node, position, values);
  }
  std::vector<Value*> returns;
  for (const Value* value : source.returns()) {
    returns.push_back(values.at(value));
  }
  return returns;
}

std::vector<Value*> Graph::repeat_nodes(const Block& source, c10::ArrayRef<Value*> params, Node* position) {
  ValueMap values;
  for (size_t i = 0; i < source.params().size(); ++i) {
    values.emplace(source.params()[i], params[i]);
  }
  // Values defined inside are mapped as their copies are made.
  for_each_node(source, [&](Node* node) {
    for (Value* input : node->inputs()) {
      values.emplace(input, input);
    }
    for (const Block* nested : node->blocks()) {
      for (Value* result : nested->returns()) {
        values.emplace(result, result);
      }
    }
  });
  for (Value* result : source.returns()) {
    values.emplace(result, result);
  }
  return copy_nodes(source, position, values);
}

std::unique_ptr<Graph> Graph::clone() const {
  auto copy = std::make_unique<Graph>();
  ValueMap values;
  copy->copy_block_contents(*body_, *copy->body_, values);
  return copy;
}

size_t Graph::node_count() const {
  size_t count = 0;
  for_each_node(*body_, [&](Node*) { ++count; });
  return count;
}

void for_each_node(const Block& block, c10::function_ref<void(Node*)> visit) {
  for (Node* node : block.nodes()) {
    // The graph owns the blocks, so they outlive the node. An erased node has emptied them.
    const c10::SmallVector<Block*, 2> blocks(node->blocks().begin(), node->blocks().end());
    visit(node);
    if (!node->is_erased()) {
      for (const Block* nested : blocks) {
        for_each_node(*nested, visit);
      }
    }
  }
}

}  // namespace sconce
