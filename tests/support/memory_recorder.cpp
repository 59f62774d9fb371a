#include "tests/support/memory_recorder.h"

#include "analysis/effects.h"
#include "analysis/memory/alias_sets.h"
#include "ir/schema_match.h"
#include "lower/lower.h"
#include "plan/run_plan.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace sconce::testing {
namespace {

// ---- what is in memory ----------------------------------------------------------------------------------------------

// Fast hash: every parameter is hashed before and after each node that reads it.
uint64_t fingerprint(const void* data, size_t bytes) {
  constexpr uint64_t kFactor = 0x9E3779B97F4A7C15;
  uint64_t lanes[4] = {bytes, 1, 2, 3};
  const char* next = static_cast<const char*>(data);
  for (; bytes >= sizeof(lanes); bytes -= sizeof(lanes), next += sizeof(lanes)) {
    uint64_t words[4];
    std::memcpy(words, next, sizeof(words));
    for (size_t i = 0; i < 4; ++i) {
      lanes[i] = (std::rotl(lanes[i], 29) ^ words[i]) * kFactor;
    }
  }
  for (; bytes > 0; --bytes, ++next) {
    lanes[0] = (std::rotl(lanes[0], 29) ^ static_cast<unsigned char>(*next)) * kFactor;
  }
  return ((lanes[0] * kFactor ^ lanes[1]) * kFactor ^ lanes[2]) * kFactor ^ lanes[3];
}

bool is_container(const c10::IValue& value) {
  return value.isList() || value.isTuple() || value.isGenericDict() || value.isObject();
}

// Containers, and what is opaque but can be shared. Tuples of numbers and strings are values, as these are.
bool is_object(const c10::IValue& value) {
  if (value.isTuple()) {
    const auto& elements = value.toTupleRef().elements();
    return std::any_of(elements.begin(), elements.end(), [](const c10::IValue& element) {
      return element.isTensor() || element.isStorage() || is_object(element);
    });
  }
  return is_container(value) || value.isFuture() || value.isAwait() || value.isCapsule() || value.isGenerator();
}

template <typename Visit>
void for_each_element(const c10::IValue& container, const Visit& visit) {
  if (container.isList()) {
    for (const c10::IValue& element : container.toListRef()) {
      visit(element);
    }
  } else if (container.isTuple()) {
    for (const c10::IValue& element : container.toTupleRef().elements()) {
      visit(element);
    }
  } else if (container.isGenericDict()) {
    for (const auto& entry : container.toGenericDict()) {
      visit(entry.key());
      visit(entry.value());
    }
  } else if (container.isObject()) {
    for (const c10::IValue& slot : container.toObjectRef().slots()) {
      visit(slot);
    }
  }
}

// Where the tensor's bytes are; more than one place for sparse tensors, none for tensors that are opaque or have no bytes.
std::vector<at::Tensor> parts_with_storage(const at::Tensor& tensor) {
  switch (tensor.layout()) {
    case c10::kSparse: return {tensor._indices(), tensor._values()};
    case c10::kSparseCsr:
    case c10::kSparseBsr: return {tensor.crow_indices(), tensor.col_indices(), tensor.values()};
    case c10::kSparseCsc:
    case c10::kSparseBsc: return {tensor.ccol_indices(), tensor.row_indices(), tensor.values()};
    default: break;
  }
  if (tensor.is_quantized() && tensor.qscheme() == c10::kPerChannelAffine) {
    return {tensor, tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()};
  }
  return tensor.has_storage() ? std::vector<at::Tensor>{tensor} : std::vector<at::Tensor>{};
}

uint64_t identity_of(const c10::IValue& element) {
  if (element.isInt() || element.isBool()) {
    return static_cast<uint64_t>(element.isInt() ? element.toInt() : static_cast<int64_t>(element.toBool()));
  }
  if (element.isDouble()) {
    return std::bit_cast<uint64_t>(element.toDouble());
  }
  if (element.isComplexDouble()) {
    const c10::complex<double> number = element.toComplexDouble();
    return std::rotl(std::bit_cast<uint64_t>(number.real()), 13) ^ std::bit_cast<uint64_t>(number.imag());
  }
  if (element.isString()) {
    return std::hash<std::string>()(element.toStringRef());
  }
  return element.isPtrType() ? reinterpret_cast<uintptr_t>(element.internalToPointer()) : 0;
}

// ---- the recorder ---------------------------------------------------------------------------------------------------

// Everything that was seen stays alive until the end of the run, so that no address means two things.
class Recorder {
 public:
  void see_arguments(const std::vector<c10::IValue>& arguments) {
    for (const c10::IValue& argument : arguments) {
      walk(argument, nullptr);
    }
  }

  void see(const Value& value, const c10::IValue& held) {
    for (const Piece piece : walk(held, &value)) {
      run_.held[&value].insert(piece);
    }
  }

  void before(c10::ArrayRef<c10::IValue> operands) {
    States& states = states_.emplace_back();
    for (const c10::IValue& operand : operands) {
      add_states(operand, states);
    }
  }

  // Requires a `before` of the same node.
  void after(const Node& node, c10::ArrayRef<c10::IValue> operands) {
    const States before = std::move(states_.back());
    states_.pop_back();
    States after;
    for (const c10::IValue& operand : operands) {
      add_states(operand, after);
    }
    bool any = false;
    for (const auto& [piece, state] : after) {
      const auto earlier = before.find(piece);
      if (earlier != before.end() && earlier->second != state) {
        run_.changed[&node].insert(piece);
        any = true;
      }
    }
    if (any) {
      ++epoch_;
      for (const c10::IValue& operand : operands) {
        walk(operand, nullptr);
      }
    }
  }

  void count_execution() { ++run_.executions; }

  // Lets go of everything. What is still there then is somebody else's.
  RecordedRun finish() {
    const std::vector<Piece> representatives = merge_overlapping();
    pieces_.clear();
    find_containers_left();
    std::vector<c10::WeakIValue> weak(kept_.begin(), kept_.end());
    kept_.clear();
    for (Piece piece = 0; piece < weak.size(); ++piece) {
      run_.pieces[piece].outlives_run |= !weak[piece].lock().isNone();
    }
    rename(representatives);
    return std::move(run_);
  }

 private:
  using States = std::unordered_map<Piece, uint64_t>;
  struct Bytes {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    bool moved = false;  // the memory it had may have become another's
  };

  Piece piece_of(const void* address, const c10::IValue& keeper, bool is_bytes, const Value* made_for) {
    const auto [entry, is_new] = pieces_.try_emplace(address, static_cast<Piece>(run_.pieces.size()));
    if (is_new) {
      run_.pieces.push_back({.is_bytes = is_bytes, .contents = {}, .made_for = made_for});
      kept_.push_back(keeper);
      bytes_.emplace_back();
      walked_.push_back(0);
    }
    return entry->second;
  }

  Piece piece_of(const c10::Storage& storage, const Value* made_for) {
    const Piece piece = piece_of(storage.unsafeGetStorageImpl(), storage, true, made_for);
    const auto begin = reinterpret_cast<uintptr_t>(storage.data());
    const uintptr_t end = begin == 0 ? 0 : begin + storage.nbytes();
    Bytes& bytes = bytes_[piece];
    bytes.moved = bytes.moved || (bytes.end != 0 && bytes.begin != begin);
    bytes = {begin, std::max(end, bytes.begin == begin ? bytes.end : 0), bytes.moved};
    return piece;
  }

  // The pieces that the value itself is.
  std::vector<Piece> pieces_of(const c10::IValue& value, const Value* made_for) {
    std::vector<Piece> pieces;
    if (value.isTensor() && value.toTensor().defined()) {
      const at::NoGradGuard no_grad;
      const at::Tensor& tensor = value.toTensor();
      pieces.push_back(piece_of(tensor.unsafeGetTensorImpl(), tensor, false, made_for));
      for (const at::Tensor& part : parts_with_storage(tensor)) {
        pieces.push_back(piece_of(part.storage(), made_for));
      }
    } else if (value.isStorage()) {
      pieces.push_back(piece_of(value.toStorage(), made_for));
    } else if (is_object(value)) {
      pieces.push_back(piece_of(value.internalToPointer(), value, false, made_for));
    }
    return pieces;
  }

  std::vector<Piece> walk(const c10::IValue& value, const Value* made_for) {
    const std::vector<Piece> pieces = pieces_of(value, made_for);
    if (is_container(value) && !pieces.empty() && walked_[pieces.front()] != epoch_) {
      walked_[pieces.front()] = epoch_;
      for_each_element(value, [&](const c10::IValue& element) {
        const std::vector<Piece> inside = walk(element, nullptr);
        run_.pieces[pieces.front()].contents.insert(inside.begin(), inside.end());
      });
    }
    return pieces;
  }

  void add_states(const c10::IValue& value, States& states) {
    const std::vector<Piece> pieces = pieces_of(value, nullptr);
    if (pieces.empty() || states.contains(pieces.front())) {
      return;
    }
    uint64_t& own = states[pieces.front()];
    if (value.isTensor()) {
      const at::Tensor& tensor = value.toTensor();
      own = tensor.is_inference() ? 0 : static_cast<uint64_t>(tensor._version());
      const at::NoGradGuard no_grad;
      for (const at::Tensor& part : parts_with_storage(tensor)) {
        const Piece piece = piece_of(part.storage(), nullptr);
        if (part.device().is_cpu() && !states.contains(piece)) {
          states[piece] = fingerprint(part.storage().data(), part.storage().data() == nullptr ? 0 : part.storage().nbytes());
        }
      }
      return;
    }
    uint64_t contents = 0;
    for_each_element(value, [&](const c10::IValue& element) {
      contents = (std::rotl(contents, 7) ^ identity_of(element)) * 0x9E3779B97F4A7C15 + 1;
    });
    own = contents;
    for_each_element(value, [&](const c10::IValue& element) { add_states(element, states); });
  }

  // A container keeps its elements for as long as there are weak references to it, so that one after the other goes.
  void find_containers_left() {
    std::vector<std::pair<Piece, c10::WeakIValue>> weak;
    for (Piece piece = 0; piece < kept_.size(); ++piece) {
      if (is_object(kept_[piece])) {
        weak.emplace_back(piece, kept_[piece]);
        kept_[piece] = c10::IValue();
      }
    }
    const auto is_gone = [](const auto& each) { return each.second.use_count() == 0; };
    while (std::erase_if(weak, is_gone) > 0) {
    }
    for (const auto& [piece, container] : weak) {
      run_.pieces[piece].outlives_run = true;
    }
  }

  // Storages of their own may have bytes in common: of `from_blob`, of another library's arrays.
  std::vector<Piece> merge_overlapping() const {
    std::vector<Piece> representatives(run_.pieces.size());
    std::vector<Piece> with_bytes;
    for (Piece piece = 0; piece < representatives.size(); ++piece) {
      representatives[piece] = piece;
      if (bytes_[piece].end > bytes_[piece].begin && !bytes_[piece].moved) {
        with_bytes.push_back(piece);
      }
    }
    std::sort(with_bytes.begin(), with_bytes.end(), [&](Piece a, Piece b) { return bytes_[a].begin < bytes_[b].begin; });
    uintptr_t end = 0;
    Piece group = 0;
    for (const Piece piece : with_bytes) {
      group = bytes_[piece].begin < end ? group : piece;
      end = std::max(end, bytes_[piece].end);
      representatives[piece] = group;
    }
    return representatives;
  }

  void rename(const std::vector<Piece>& representatives) {
    const auto renamed = [&](std::set<Piece>& pieces) {
      std::set<Piece> result;
      for (const Piece piece : pieces) {
        result.insert(representatives[piece]);
      }
      pieces = std::move(result);
    };
    for (Piece piece = 0; piece < run_.pieces.size(); ++piece) {
      renamed(run_.pieces[piece].contents);
      RecordedPiece& representative = run_.pieces[representatives[piece]];
      representative.outlives_run |= run_.pieces[piece].outlives_run;
      if (representatives[piece] != piece) {
        representative.made_for = nullptr;
      }
    }
    for (auto& [value, pieces] : run_.held) {
      renamed(pieces);
    }
    for (auto& [node, pieces] : run_.changed) {
      renamed(pieces);
    }
  }

  RecordedRun run_;
  std::unordered_map<const void*, Piece> pieces_;
  std::vector<c10::IValue> kept_;  // by piece, as all below
  std::vector<Bytes> bytes_;
  std::vector<uint64_t> walked_;  // the epoch in which the contents were looked at
  uint64_t epoch_ = 1;
  std::vector<States> states_;  // of the nodes that run
};

// ---- the observer ---------------------------------------------------------------------------------------------------

// One call of the observer in the graph.
struct Observation {
  const Node* before = nullptr;  // it is about to run with these operands
  const Node* after = nullptr;   // it has run, and these are its results
  bool writes_are_seen = false;  // `before` was called, too
  std::vector<const Value*> values = {};
};

struct Session {
  Recorder recorder;
  std::vector<Observation> observations;
  std::vector<std::vector<c10::IValue>> operands;  // of the nodes that run
};

// The observer is an operator, and operators have no place for a pointer.
thread_local Session* current_session = nullptr;

void observe(torch::jit::Stack& stack) {
  const auto count = static_cast<size_t>(torch::jit::pop(stack).toInt());
  std::vector<c10::IValue> values(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
  stack.resize(stack.size() - count);
  Session& session = *current_session;
  const Observation& observation = session.observations[static_cast<size_t>(values.front().toInt())];
  values.erase(values.begin());
  if (observation.before != nullptr) {
    session.recorder.before(values);
    session.operands.push_back(std::move(values));
    return;
  }
  if (observation.after != nullptr) {
    session.recorder.count_execution();
    if (observation.writes_are_seen) {
      session.recorder.after(*observation.after, session.operands.back());
      session.operands.pop_back();
    }
  }
  for (size_t i = 0; i < values.size(); ++i) {
    session.recorder.see(*observation.values[i], values[i]);
  }
}

const c10::Symbol kObserve = c10::Symbol::fromQualString("sconce_tests::observe");
const torch::jit::RegisterOperators registered({torch::jit::Operator("sconce_tests::observe(int observation, ...) -> ()",
                                                                     observe, c10::AliasAnalysisKind::CONSERVATIVE)});

// Calls of the observer in a copy of a graph, for the values and nodes of the original.
class Instrumentation {
 public:
  explicit Instrumentation(std::vector<Observation>& observations) : observations_(observations) {}

  std::unique_ptr<Graph> run(const Graph& graph) {
    std::unique_ptr<Graph> copy = graph.clone();
    visit(graph.body(), copy->body());
    return copy;
  }

 private:
  void visit(const Block& original, Block& copy) {
    std::vector<Node*> nodes;
    for (Node* node : copy.nodes()) {
      nodes.push_back(node);
    }
    observe_values({}, original.params(), copy.params(), nodes.empty() ? copy.return_node() : nodes.front());
    auto next = nodes.begin();
    for (const Node* node : original.nodes()) {
      visit(*node, **next++);
    }
  }

  void visit(const Node& original, Node& copy) {
    for (size_t i = 0; i < original.blocks().size(); ++i) {
      visit(*original.block(i), *copy.block(i));
    }
    const bool may_write = original.blocks().empty() && (!original.op().is_language() || effects_of(original).any());
    if (may_write) {
      std::vector<Value*> operands;
      for (Value* input : copy.inputs()) {
        if (holds_memory(input->type())) {
          operands.push_back(input);
        }
      }
      add_observation({.before = &original}, operands, &copy);
    }
    Node* next = copy.next() != nullptr ? copy.next() : copy.owning_block()->return_node();
    observe_values({.after = &original, .writes_are_seen = may_write}, original.outputs(), copy.outputs(), next);
  }

  void observe_values(Observation observation, c10::ArrayRef<Value*> originals, c10::ArrayRef<Value*> copies,
                      Node* position) {
    std::vector<Value*> watched;
    for (size_t i = 0; i < originals.size(); ++i) {
      if (holds_memory(originals[i]->type())) {
        observation.values.push_back(originals[i]);
        watched.push_back(copies[i]);
      }
    }
    if (!watched.empty() || observation.writes_are_seen) {
      add_observation(std::move(observation), watched, position);
    }
  }

  void add_observation(Observation observation, std::vector<Value*> values, Node* position) {
    Graph& graph = position->graph();
    values.insert(values.begin(), graph.insert_constant(static_cast<int64_t>(observations_.size()), position));
    observations_.push_back(std::move(observation));
    Node* call = graph.create(kObserve, values, 0)->insert_before(position);
    resolve(*call);
  }

  std::vector<Observation>& observations_;
};

class SessionScope {
 public:
  explicit SessionScope(Session& session) : before_(std::exchange(current_session, &session)) {}
  ~SessionScope() { current_session = before_; }

 private:
  Session* before_;
};

}  // namespace

RecordedRun record_run(const Graph& graph, const std::vector<c10::IValue>& arguments, Callees* callees) {
  Session session;
  std::unique_ptr<Plan> plan =
      lower(Instrumentation(session.observations).run(graph), callees).value_or_throw("the graph cannot be planned");
  std::optional<std::string> error;
  torch::jit::Stack stack(arguments);
  {
    const SessionScope scope(session);
    session.recorder.see_arguments(arguments);
    try {
      run_plan(*plan, stack, AutogradUse::kAll);
    } catch (const std::exception& failure) {
      error = failure.what();
      stack.clear();
    }
  }
  plan.reset();
  session.operands.clear();
  RecordedRun run = session.recorder.finish();
  run.error = std::move(error);
  run.outputs = std::move(stack);
  return run;
}

RecordedRun record_call(const Node& node, const std::vector<c10::IValue>& arguments,
                        const std::function<void(std::vector<c10::IValue>&)>& call) {
  Recorder recorder;
  for (size_t i = 0; i < arguments.size(); ++i) {
    recorder.see(*node.input(i), arguments[i]);
  }
  recorder.before(arguments);
  std::optional<std::string> error;
  std::vector<c10::IValue> results(arguments);
  try {
    call(results);
  } catch (const std::exception& failure) {
    error = failure.what();
    results.clear();
  }
  recorder.after(node, arguments);
  for (size_t i = 0; i < std::min(results.size(), node.outputs().size()); ++i) {
    recorder.see(*node.output(i), results[i]);
  }
  RecordedRun run = recorder.finish();
  for (RecordedPiece& piece : run.pieces) {
    piece.outlives_run = false;
  }
  run.error = std::move(error);
  run.outputs = std::move(results);
  return run;
}

}  // namespace sconce::testing
