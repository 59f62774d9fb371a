// Runs a model of this folder by sconce beside a twin that LibTorch runs operator by operator, compares every call, and then
// times both.
//
//   client MODEL.pt [options]        `client` alone lists them
//
// Exit code: 0 no mismatch, 1 a mismatch, 2 usage, or LibTorch itself raised.
#include <sconce/sconce.h>

#include <dlfcn.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using at::Tensor;
using c10::IValue;
using Named = std::vector<std::pair<std::string, Tensor>>;

constexpr const char* kUsage = R"(usage: client MODEL.pt [options]
  --data FILE              default: MODEL.data.pt
  --mode eval|train|step   eval: forward (and the program's gradient, if the model returns an energy alone); train: forward, a
                           loss on energies and forces, backward, an optimizer's step; step: sconce::TrainStep. Default: eval
  --calls N                default: 300
  --ops-library LIB        a library to open first
  --compile background|blocking|never   default: background
  --frozen-parameters      eval: the parameters require no gradient
  --optimizer sgd|adam     default: sgd
  --gradient backward|grad|both   how the program takes the gradient of an energy alone; both, the default: in turns of a cycle
  --forces-in-loss         step: the loss takes the gradient of an energy alone; positions are then the third target
  --keep-gradients         step: TrainOptions::keep_gradients, and compares them
  --no-record-calls, --exact, --no-optimize    settings of sconce::Options
  --wait-every K           waits for compiles after each K-th call; 0: never. Default: 24
  --pause MS               sleeps after each call. Default: 0
  --rtol R, --atol A       default: 1e-3 and 1e-5; in float64 1e-7 and 1e-9. A is relative to the largest element, and ten
                           times that for gradients, five times for outputs in training
  --ignore KIND,...        kinds of mismatches that do not count; the report names the kinds
  --rounds R               of the timing; 0: none. Default: 10
  --explain                prints why calls were not recorded, or ran eagerly
)";

struct Arguments {
  std::string model;
  std::string data;
  std::string mode = "eval";
  int calls = 300;
  std::string ops_library;
  std::string compile = "background";
  bool frozen_parameters = false;
  std::string optimizer = "sgd";
  std::string gradient = "both";
  bool forces_in_loss = false;
  bool keep_gradients = false;
  bool record_calls = true;
  bool exact = false;
  bool optimize = true;
  int wait_every = 24;
  int pause = 0;
  std::optional<double> rtol;
  std::optional<double> atol;
  std::set<std::string> ignored;
  int rounds = 10;
  bool explain = false;
};

[[noreturn]] void fail_usage(const std::string& message) {
  std::fprintf(stderr, "client: %s\n%s", message.c_str(), kUsage);
  std::exit(2);
}

Arguments parse(int argc, char** argv) {
  Arguments result;
  const auto one_of = [](const std::string& option, const std::string& value, const std::vector<std::string>& allowed) {
    if (std::find(allowed.begin(), allowed.end(), value) == allowed.end()) {
      fail_usage(option + ": unknown value " + value);
    }
    return value;
  };
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    const auto value = [&]() -> std::string {
      if (i + 1 == argc) {
        fail_usage(option + ": a value is missing");
      }
      return argv[++i];
    };
    if (option == "--data") {
      result.data = value();
    } else if (option == "--mode") {
      result.mode = one_of(option, value(), {"eval", "train", "step"});
    } else if (option == "--calls") {
      result.calls = std::atoi(value().c_str());
    } else if (option == "--ops-library") {
      result.ops_library = value();
    } else if (option == "--compile") {
      result.compile = one_of(option, value(), {"background", "blocking", "never"});
    } else if (option == "--frozen-parameters") {
      result.frozen_parameters = true;
    } else if (option == "--optimizer") {
      result.optimizer = one_of(option, value(), {"sgd", "adam"});
    } else if (option == "--gradient") {
      result.gradient = one_of(option, value(), {"backward", "grad", "both"});
    } else if (option == "--forces-in-loss") {
      result.forces_in_loss = true;
    } else if (option == "--keep-gradients") {
      result.keep_gradients = true;
    } else if (option == "--no-record-calls") {
      result.record_calls = false;
    } else if (option == "--exact") {
      result.exact = true;
    } else if (option == "--no-optimize") {
      result.optimize = false;
    } else if (option == "--wait-every") {
      result.wait_every = std::atoi(value().c_str());
    } else if (option == "--pause") {
      result.pause = std::atoi(value().c_str());
    } else if (option == "--rtol") {
      result.rtol = std::atof(value().c_str());
    } else if (option == "--atol") {
      result.atol = std::atof(value().c_str());
    } else if (option == "--ignore") {
      std::istringstream list(value());
      for (std::string kind; std::getline(list, kind, ',');) {
        result.ignored.insert(kind);
      }
    } else if (option == "--rounds") {
      result.rounds = std::atoi(value().c_str());
    } else if (option == "--explain") {
      result.explain = true;
    } else if (option.rfind("--", 0) == 0 || !result.model.empty()) {
      fail_usage("unknown argument " + option);
    } else {
      result.model = option;
    }
  }
  if (result.model.empty()) {
    fail_usage("no model");
  }
  if (result.frozen_parameters && result.mode != "eval") {
    fail_usage("--frozen-parameters needs --mode eval");
  }
  if (result.data.empty()) {
    result.data = std::filesystem::path(result.model).replace_extension(".data.pt").string();
  }
  return result;
}

std::string reason_of(const std::exception& failure) {
  const auto* error = dynamic_cast<const c10::Error*>(&failure);
  return error != nullptr ? error->what_without_backtrace() : failure.what();
}

// ---------------------------------------------------------------------------------------------------------------- data

struct Data {
  std::vector<std::vector<IValue>> inputs;
  std::vector<Tensor> energies;
  std::vector<Tensor> forces;
  std::vector<Tensor> virials;
  size_t positions = 0;
  std::vector<std::string> names;
  double learning_rate = 0;
  double adam_rate = 0;
  double force_weight = 0;
  double virial_weight = 0;
};

Data load_data(const std::string& path) {
  const torch::jit::Module file = torch::jit::load(path);
  Data data;
  for (const IValue& input : file.attr("inputs").toListRef()) {
    data.inputs.push_back(input.toTupleRef().elements().vec());
  }
  data.energies = file.attr("energies").toTensorVector();
  data.forces = file.attr("forces").toTensorVector();
  data.virials = file.attr("virials").toTensorVector();
  data.positions = static_cast<size_t>(file.attr("positions_argument").toInt());
  for (const IValue& name : file.attr("argument_names").toListRef()) {
    data.names.push_back(name.toStringRef());
  }
  data.learning_rate = file.attr("learning_rate").toDouble();
  data.adam_rate = file.attr("adam_rate").toDouble();
  data.force_weight = file.attr("force_weight").toDouble();
  data.virial_weight = file.attr("virial_weight").toDouble();
  return data;
}

std::vector<IValue> fresh_copy(const std::vector<IValue>& values) {
  std::vector<IValue> copy;
  copy.reserve(values.size());
  for (const IValue& value : values) {
    copy.push_back(value.isTensor() ? IValue(value.toTensor().detach().clone()) : value);
  }
  return copy;
}

// ------------------------------------------------------------------------------------------------------------- results

// Names the tensors of a result: "result", "result[1]", "result.forces".
void collect(const IValue& value, const std::string& name, Named& into) {
  if (value.isTensor()) {
    into.emplace_back(name, value.toTensor());
  } else if (value.isTuple()) {
    const auto& elements = value.toTupleRef().elements();
    for (size_t i = 0; i < elements.size(); ++i) {
      collect(elements[i], name + "[" + std::to_string(i) + "]", into);
    }
  } else if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict()) {
      collect(entry.value(), name + "." + entry.key().toStringRef(), into);
    }
  } else {
    throw std::runtime_error("a result of an unexpected kind: " + value.tagKind());
  }
}

struct Parts {
  Tensor energy;
  Tensor forces;   // undefined if the model returns an energy alone
  Tensor virials;  // undefined if there are none
};

Parts parts_of(const IValue& result) {
  if (result.isGenericDict()) {
    const auto dict = result.toGenericDict();
    return {dict.at("energy").toTensor(), dict.at("forces").toTensor(),
            dict.contains("virials") ? dict.at("virials").toTensor() : Tensor()};
  }
  if (result.isTuple()) {
    const auto& elements = result.toTupleRef().elements();
    return {elements[0].toTensor(), elements[1].toTensor(), {}};
  }
  return {result.toTensor(), {}, {}};
}

// The loss that both sides and TrainStep use. Targets: energy, forces, then virials or, with `forces_in_loss`, positions.
sconce::TrainStep::GeneralLoss make_loss(const Data& data, bool forces_in_loss) {
  const double force_weight = data.force_weight;
  const double virial_weight = data.virial_weight;
  return [force_weight, virial_weight, forces_in_loss](const IValue& output, const std::vector<IValue>& targets) {
    Parts parts = parts_of(output);
    if (!parts.forces.defined() && forces_in_loss) {
      const Tensor& positions = targets.at(2).toTensor();
      parts.forces =
          -torch::autograd::grad({parts.energy}, {positions}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
    }
    Tensor loss = at::mse_loss(parts.energy, targets.at(0).toTensor());
    if (parts.forces.defined()) {
      loss = loss + force_weight * at::mse_loss(parts.forces, targets.at(1).toTensor());
    }
    if (parts.virials.defined()) {
      loss = loss + virial_weight * at::mse_loss(parts.virials, targets.at(2).toTensor());
    }
    return loss;
  };
}

// What one side's call left behind.
struct Seen {
  std::string error;  // empty if nothing was raised
  Named outputs;
  Tensor loss;
  Tensor forces;  // that the program took of an energy
  std::vector<IValue> arguments;
  Named gradients;   // of the parameters, undefined where there is none
  Named parameters;  // after the step, and buffers
  int64_t builds = 0;
};

// ------------------------------------------------------------------------------------------------------------- sides

// One of the two that run the model.
class Side {
 public:
  Side(const Arguments& arguments, const Data& data, torch::jit::Module script)
      : arguments_(arguments),
        data_(data),
        script_(std::move(script)),
        // A program that trains an energy alone takes the forces itself in mode train. TrainStep has no place for that but
        // the loss.
        loss_(make_loss(data, arguments.mode == "step" ? arguments.forces_in_loss : true)) {
    for (const auto& parameter : script_.named_parameters()) {
      parameters_.emplace_back(parameter.name, parameter.value);
    }
    for (const auto& buffer : script_.named_buffers()) {
      buffers_.emplace_back(buffer.name, buffer.value);
    }
    std::vector<Tensor> tensors;
    for (const auto& [name, tensor] : parameters_) {
      tensor.set_requires_grad(!arguments.frozen_parameters);
      tensors.push_back(tensor);
    }
    if (arguments.optimizer == "adam") {
      optimizer_ = std::make_unique<torch::optim::Adam>(tensors, torch::optim::AdamOptions(data.adam_rate));
    } else {
      optimizer_ = std::make_unique<torch::optim::SGD>(tensors, torch::optim::SGDOptions(data.learning_rate));
    }
    has_builds_ = script_.find_method("builds").has_value();
  }
  virtual ~Side() = default;
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  // A call with copies of a case's arguments. `seen` may be null, for timing.
  void call(bool by_backward, std::vector<IValue> copies, const std::vector<IValue>& targets, Seen* seen) {
    if (arguments_.mode == "eval") {
      evaluate(by_backward, copies, seen);
    } else if (arguments_.mode == "train") {
      train(copies, targets, seen);
    } else {
      const Tensor loss = step(copies, targets);
      if (seen != nullptr) {
        seen->loss = loss;
        record_gradients(seen);
      }
    }
    if (seen != nullptr) {
      seen->arguments = std::move(copies);
      for (const Named* list : {&parameters_, &buffers_}) {
        for (const auto& [name, tensor] : *list) {
          seen->parameters.emplace_back(name, tensor.detach());
        }
      }
      seen->builds = has_builds_ ? builds() : 0;
    }
  }

  std::vector<IValue> targets_of(size_t index, const std::vector<IValue>& copies) const {
    std::vector<IValue> targets = {data_.energies[index], data_.forces[index]};
    if (!data_.virials.empty()) {
      targets.emplace_back(data_.virials[index]);
    } else if (arguments_.mode == "train" || arguments_.forces_in_loss) {
      targets.push_back(copies[data_.positions]);
    }
    return targets;
  }

 protected:
  virtual IValue forward(std::vector<IValue> inputs) = 0;
  virtual int64_t builds() = 0;
  virtual Tensor step(const std::vector<IValue>& inputs, const std::vector<IValue>& targets) = 0;

  // A step as the twin takes it.
  Tensor plain_step(const std::vector<IValue>& inputs, const std::vector<IValue>& targets) {
    optimizer_->zero_grad();
    const Tensor loss = loss_(forward(inputs), targets);
    loss.backward();
    optimizer_->step();
    if (!arguments_.keep_gradients) {
      optimizer_->zero_grad();
    }
    return loss.detach();
  }

  torch::optim::Optimizer& optimizer() { return *optimizer_; }
  const sconce::TrainStep::GeneralLoss& loss() const { return loss_; }
  torch::jit::Module& script() { return script_; }

 private:
  void evaluate(bool by_backward, const std::vector<IValue>& copies, Seen* seen) {
    optimizer_->zero_grad();
    const IValue result = forward(copies);
    const Parts parts = parts_of(result);
    Tensor forces;
    if (!parts.forces.defined()) {
      const Tensor& positions = copies[data_.positions].toTensor();
      if (by_backward) {
        parts.energy.backward();
        forces = positions.grad().defined() ? -positions.grad() : Tensor();
      } else {
        forces = -torch::autograd::grad({parts.energy}, {positions})[0];
      }
    }
    if (seen != nullptr) {
      collect(result, "result", seen->outputs);
      seen->forces = forces;
      record_gradients(seen);
    }
  }

  void train(const std::vector<IValue>& copies, const std::vector<IValue>& targets, Seen* seen) {
    optimizer_->zero_grad();
    const IValue result = forward(copies);
    const Tensor loss = loss_(result, targets);
    loss.backward();
    if (seen != nullptr) {
      collect(result, "result", seen->outputs);
      seen->loss = loss.detach();
      record_gradients(seen);
    }
    optimizer_->step();
  }

  void record_gradients(Seen* seen) const {
    for (const auto& [name, tensor] : parameters_) {
      seen->gradients.emplace_back(name, tensor.grad().defined() ? tensor.grad().detach().clone() : Tensor());
    }
  }

  const Arguments& arguments_;
  const Data& data_;
  torch::jit::Module script_;
  const sconce::TrainStep::GeneralLoss loss_;
  Named parameters_;
  Named buffers_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  bool has_builds_ = false;
};

// LibTorch, operator by operator: neither its profiling executor nor its fusers take part.
class Twin : public Side {
 public:
  Twin(const Arguments& arguments, const Data& data) : Side(arguments, data, torch::jit::load(arguments.model)) {
    script().train(arguments.mode != "eval");
  }

 protected:
  IValue forward(std::vector<IValue> inputs) override {
    const torch::jit::GraphOptimizerEnabledGuard off(false);
    return script().forward(std::move(inputs));
  }
  int64_t builds() override { return script().get_method("builds")({}).toInt(); }
  Tensor step(const std::vector<IValue>& inputs, const std::vector<IValue>& targets) override {
    return plain_step(inputs, targets);
  }
};

class Ours : public Side {
 public:
  Ours(const Arguments& arguments, const Data& data, sconce::Module module)
      : Side(arguments, data, module.script_module()), module_(std::move(module)) {
    module_.train(arguments.mode != "eval");
    if (arguments.mode == "step") {
      step_ = std::make_unique<sconce::TrainStep>(module_, loss(), optimizer(),
                                                  sconce::TrainOptions().keep_gradients(arguments.keep_gradients));
    }
  }

  void wait() {
    if (step_ != nullptr) {
      step_->wait_for_compiles();
    }
    module_.method("forward").wait_for_compiles();
  }

  void report(bool all) const {
    const auto print = [all](const char* what, const std::vector<std::pair<std::string, uint64_t>>& reasons,
                             const std::vector<std::string>& fixed) {
      if (all) {
        for (const auto& [reason, times] : reasons) {
          std::printf("  %s, %llu times: %s\n", what, static_cast<unsigned long long>(times), reason.c_str());
        }
        for (const std::string& reason : fixed) {
          std::printf("  sizes are fixed: %s\n", reason.c_str());
        }
      }
    };
    if (step_ != nullptr) {
      const sconce::TrainExplanation explanation = step_->explain();
      std::printf("  sconce: %llu steps by plan, %llu of them with the update, %llu eager, %zu plans\n",
                  static_cast<unsigned long long>(explanation.by_plan),
                  static_cast<unsigned long long>(explanation.updated_by_plan),
                  static_cast<unsigned long long>(explanation.eager), explanation.plans.size());
      print("eager", explanation.reasons, explanation.why_sizes_are_fixed);
    }
    const sconce::Explanation explanation = module_.method("forward").explain();
    std::printf(
        "  sconce: %llu calls of forward, %llu compiles, %llu refusals; recorded calls: %llu by plan, %llu recorded, %llu "
        "slower\n",
        static_cast<unsigned long long>(explanation.counters.invocations),
        static_cast<unsigned long long>(explanation.counters.compiles),
        static_cast<unsigned long long>(explanation.counters.refusals),
        static_cast<unsigned long long>(explanation.recorded.by_plan),
        static_cast<unsigned long long>(explanation.recorded.recorded),
        static_cast<unsigned long long>(explanation.recorded.slower));
    print("not recorded", explanation.recorded.reasons, explanation.recorded.why_sizes_are_fixed);
    if (all) {
      for (const sconce::RefusalExplanation& refusal : explanation.refusals) {
        std::printf("  refused: %s: %s\n", refusal.what.c_str(), refusal.reason.c_str());
      }
    }
  }

 protected:
  IValue forward(std::vector<IValue> inputs) override { return module_.forward(std::move(inputs)); }
  int64_t builds() override { return module_.run_method("builds", {}).toInt(); }
  Tensor step(const std::vector<IValue>& inputs, const std::vector<IValue>& targets) override {
    return (*step_)(inputs, targets);
  }

 private:
  sconce::Module module_;
  std::unique_ptr<sconce::TrainStep> step_;
};

// ---------------------------------------------------------------------------------------------------------- comparison

class Comparison {
 public:
  explicit Comparison(const Arguments& arguments) : arguments_(arguments) {}

  void compare(int call, const Seen& expected, const Seen& got, const std::vector<std::string>& argument_names) {
    call_ = call;
    if (!got.error.empty()) {
      mismatch("error", "sconce raised: " + got.error);
      return;
    }
    compare_lists("output", expected.outputs, got.outputs, Scale::kOwn, true);
    compare_tensor("loss", "loss", expected.loss, got.loss, Scale::kLargestSoFar, 0);
    compare_tensor("program_forces", "the program's forces", expected.forces, got.forces, Scale::kOwn, 0);
    for (size_t i = 0; i < expected.arguments.size(); ++i) {
      compare_argument(argument_names[i], expected.arguments[i], got.arguments[i]);
    }
    compare_lists("parameter_gradient", expected.gradients, got.gradients, Scale::kLargestSoFar, false);
    compare_lists("parameter", expected.parameters, got.parameters, Scale::kOwn, false);
    if (expected.builds != got.builds) {
      mismatch("builds", "builds of neighbor lists: expected " + std::to_string(expected.builds) + ", got " +
                             std::to_string(got.builds));
    }
  }

  // Prints the first mismatch of each kind. Returns whether there is any that counts.
  bool report(const std::string& label) const {
    bool counts = false;
    for (const auto& [kind, found] : found_) {
      const bool is_ignored = arguments_.ignored.count(kind) != 0;
      counts = counts || !is_ignored;
      std::printf("%s: %s of kind %s: %d calls, the first is call %d: %s\n", label.c_str(),
                  is_ignored ? "ignored mismatch" : "MISMATCH", kind.c_str(), found.calls, found.first,
                  found.message.c_str());
    }
    return counts;
  }

  // The largest difference of each kind, as a multiple of what is allowed.
  std::string closest() const {
    std::string text;
    for (const auto& [kind, ratio] : largest_) {
      char part[96];
      std::snprintf(part, sizeof part, "%s%s %.2g", text.empty() ? "" : ", ", kind.c_str(), ratio);
      text += part;
    }
    return text;
  }

 private:
  // What an absolute difference is relative to: the tensor's own largest element; or the largest that it had in any call. A
  // loss near zero, and its gradients, are differences of large numbers.
  enum class Scale { kOwn, kLargestSoFar };

  struct Found {
    int first = 0;
    int last = 0;
    int calls = 0;
    std::string message;
  };

  // How much more than in outputs of equal parameters the absolute part of the tolerance must be: gradients of a loss are
  // differences of large numbers, and twins that are trained drift apart by rounding.
  double slack_of(const std::string& kind) const {
    const bool is_gradient = kind == "parameter_gradient" || kind == "argument_grad";
    return is_gradient ? 10 : kind == "output" && arguments_.mode != "eval" ? 5 : 1;
  }

  void mismatch(const std::string& kind, const std::string& message) {
    Found& found = found_[kind];
    if (found.calls == 0) {
      found.first = call_;
      found.message = message;
    }
    found.calls += found.last != call_;
    found.last = call_;
  }

  void compare_lists(const std::string& kind, const Named& expected, const Named& got, Scale scale, bool with_history) {
    if (expected.size() != got.size()) {
      mismatch(kind, "expected " + std::to_string(expected.size()) + " tensors, got " + std::to_string(got.size()));
      return;
    }
    double group = 0;
    for (const auto& [name, tensor] : expected) {
      if (tensor.defined() && tensor.is_floating_point() && tensor.numel() > 0) {
        group = std::max(group, tensor.detach().abs().max().item<double>());
      }
    }
    for (size_t i = 0; i < expected.size(); ++i) {
      const std::string& name = expected[i].first;
      if (name != got[i].first) {
        mismatch(kind, "expected " + name + ", got " + got[i].first);
        continue;
      }
      // A gradient that is zero but for rounding is compared with the others, a bias that began at zero with a weight.
      compare_tensor(kind, name, expected[i].second, got[i].second, scale,
                     kind == "parameter_gradient" ? 0.01 * group
                     : kind == "parameter"        ? 0.05
                                                  : 0);
      if (with_history) {
        compare_flags(kind, name, expected[i].second, got[i].second);
      }
    }
  }

  void compare_argument(const std::string& name, const IValue& expected, const IValue& got) {
    if (!expected.isTensor()) {
      return;
    }
    const Tensor& x = expected.toTensor();
    const Tensor& y = got.toTensor();
    compare_flags("argument", name, x, y);
    if (x._version() != y._version()) {
      mismatch("argument_version",
               name + ": expected version " + std::to_string(x._version()) + ", got " + std::to_string(y._version()));
    }
    compare_tensor("argument_value", name, x, y, Scale::kOwn, 0);
    compare_tensor("argument_grad", name, x.is_leaf() ? x.grad() : Tensor(), y.is_leaf() ? y.grad() : Tensor(),
                   Scale::kLargestSoFar, 0);
  }

  void compare_flags(const std::string& kind, const std::string& name, const Tensor& expected, const Tensor& got) {
    if (!expected.defined() || !got.defined()) {
      return;
    }
    if (expected.requires_grad() != got.requires_grad()) {
      mismatch(kind + "_requires_grad", name + ": expected " + (expected.requires_grad() ? "true" : "false"));
    }
    if (expected.is_leaf() != got.is_leaf()) {
      mismatch(kind + "_is_leaf", name + ": expected " + (expected.is_leaf() ? "true" : "false"));
    }
  }

  void compare_tensor(const std::string& kind, const std::string& name, const Tensor& expected, const Tensor& got,
                      Scale scale, double floor) {
    if (expected.defined() != got.defined()) {
      mismatch(kind, name + (expected.defined() ? ": it is undefined" : ": it is defined, and should not be"));
      return;
    }
    if (!expected.defined()) {
      return;
    }
    if (expected.scalar_type() != got.scalar_type() || expected.sizes() != got.sizes()) {
      std::ostringstream text;
      text << name << ": expected " << expected.toString() << expected.sizes() << ", got " << got.toString() << got.sizes();
      mismatch(kind, text.str());
      return;
    }
    if (expected.numel() == 0) {
      return;
    }
    if (!expected.is_floating_point()) {
      if (!at::equal(expected, got)) {
        mismatch(kind, name + ": it differs");
      }
      return;
    }
    const bool is_double = expected.scalar_type() == at::kDouble;
    const double rtol = arguments_.rtol.value_or(is_double ? 1e-7 : 1e-3);
    const double atol = slack_of(kind) * arguments_.atol.value_or(is_double ? 1e-9 : 1e-5);
    const Tensor x = expected.detach().to(at::kDouble);
    const Tensor y = got.detach().to(at::kDouble);
    double size = std::max(x.abs().max().item<double>(), floor);
    if (scale == Scale::kLargestSoFar) {
      double& so_far = scales_[kind + " " + name];
      size = so_far = std::max(so_far, size);
    }
    const Tensor difference = (x - y).abs();
    const Tensor ratio = difference / (atol * size + rtol * x.abs() + std::numeric_limits<double>::min());
    const double worst = ratio.max().item<double>();  // NaN if any is
    if (!(worst <= 1)) {
      const int64_t at =
          std::isnan(worst) ? ratio.isnan().to(at::kInt).argmax().item<int64_t>() : ratio.argmax().item<int64_t>();
      std::ostringstream text;
      text.precision(9);
      text << name << ": element " << at << " of " << x.numel() << ": expected " << x.flatten()[at].item<double>()
           << ", got " << y.flatten()[at].item<double>() << ", scale " << size << ", " << worst << " times the tolerance";
      mismatch(kind, text.str());
    } else {
      largest_[kind] = std::max(largest_[kind], worst);
    }
  }

  const Arguments& arguments_;
  int call_ = 0;
  std::map<std::string, Found> found_;
  std::map<std::string, double> scales_;
  std::map<std::string, double> largest_;
};

// -------------------------------------------------------------------------------------------------------------- timing

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : 0.5 * (values[middle - 1] + values[middle]);
}

// Runs all cases once. Returns the seconds of a call.
double time_round(Side& side, const Data& data, bool by_backward) {
  std::vector<std::vector<IValue>> copies;
  std::vector<std::vector<IValue>> targets;
  for (size_t i = 0; i < data.inputs.size(); ++i) {
    copies.push_back(fresh_copy(data.inputs[i]));
    targets.push_back(side.targets_of(i, copies.back()));
  }
  const auto start = std::chrono::steady_clock::now();
  for (size_t i = 0; i < data.inputs.size(); ++i) {
    side.call(by_backward, std::move(copies[i]), targets[i], nullptr);
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() /
         static_cast<double>(data.inputs.size());
}

// ---------------------------------------------------------------------------------------------------------------- main

class Run {
 public:
  explicit Run(const Arguments& arguments)
      : arguments_(arguments),
        data_(load_data(arguments.data)),
        twin_(arguments, data_),
        ours_(arguments, data_, load()),
        comparison_(arguments) {
    label_ = std::filesystem::path(arguments.model).stem().string() + " " + arguments.mode +
             (arguments.frozen_parameters ? " frozen" : "");
  }

  // Returns whether all calls agreed.
  bool run() {
    for (int call = 1; call <= arguments_.calls; ++call) {
      compare_call(call);
    }
    ours_.report(arguments_.explain);
    if (arguments_.rounds > 0) {
      time();
      // What was timed was right, too.
      for (size_t i = 0; i < data_.inputs.size(); ++i) {
        compare_call(arguments_.calls + 1 + static_cast<int>(i));
      }
    }
    const bool mismatched = comparison_.report(label_);
    std::printf("%s: %s; largest differences as parts of the tolerance: %s\n", label_.c_str(),
                mismatched ? "FAILED" : "all calls agree", comparison_.closest().c_str());
    return !mismatched;
  }

 private:
  sconce::Module load() const {
    sconce::Options options;
    options.compile(arguments_.compile == "background" ? sconce::CompileMode::kBackground
                    : arguments_.compile == "blocking" ? sconce::CompileMode::kBlocking
                                                       : sconce::CompileMode::kNever);
    options.record_calls(arguments_.record_calls).exact(arguments_.exact).optimize(arguments_.optimize);
    return sconce::load(arguments_.model, options);
  }

  Seen observe(Side& side, size_t index, bool by_backward) const {
    Seen seen;
    std::vector<IValue> copies = fresh_copy(data_.inputs[index]);
    const std::vector<IValue> targets = side.targets_of(index, copies);
    side.call(by_backward, std::move(copies), targets, &seen);
    return seen;
  }

  void compare_call(int call) {
    const size_t cases = data_.inputs.size();
    const size_t index = static_cast<size_t>(call - 1) % cases;
    const size_t cycle = static_cast<size_t>(call - 1) / cases;
    const bool by_backward = arguments_.gradient == "backward" || (arguments_.gradient == "both" && cycle % 2 == 0);
    const Seen expected = observe(twin_, index, by_backward);
    Seen got;
    try {
      got = observe(ours_, index, by_backward);
    } catch (const std::exception& failure) {
      got.error = reason_of(failure);
    }
    comparison_.compare(call, expected, got, data_.names);
    if (arguments_.wait_every > 0 && call % arguments_.wait_every == 0) {
      ours_.wait();
    }
    if (arguments_.pause > 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(arguments_.pause));
    }
  }

  void time() {
    ours_.wait();
    std::vector<double> eager;
    std::vector<double> sconce;
    try {
      for (int round = 0; round < arguments_.rounds; ++round) {
        eager.push_back(time_round(twin_, data_, arguments_.gradient != "grad"));
        sconce.push_back(time_round(ours_, data_, arguments_.gradient != "grad"));
      }
    } catch (const std::exception& failure) {
      std::printf("%s: not timed, it raised: %s\n", label_.c_str(), reason_of(failure).c_str());
      return;
    }
    const double eager_us = 1e6 * median(eager);
    const double sconce_us = 1e6 * median(sconce);
    std::printf("%s: eager %.1f us, sconce %.1f us, ratio %.2f\n", label_.c_str(), eager_us, sconce_us,
                eager_us / sconce_us);
  }

  const Arguments& arguments_;
  const Data data_;
  Twin twin_;
  Ours ours_;
  Comparison comparison_;
  std::string label_;
};

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments = parse(argc, argv);
  at::set_num_threads(1);
  try {
    if (!arguments.ops_library.empty() && dlopen(arguments.ops_library.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
      throw std::runtime_error(dlerror());
    }
    return Run(arguments).run() ? 0 : 1;
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "client: %s: %s\n", arguments.model.c_str(), reason_of(failure).c_str());
    return 2;
  }
}
