// Every operator of LibTorch's registry in the namespaces prim and aten, in a graph of one node: what the call gives, writes
// and raises is what the operator itself does, and what its results share with its operands, and which of these it writes,
// is what the analyses say. The same operator on tensors in planned memory holds none of it after its last use (rule R2).
// Operators with unlikely arguments may crash LibTorch, so the calls are made in child processes.
#include "tests/differential/facts_claims.h"
#include "tests/differential/memory_claims.h"
#include "tests/differential/observed_call.h"
#include "tests/differential/registry_arguments.h"
#include "tests/differential/registry_autocast.h"
#include "tests/support/environment_number.h"
#include "tests/support/memory_recorder.h"
#include "tests/support/part.h"
#include "tests/support/spec_facts.h"

#include "tools/sconce/values/deep_copy.h"

#include "ir/graph.h"
#include "ir/schema_match.h"
#include "ops/cpu_autocast.h"
#include "plan/shell_check.h"

#include <sconce/graph_executor.h>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/runtime/operator.h>
#include <torch/csrc/jit/runtime/print_handler.h>
#include <torch/csrc/jit/runtime/symbolic_shape_registry.h>

#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <map>
#include <set>

namespace sconce::testing {
namespace {

using OperatorPtr = std::shared_ptr<torch::jit::Operator>;

std::string name_of(const OperatorPtr& op) { return c10::toString(op->schema().operator_name()); }

// Where LibTorch's operation, called by itself, is not what a node means, or is not defined.
const std::map<std::string, std::string>& excused() {
  static const std::map<std::string, std::string> all = {
      {"aten::_thnn_differentiable_gru_cell_backward", "LibTorch's reads chunks that narrow gates don't have"},
      {"aten::_thnn_differentiable_lstm_cell_backward", "LibTorch's reads chunks that narrow gates don't have"},
      {"aten::has_torch_function", "LibTorch's leaves its arguments on the stack"},
      {"aten::to.prim_Device", "LibTorch's reads a dtype that is None when asked for a copy"},
      {"aten::to.prim_dtype", "LibTorch's reads a dtype that is None when asked for a copy"},
      {"aten::to.prim_other", "LibTorch's reads a dtype that is None when asked for a copy"},
      {"aten::wait", "the registry's is for LibTorch's interpreter; tests of fork and wait call it"},
      {"aten::warn", "LibTorch has it in its interpreter only"},
      {"prim::RaiseException", "LibTorch's takes one argument of the two; tests of exceptions call it"},
      {"prim::TupleUnpack", "the number of its results follows from its node, not from its schema"},
  };
  return all;
}

// Operators without a call of their own.
const std::set<std::string>& not_called() {
  static const std::set<std::string> all = {
      // Made by the passes of LibTorch's executors; no frontend writes them.
      "prim::BroadcastMKLDNNTensors", "prim::ChunkSizes", "prim::ConstantMKLDNNTensor", "prim::DifferentiableGraph",
      "prim::FallbackGraph", "prim::FusedConcat", "prim::FusionGroup", "prim::MKLDNNClamp", "prim::MKLDNNClamp_",
      "prim::MKLDNNHardTanh", "prim::MKLDNNHardTanh_", "prim::MMBatchSide", "prim::RequiresGradCheck",
      "prim::StaticRuntimeCopyOuts", "prim::StaticSubgraph", "prim::TensorExprDynamicGroup", "prim::TensorExprDynamicGuard",
      "prim::TensorExprGroup", "prim::TypeCheck", "prim::oneDNNFusionGroup", "prim::oneDNNFusionGuard", "prim::profile",
      "prim::profile_ivalue",
      // Need more than a schema; snippets of the language and the operator suite call them.
      "prim::ConstantChunk", "prim::tolist",
      // Of tasks that nothing starts but LibTorch's own `torch.jit._awaitable`.
      "prim::awaitable_wait",
      // Of packed weights, which only quantized modules hold.
      "aten::quantized_gru.data", "aten::quantized_gru.input", "aten::quantized_lstm.data", "aten::quantized_lstm.input"};
  return all;
}

std::vector<OperatorPtr> operators_with_schema() {
  std::vector<OperatorPtr> all;
  for (const OperatorPtr& op : torch::jit::getAllOperators()) {
    const std::string& name = op->schema().name();
    if (name.starts_with("aten::") || name.starts_with("prim::")) {
      all.push_back(op);
    }
  }
  std::sort(all.begin(), all.end(), [](const OperatorPtr& a, const OperatorPtr& b) { return name_of(a) < name_of(b); });
  return all;
}

// Appends a call of the operator, whose results the graph returns.
void return_call(Graph& graph, const c10::FunctionSchema& schema, const std::vector<Value*>& inputs,
                 const std::vector<c10::TypePtr>& results) {
  Node* node = graph.create(c10::Symbol::fromQualString(schema.name()), inputs, results.size());
  for (size_t i = 0; i < results.size(); ++i) {
    node->output(i)->set_type(results[i]);
    graph.add_output(node->output(i));
  }
  node->set_op(op_of(schema));
  node->append_to(graph.body());
}

std::unique_ptr<Graph> one_node_graph(const c10::FunctionSchema& schema, const RegistryArguments& arguments) {
  auto graph = std::make_unique<Graph>();
  std::vector<Value*> inputs;
  for (size_t i = 0; i < arguments.types.size(); ++i) {
    inputs.push_back(graph->add_input("a" + std::to_string(i), arguments.types[i]));
  }
  return_call(*graph, schema, inputs, arguments.results);
  return graph;
}

// Returns a value equal to the tensor, in memory that a plan places.
Value* placed(Graph& graph, Value* tensor) {
  Node* node = graph.create(c10::aten::maximum, {tensor, tensor}, 1);
  node->output()->set_type(c10::TensorType::get());
  node->append_to(graph.body());
  TORCH_CHECK(resolve(*node), "maximum is not resolved");
  return node->output();
}

// The operator on tensors, and lists of them, that lie in planned memory.
std::unique_ptr<Graph> graph_on_placed_tensors(const c10::FunctionSchema& schema, const RegistryArguments& arguments) {
  auto graph = std::make_unique<Graph>();
  std::vector<Value*> inputs;
  for (size_t i = 0; i < arguments.types.size(); ++i) {
    const bool is_tensor = arguments.values[i].isTensor();
    inputs.push_back(
        graph->add_input("a" + std::to_string(i), is_tensor ? c10::TypePtr(c10::TensorType::get()) : arguments.types[i]));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const c10::IValue& value = arguments.values[i];
    if (value.isTensor()) {
      inputs[i] = placed(*graph, inputs[i]);
    } else if (value.isTensorList() && !value.toListRef().empty()) {
      Node* unpack = graph->create(prim::ListUnpack, {inputs[i]}, value.toListRef().size());
      unpack->append_to(graph->body());
      std::vector<Value*> elements;
      for (Value* element : unpack->outputs()) {
        element->set_type(c10::TensorType::get());
        elements.push_back(placed(*graph, element));
      }
      Node* list = graph->create(prim::ListConstruct, elements, 1);
      list->output()->set_type(c10::ListType::ofTensors());
      list->append_to(graph->body());
      inputs[i] = list->output();
    }
  }
  return_call(*graph, schema, inputs, arguments.results);
  return graph;
}

// Returns what the check of shells finds when the operator reads planned memory; empty if nothing. Other errors are no
// concern here: a tensor in another place may be one that the operator does not take.
std::string held_shells(const c10::FunctionSchema& schema, const RegistryArguments& arguments) {
  try {
    GraphExecutor executor(graph_on_placed_tensors(schema, arguments), "placed", Options().exact(true));
    for (int call = 0; call < 2; ++call) {
      torch::jit::Stack stack;
      for (const c10::IValue& argument : arguments.values) {
        stack.push_back(cli::deep_copy(argument));
      }
      executor.run(stack);
    }
  } catch (const std::exception& error) {
    const std::string text = error.what();
    return text.find("rule R2") != std::string::npos ? text.substr(text.find("rule R2")) : "";
  }
  return "";
}

// A call by LibTorch's own boxed operation.
void call_operator(const OperatorPtr& op, torch::jit::Stack& stack) {
  const auto count = static_cast<int64_t>(stack.size());
  if (op->schema().is_vararg()) {
    stack.emplace_back(count);
  }
  op->getOperation()(stack);
}

// What the analyses say of the operator when none of its arguments shares memory with another, against a call of it.
std::vector<std::string> wrong_claims_about(const OperatorPtr& op, const RegistryArguments& arguments) {
  Graph graph;
  std::vector<Value*> operands;
  for (size_t i = 0; i < arguments.types.size(); ++i) {
    operands.push_back(
        graph.create(prim::Uninitialized, {})->append_to(graph.body())->output()->set_type(arguments.types[i]));
  }
  Node* node = graph.create(c10::Symbol::fromQualString(op->schema().name()), operands, arguments.results.size());
  for (size_t i = 0; i < arguments.results.size(); ++i) {
    node->output(i)->set_type(arguments.results[i]);
  }
  node->set_op(op_of(op->schema()));
  node->append_to(graph.body());
  std::vector<c10::IValue> copies;
  for (const c10::IValue& argument : arguments.values) {
    copies.push_back(cli::deep_copy(argument));
  }
  at::manual_seed(7);
  const RecordedRun run = record_call(*node, copies, [&](torch::jit::Stack& stack) { call_operator(op, stack); });
  return wrong_claims(graph, run, Autograd::kOff);
}

// What is claimed about the results from the arguments, first with sizes that are numbers, then symbols, against a call.
std::vector<std::string> wrong_facts_about(const c10::FunctionSchema& schema, const RegistryArguments& arguments,
                                           const ObservedCall& call) {
  std::vector<std::string> wrong;
  for (const Sizes sizes : {Sizes::kNumbers, Sizes::kSymbols}) {
    const std::unique_ptr<Graph> graph = one_node_graph(schema, arguments);
    InputAssumptions given = facts_of_call(*graph, arguments.values, sizes);
    for (size_t i = 0; i < arguments.values.size(); ++i) {
      const c10::IValue& argument = arguments.values[i];
      if (argument.isInt() || argument.isDouble() || argument.isBool() || argument.isString() || argument.isIntList() ||
          argument.isBoolList() || argument.isDoubleList()) {
        given.values[graph->inputs()[i]] = AbstractValue::constant(argument);
      }
    }
    propagate_facts(*graph, given);
    SymbolNumbers symbols;
    for (const auto& [symbol, number] : given.examples) {
      symbols.emplace(symbol, Dim::known(number));
    }
    for (size_t i = 0; i < graph->outputs().size() && i < call.outputs.size(); ++i) {
      const TensorFacts* claimed = graph->outputs()[i]->facts();
      if (claimed == nullptr || !call.outputs[i].isTensor() || !call.outputs[i].toTensor().defined()) {
        continue;
      }
      const TensorFacts seen = facts_of(call.outputs[i].toTensor());
      if (contradict(*claimed, seen, symbols)) {
        wrong.push_back("claimed " + to_string(*claimed) + ", seen " + to_string(seen));
      }
    }
  }
  return wrong;
}

std::vector<std::string> differences_of(const ObservedCall& got, const ObservedCall& expected);

// What the caller's autocast does to the operator: what its record says, and a call in a specialized plan, against calls by
// the dispatcher. Operators with an autocast kernel are also called on bfloat16.
std::vector<std::string> wrong_under_autocast(const OperatorPtr& op, const RegistryArguments& arguments) {
  const Op& record = op_of(op->schema());
  const bool casts = record.dispatched && record.dispatched->hasKernelForDispatchKey(c10::DispatchKey::AutocastCPU);
  if (record.cpu_autocast == CpuAutocast::kNothing || record.cpu_autocast == CpuAutocast::kPromoted) {
    torch::jit::Stack stack;
    for (const c10::IValue& argument : arguments.values) {
      stack.push_back(cli::deep_copy(argument));
    }
    for (const std::string& cast : operators_cast_in([&] { call_operator(op, stack); })) {
      if (record.cpu_autocast == CpuAutocast::kNothing || (cast != "aten::cat" && cast != "aten::stack")) {
        return {"it calls " + cast};
      }
    }
  }
  std::vector<std::vector<c10::IValue>> calls = {arguments.values};
  if (casts) {
    calls.push_back(with_floating_dtype(arguments.values, at::kBFloat16));
    calls.push_back(with_floating_dtype(arguments.values, at::kDouble));
  }
  for (const std::vector<c10::IValue>& values : calls) {
    const RunGraph oracle = [&](torch::jit::Stack& stack) {
      const AutocastToBFloat16 autocast;
      call_operator(op, stack);
    };
    const ObservedCall expected = observe_call(values, 7, oracle);
    if (!differences_of(observe_call(values, 7, oracle), expected).empty()) {
      continue;
    }
    GraphExecutor executor(one_node_graph(op->schema(), arguments), "one",
                           Options().exact(true).compile(CompileMode::kBlocking));
    const ObservedCall got = observe_call(values, 7, [&](torch::jit::Stack& stack) {
      const AutocastToBFloat16 autocast;
      executor.run(stack);
    });
    if (auto found = differences_of(got, expected); !found.empty()) {
      return found;
    }
  }
  return {};
}

// One line per event, read by the parent.
class Report {
 public:
  explicit Report(int descriptor) : descriptor_(descriptor) {}
  void line(size_t op, int recipe, const std::string& event, std::string text = "") const {
    std::replace(text.begin(), text.end(), '\n', ' ');
    const std::string all = std::to_string(op) + " " + std::to_string(recipe) + " " + event + " " + text + "\n";
    if (write(descriptor_, all.data(), all.size()) != static_cast<ssize_t>(all.size())) {
      _exit(3);
    }
  }

 private:
  int descriptor_;
};

// Returns the source file whose internal assertion failed; empty for any other error.
std::string file_of_assertion(const std::string& error) {
  const std::string words = "INTERNAL ASSERT FAILED at \"";
  const size_t begin = error.find(words);
  return begin == std::string::npos ? std::string() : error.substr(begin, error.find('"', begin + words.size()) - begin);
}

// Compares error messages by their first line; what follows names source locations. An internal assertion is a fault of
// LibTorch's: `_fft_r2c` reads beyond the sizes of an operand that lacks the dimension, and which one of its assertions
// fails depends on what lies there.
std::vector<std::string> differences_of(const ObservedCall& got, const ObservedCall& expected) {
  std::vector<std::string> found = differences(got, expected, Strictness::kValues, {.rtol = 0, .atol = 0});
  const auto beginning = [](const std::string& error) {
    return error.substr(0, std::min<size_t>(60, error.find("INTERNAL ASSERT FAILED at ")));
  };
  if (got.error && expected.error && got.error->find(beginning(*expected.error)) == std::string::npos) {
    const std::string file = file_of_assertion(*expected.error);
    if (file.empty() || file != file_of_assertion(*got.error)) {
      found.push_back("raises " + *got.error + " instead of " + *expected.error);
    }
  }
  return found;
}

void compare_calls(const OperatorPtr& op, size_t index, int recipe, const Report& report) {
  std::string why;
  const auto arguments = make_registry_arguments(op->schema(), recipe, why);
  if (!arguments) {
    report.line(index, recipe, "unmade", why);
    return;
  }
  if (!op->hasOperation()) {
    report.line(index, recipe, "unmade", "LibTorch gives no operation for it without a node");
    return;
  }
  report.line(index, recipe, "begin");
  ObservedCall expected;
  try {
    const RunGraph oracle = [&](torch::jit::Stack& stack) { call_operator(op, stack); };
    expected = observe_call(arguments->values, 7, oracle);
    // What an operator makes of memory outside its arguments has no meaning.
    if (!differences_of(observe_call(arguments->values, 7, oracle), expected).empty()) {
      report.line(index, recipe, "unstable");
      return;
    }
  } catch (const std::exception& unusable) {
    // Tensors of functorch's that cannot be copied, compared or differentiated outside.
    report.line(index, recipe, "unstable", unusable.what());
    return;
  }
  report.line(index, recipe, "oracle");
  std::vector<std::string> found;
  // The elements of a list of complex numbers look changed after LibTorch's sum of them; a correction by name would be one
  // for every aten::sum.
  static std::set<size_t> checked;  // one set of arguments that the operator takes is enough, if not told otherwise
  static const bool all_recipes = environment_number("SCONCE_REGISTRY_MEMORY", 0) != 0;
  if (!excused().contains(name_of(op)) && name_of(op) != "aten::sum.complex" &&
      (all_recipes || (!expected.error && checked.insert(index).second))) {
    if (const auto wrong = wrong_claims_about(op, *arguments); !wrong.empty()) {
      report.line(index, recipe, "claims", wrong.front());
    }
  }
  if (!expected.error && !excused().contains(name_of(op))) {
    if (const auto wrong = wrong_facts_about(op->schema(), *arguments, expected); !wrong.empty()) {
      report.line(index, recipe, "facts", wrong.front());
    }
  }
  if (!expected.error && !excused().contains(name_of(op))) {
    if (const std::string held = held_shells(op->schema(), *arguments); !held.empty()) {
      report.line(index, recipe, "shells", held);
    }
  }
  if (!expected.error && !excused().contains(name_of(op))) {
    if (const auto wrong = wrong_under_autocast(op, *arguments); !wrong.empty()) {
      report.line(index, recipe, "autocast", wrong.front());
    }
  }
  try {
    GraphExecutor executor(one_node_graph(op->schema(), *arguments), "one", Options().exact(true));
    const RunGraph ours = [&](torch::jit::Stack& stack) { executor.run(stack); };
    found = differences_of(observe_call(arguments->values, 7, ours), expected);
  } catch (const std::exception& refused) {
    found.push_back(std::string("refused: ") + refused.what());
  }
  if (!found.empty()) {
    report.line(index, recipe, excused().contains(name_of(op)) ? "excused" : "differs", found.front());
  } else {
    report.line(index, recipe, expected.error ? "raised" : "equal", expected.error.value_or(""));
  }
}

// A call: which operator, which arguments.
using Place = std::pair<size_t, int>;
Place after(Place place) {
  return place.second + 1 < kArgumentRecipes ? Place(place.first, place.second + 1) : Place(place.first + 1, 0);
}

// Memory of tensors with zeros in it and around it. Some operators check no bounds: what they read there is then the same in
// every call, and what they write there hits nothing.
class RoomyAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    static_assert(kRoom % c10::gAlignment == 0);
    char* data = static_cast<char*>(c10::alloc_cpu(bytes + 2 * kRoom)) + kRoom;
    std::memset(data - kRoom, 0, bytes + 2 * kRoom);
    return {data, data, &free_with_room, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_with_room; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  static void free_with_room(void* data) { c10::free_cpu(static_cast<char*>(data) - kRoom); }
  static constexpr size_t kRoom = 16 << 10;
};

// In the child: the calls from `first` on, up to `end`.
[[noreturn]] void run_child(const std::vector<OperatorPtr>& all, Place first, Place end, int descriptor) {
  // Tests before this one may have started threads, which the child does not have.
  at::set_num_threads(1);
  // Memory that no operator wrote must be the same on both sides.
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
  at::globalContext().setDeterministicFillUninitializedMemory(true);
  static RoomyAllocator roomy;
  c10::SetCPUAllocator(&roomy, std::numeric_limits<uint8_t>::max());
  check_shells(true);
  torch::jit::setPrintHandler([](const std::string&) {});
  c10::WarningUtils::set_warnAlways(false);
  class Quiet final : public c10::WarningHandler {
    void process(const c10::Warning&) override {}
  } quiet;
  c10::WarningUtils::set_warning_handler(&quiet);
  const Report report(descriptor);
  for (Place place = first; place < end; place = after(place)) {
    // Operators may hang on what they are given.
    const itimerval two_seconds_of_computing = {.it_interval = {}, .it_value = {.tv_sec = 2, .tv_usec = 0}};
    setitimer(ITIMER_PROF, &two_seconds_of_computing, nullptr);
    alarm(120);
    const bool grad_mode = c10::GradMode::is_enabled();
    compare_calls(all[place.first], place.first, place.second, report);
    c10::GradMode::set_enabled(grad_mode);
  }
  _exit(0);
}

struct Tally {
  std::map<size_t, std::set<std::string>> events;  // by operator
  std::map<size_t, std::string> reasons;           // why no arguments could be made
  std::map<Place, std::string> differences;
  std::map<Place, std::string> wrong_claims;
  std::map<Place, std::string> wrong_facts;
  std::map<Place, std::string> held_shells;
  std::map<Place, std::string> wrong_autocast;
  std::vector<std::string> crashes_of_libtorch;
};

// Starts a child for the calls from `first` to `end`; where it crashed, if it did.
std::optional<Place> run_calls(const std::vector<OperatorPtr>& all, Place first, Place end, Tally& tally) {
  auto [op, recipe] = first;
  int ends[2];
  TORCH_CHECK(pipe(ends) == 0, "no pipe");
  std::cout.flush();
  const pid_t child = ::fork();
  TORCH_CHECK(child >= 0, "no process");
  if (child == 0) {
    close(ends[0]);
    run_child(all, first, end, ends[1]);
  }
  close(ends[1]);
  FILE* lines = fdopen(ends[0], "r");
  char* line = nullptr;
  size_t capacity = 0;
  std::string event;
  while (getline(&line, &capacity, lines) > 0) {
    std::istringstream words(line);
    words >> op >> recipe >> event;
    std::string text;
    std::getline(words >> std::ws, text);
    tally.events[op].insert(event);
    if (event == "unmade") {
      tally.reasons[op] = text;
    } else if (event == "differs") {
      tally.differences[{op, recipe}] = text;
    } else if (event == "facts") {
      tally.wrong_facts[{op, recipe}] = text;
    } else if (event == "shells") {
      tally.held_shells[{op, recipe}] = text;
    } else if (event == "autocast") {
      tally.wrong_autocast[{op, recipe}] = text;
    } else if (event == "claims") {
      tally.wrong_claims[{op, recipe}] = text;
    }
  }
  free(line);
  fclose(lines);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    return std::nullopt;
  }
  if (event == "begin" || excused().contains(name_of(all[op]))) {
    tally.crashes_of_libtorch.push_back(name_of(all[op]) + ", arguments " + std::to_string(recipe));
  } else {
    tally.differences[{op, recipe}] = "crashed, and LibTorch's did not";
  }
  return Place(op, recipe);
}

Tally call_everything(const std::vector<OperatorPtr>& all) {
  torch::jit::shapeComputeGraphForSchema(all.front()->schema());  // parses all shape functions: once, not in every child
  Tally tally;
  const Place end(all.size(), 0);
  for (Place next(0, 0); next < end;) {
    const auto crashed = run_calls(all, next, end, tally);
    next = crashed ? after(*crashed) : end;
  }
  // A call of LibTorch's that wrote over the heap may have spoilt those after it: what differs must differ alone, too.
  for (auto each = tally.differences.begin(); each != tally.differences.end();) {
    Tally alone;
    run_calls(all, each->first, after(each->first), alone);
    each = alone.differences.empty() ? tally.differences.erase(each) : std::next(each);
  }
  return tally;
}

TEST(Registry, EveryOperatorRunsInAGraphOfOneNode) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "many operators of LibTorch read or write outside of what unlikely arguments give them";
#endif
  ASSERT_GT(operators_with_schema().size(), 2000U);
  const std::vector<OperatorPtr> all = in_part(operators_with_schema());
  // Some operators write files where they are told to.
  const auto home = std::filesystem::current_path();
  const auto scratch = std::filesystem::temp_directory_path() / ("sconce-registry-" + std::to_string(getpid()));
  std::filesystem::create_directory(scratch);
  std::filesystem::current_path(scratch);
  Tally tally = call_everything(all);
  std::filesystem::current_path(home);
  std::filesystem::remove_all(scratch);

  size_t equal = 0;
  size_t only_raised = 0;
  std::map<std::string, std::vector<std::string>> unmade;
  for (size_t op = 0; op < all.size(); ++op) {
    const std::set<std::string>& events = tally.events[op];
    equal += events.contains("equal") ? 1 : 0;
    only_raised += !events.contains("equal") && events.contains("raised") ? 1 : 0;
    if (events.size() == 1 && events.contains("unmade")) {
      unmade[tally.reasons[op]].push_back(name_of(all[op]));
      EXPECT_TRUE(not_called().contains(name_of(all[op]))) << name_of(all[op]) << ": " << tally.reasons[op];
    }
  }
  for (const auto& [place, difference] : tally.differences) {
    ADD_FAILURE() << all[place.first]->schema() << ", arguments " << place.second << ": " << difference;
  }
  for (const auto& [place, claim] : tally.wrong_facts) {
    ADD_FAILURE() << all[place.first]->schema() << ", arguments " << place.second << ": " << claim;
  }
  for (const auto& [place, claim] : tally.wrong_claims) {
    ADD_FAILURE() << all[place.first]->schema() << ", arguments " << place.second << ", memory: " << claim;
  }
  for (const auto& [place, held] : tally.held_shells) {
    ADD_FAILURE() << all[place.first]->schema() << ", arguments " << place.second << ": " << held;
  }
  for (const auto& [place, wrong] : tally.wrong_autocast) {
    ADD_FAILURE() << all[place.first]->schema() << ", arguments " << place.second << ", under autocast: " << wrong;
  }
  std::cout << all.size() << " operators: " << equal << " gave LibTorch's results, " << only_raised
            << " only raised LibTorch's errors, " << tally.crashes_of_libtorch.size() << " calls crash LibTorch itself\n";
  for (const auto& [why, names] : unmade) {
    std::cout << "  not called: " << why << ":";
    for (const std::string& name : names) {
      std::cout << " " << name;
    }
    std::cout << "\n";
  }
  for (const auto& [name, why] : excused()) {
    std::cout << "  differs for a reason: " << name << ": " << why << "\n";
  }
  for (const std::string& crash : tally.crashes_of_libtorch) {
    std::cout << "  crashes LibTorch: " << crash << "\n";
  }
  EXPECT_GT(equal, all.size() / 2);
}

}  // namespace
}  // namespace sconce::testing
