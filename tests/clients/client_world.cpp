#include "tests/clients/client_world.h"

#include "base/tensors_in.h"
#include "tests/clients/client_script.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string_view>

namespace sconce::clients {
namespace {

constexpr std::array kTensors = {"w", "v", "b", "mean", "var"};

torch::jit::Module make_module(const ClientProgram& program, const c10::intrusive_ptr<Counter>& counter) {
  torch::jit::Module module("Client");
  at::manual_seed(11);
  for (const char* name : {"w", "v"}) {
    module.register_parameter(name, (at::randn({kWidth, kWidth}) * 0.4).set_requires_grad(true), /*is_buffer=*/false);
  }
  module.register_parameter("b", at::randn({kWidth}).set_requires_grad(true), /*is_buffer=*/false);
  module.register_buffer("mean", at::zeros({kWidth}));
  module.register_buffer("var", at::ones({kWidth}));
  module.register_attribute("scale", c10::FloatType::get(), 1.5);
  module.register_attribute("count", c10::IntType::get(), 0);
  module.register_attribute("training", c10::BoolType::get(), true);
  module.register_attribute("counter", c10::IValue(counter).type(), counter);
  module.define(script_of(program), library_resolver());
  return module;
}

std::unique_ptr<torch::optim::Optimizer> make_optimizer(uint32_t choice, const std::vector<at::Tensor>& parameters) {
  switch (choice % 4) {
    case 0: return std::make_unique<torch::optim::SGD>(parameters, torch::optim::SGDOptions(0.05));
    case 1:
      return std::make_unique<torch::optim::SGD>(parameters,
                                                 torch::optim::SGDOptions(0.05).momentum(0.9).weight_decay(0.01));
    case 2: return std::make_unique<torch::optim::Adam>(parameters, torch::optim::AdamOptions(0.01));
    default: return std::make_unique<torch::optim::AdamW>(parameters, torch::optim::AdamWOptions(0.01).amsgrad(true));
  }
}

TrainOptions step_options(uint32_t choice) {
  TrainOptions options;
  if (choice % 4 == 1) {
    options.clip_norm(0.5);
  } else if (choice % 4 == 2) {
    options.clip_value(0.05);
  }
  return options;
}

at::Generator& generator() {
  static at::Generator shared = at::detail::getDefaultCPUGenerator();
  return shared;
}

// No gradients but autograd's, while it lives.
struct WithoutOptimization {
  WithoutOptimization() { torch::jit::setGraphExecutorOptimize(false); }
  ~WithoutOptimization() { torch::jit::setGraphExecutorOptimize(true); }
};

struct Autocast {
  Autocast() {
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::increment_nesting();
  }
  ~Autocast() {
    at::autocast::decrement_nesting();
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
};

at::Tensor first_of(const c10::IValue& result) {
  return result.isTuple() ? result.toTupleRef().elements()[0].toTensor() : result.toTensor();
}

void clear_gradient(const at::Tensor& tensor) {
  if (tensor.defined() && !tensor.is_inference()) {
    tensor.mutable_grad() = at::Tensor();
  }
}

std::string first_line(const std::string& text) {
  size_t begin = 0;
  while (begin < text.size() && (text[begin] == '\n' || text[begin] == ' ')) {
    ++begin;
  }
  return text.substr(begin, text.find('\n', begin) - begin);
}

// sconce names the node after LibTorch's words; LibTorch's interpreter names the class before them.
std::string words_of(std::string text) {
  constexpr std::string_view kClass = "RuntimeError: ";
  if (text.starts_with(kClass)) {
    text.erase(0, kClass.size());
  }
  return text.substr(0, text.find(" (in "));
}

// Errors of TorchScript end with the message; those of operators begin with it.
std::string message_of(const std::exception& error) {
  if (const auto* of_torch = dynamic_cast<const c10::Error*>(&error)) {
    return words_of(first_line(of_torch->what_without_backtrace()));
  }
  const std::string text = error.what();
  const size_t last = text.find_last_not_of('\n');
  const size_t line = text.rfind('\n', last);
  const size_t first = line == std::string::npos ? 0 : line + 1;
  return words_of(text.substr(first, last - first + 1));
}

// LibTorch's norms of no rows save nothing that a later write could change; those of plans do.
bool writes_what_norms_save(const ClientProgram& program) {
  const std::string script = script_of(program);
  const auto has = [&](const char* text) { return script.find(text) != std::string::npos; };
  return (has("torch.batch_norm(") || has("torch.layer_norm(")) && (has("self.mean.") || has("self.var."));
}

}  // namespace

World::World(const ClientProgram& program, bool by_sconce, double nudge)
    : program_(program),
      writes_what_norms_save_(writes_what_norms_save(program)),
      by_sconce_(by_sconce),
      script_(make_module(program, counter_)) {
  for (const at::Tensor& parameter : parameters()) {
    parameter.data().mul_(1 + nudge);
  }
  optimizer_ = make_optimizer(program.optimizer, parameters());
  at::manual_seed(12);
  captured_.scale = at::randn({kWidth}).set_requires_grad(true);
  captured_.matrix = (at::randn({kWidth, kWidth}) * 0.4).set_requires_grad(true);
  captured_.table = {1, 2, 3, 4, 5, 6};
  for (int64_t n = 0; n < 8; ++n) {
    buffers_.push_back(at::randn({n, kWidth}));
  }
  if (by_sconce_) {
    const bool waits = program.compile % 4 != 0;
    const Options options = Options().compile(waits ? CompileMode::kBlocking : CompileMode::kBackground);
    module_ = accelerate(script_, options);
    traced_ = trace([this](const std::vector<at::Tensor>& arguments) { return function(arguments); }, options);
    backwards_.emplace(options);
    const TrainStep::GeneralLoss loss = [this](const c10::IValue& result, const std::vector<c10::IValue>& targets) {
      return loss_of(first_of(result), targets.front().toTensor());
    };
    step_ = std::make_unique<TrainStep>(*module_, loss, *optimizer_, step_options(program.options));
  }
  for (const char* name : kTensors) {
    first_values_.push_back(script_.attr(name).toTensor().detach().clone());
  }
  generator_state_ = generator().get_state();
}

World::~World() = default;

std::vector<at::Tensor> World::parameters() const {
  return {script_.attr("w").toTensor(), script_.attr("v").toTensor(), script_.attr("b").toTensor()};
}

uint64_t World::runs_by_plan() const {
  uint64_t runs = step_->explain().by_plan + module_->method("forward").explain().recorded.by_plan;
  for (const TraceExplanation::Trace& each : traced_->explain().traces) {
    runs += each.plan ? each.calls - 1 : 0;
  }
  return runs;
}

// ---- statements ------------------------------------------------------------------------------------------------------

class World::Scope {
 public:
  explicit Scope(World& world) : world_(world), warnings_(&world.warnings_) {
    std::swap(library_state(), world.library_);
    generator().set_state(world.generator_state_);
    torch::autograd::AnomalyMode::set_enabled(world.is_anomaly_, /*check_nan=*/false);
    at::globalContext().setDeterministicAlgorithms(world.is_deterministic_, /*warn_only=*/false);
    if (world.is_observed_) {
      scopes() = &world.scopes_;
      observer_ = at::addThreadLocalCallback(at::RecordFunctionCallback([](const at::RecordFunction& function) {
        *scopes() += std::string_view(function.name()) == "part of the model" ? 1 : 0;
        return std::unique_ptr<at::ObserverContext>();
      }));
    }
  }
  ~Scope() {
    if (observer_) {
      at::removeCallback(*observer_);
    }
    at::globalContext().setDeterministicAlgorithms(false, /*warn_only=*/false);
    torch::autograd::AnomalyMode::set_enabled(false);
    world_.generator_state_ = generator().get_state();
    std::swap(library_state(), world_.library_);
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  static int64_t*& scopes() {
    static int64_t* count = nullptr;
    return count;
  }
  World& world_;
  const c10::WarningUtils::WarningHandlerGuard warnings_;
  const at::AutoGradMode grad_mode_{true};
  std::optional<at::CallbackHandle> observer_;
};

Observed World::run(const Statement& statement, size_t index) {
  Observed observed;
  {
    const Scope scope(*this);
    if (std::exchange(was_rounded_, false)) {
      forget_rounding();
    }
    try {
      do_statement(statement, index, observed);
    } catch (const std::exception& error) {
      observed.error = message_of(error);
      forget_gradients(observed);
    }
    observed.numbers.emplace_back("grad mode", c10::GradMode::is_enabled());
  }
  was_rounded_ = observed.is_rounded;
  observe(observed);
  wait(index);
  return observed;
}

void World::observe(Observed& observed) const {
  const auto see = [&](const std::string& name, const at::Tensor& tensor) { observed.tensors.emplace_back(name, tensor); };
  for (const char* name : kTensors) {
    see(name, script_.attr(name).toTensor());
  }
  see("scale of the function", captured_.scale);
  see("matrix of the function", captured_.matrix);
  see("state of the generator", generator_state_);
  for (const at::Tensor& buffer : buffers_) {
    see("buffer of " + std::to_string(buffer.size(0)) + " rows", buffer);
  }
  for (const at::Tensor& result : results_) {
    see("earlier result", result);
  }
  const auto count = [&](const std::string& name, int64_t number) { observed.numbers.emplace_back(name, number); };
  count("count", script_.attr("count").toInt());
  for (const auto& calls : hook_calls_) {
    count("calls of a hook", *calls);
  }
  count("calls of operators", library_.ticks);
  count("calls of number", library_.numbers);
  count("calls of the class", counter_->count);
  count("warnings", warnings_.count());
  count("scopes", scopes_);
}

void World::do_statement(const Statement& statement, size_t index, Observed& observed) {
  const Numbers& numbers = statement.numbers;
  switch (statement.verb) {
    case Verb::kCall: return call(numbers, index, observed);
    case Verb::kTrainStep: return train_step(numbers, index, observed);
    case Verb::kPlainStep: return plain_step(numbers, index, observed);
    case Verb::kTracedCall: return traced_call(numbers, index, observed);
    case Verb::kRefill: {
      const at::Tensor contents = at::randn_like(buffers_[numbers[0] % 8]);
      if (contents.numel() != 0) {
        std::memcpy(buffers_[numbers[0] % 8].data_ptr(), contents.data_ptr(), contents.nbytes());
      }
      captured_.table[numbers[1] % kWidth] += 0.5F;
      return;
    }
    case Verb::kWriteParameter: return write_parameter(numbers);
    case Verb::kWriteCaptured: return write_captured(numbers);
    case Verb::kHook: return switch_hook(numbers);
    case Verb::kFreeze: {
      at::Tensor parameter = parameters()[numbers[0] % 3];
      parameter.set_requires_grad(!parameter.requires_grad());
      return;
    }
    case Verb::kAttribute: return script_.setattr("scale", 0.5 * static_cast<double>(1 + numbers[0] % 4));
    case Verb::kLearningRate:
      return optimizer_->param_groups()[0].options().set_lr(0.01 * static_cast<double>(1 + numbers[0] % 3));
    case Verb::kTraining: return script_.setattr("training", !script_.attr("training").toBool());
    case Verb::kAnomaly: is_anomaly_ = !is_anomaly_; return;
    case Verb::kWriteResult:
      if (!results_.empty()) {
        const at::NoGradGuard no_grad;
        results_[numbers[0] % results_.size()].mul_(0.5);
      }
      return;
    case Verb::kSetting: library_state().setting = 0.25 * static_cast<double>(1 + numbers[0] % 6); return;
    case Verb::kMark: return mark(numbers);
    case Verb::kClean: return clean();
    case Verb::kMode: return switch_mode(numbers);
  }
}

// Rows that the caller refills, or new ones.
at::Tensor World::rows(uint32_t number, size_t index) {
  constexpr std::array kFewSizes = {4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 2, 2, 3, 1, 5, 0};
  constexpr std::array kManySizes = {4, 4, 4, 5, 5, 6, 6, 7, 7, 3, 3, 2, 2, 1, 4, 0};
  const int64_t drawn = (program_.results / 8 % 2 == 0 ? kFewSizes : kManySizes)[number % 16];
  const int64_t n = drawn == 0 && writes_what_norms_save_ ? 1 : drawn;
  if ((number >> 4) % 2 == 0) {
    return buffers_[static_cast<size_t>(n)];
  }
  const at::Tensor state = generator().get_state();
  at::manual_seed(100 + index);
  const at::Tensor fresh = at::randn({n, kWidth});
  generator().set_state(state);
  return fresh;
}

c10::IValue World::argument_of(const at::Tensor& x) const {
  if (program_.argument == ArgumentForm::kList) {
    return c10::List<at::Tensor>({x});
  }
  if (program_.argument == ArgumentForm::kDict) {
    c10::Dict<std::string, at::Tensor> tensors;
    tensors.insert("x", x);
    return tensors;
  }
  return x;
}

c10::IValue World::forward(const at::Tensor& x, Observed& observed) {
  observed.tensors.emplace_back("the argument", x);
  c10::IValue result;
  if (by_sconce_) {
    result = module_->forward({argument_of(x)});
  } else {
    const WithoutOptimization plain;
    result = script_.forward({argument_of(x)});
  }
  for (const at::Tensor& tensor : tensors_in(result)) {
    observed.tensors.emplace_back("a result of the module", tensor);
    observed.numbers.emplace_back("whether a result is the argument", tensor.is_same(x));
  }
  observed.numbers.emplace_back("grad mode after the call", c10::GradMode::is_enabled());
  return result;
}

at::Tensor World::loss_of(const at::Tensor& y, const at::Tensor& target) const {
  at::Tensor value = y;
  for (const uint32_t operation : program_.loss) {
    value = apply_operation(operation, value, target, captured_);
  }
  return (value - target).pow(2).mean();
}

at::Tensor World::argument(uint32_t number, uint32_t form, size_t index, Observed& observed) {
  const at::Tensor x = rows(number, index);
  if (form % 8 > 3) {
    return x;
  }
  const at::Tensor leaf = x.detach().clone().set_requires_grad(true);
  observed.tensors.emplace_back("the leaf", leaf);
  switch (form % 8) {
    case 0: return leaf;
    case 1: return leaf * 1.0;
    case 2: return leaf.t().contiguous().t();
    default: return leaf.view_as(leaf);
  }
}

std::vector<at::Tensor> World::function(const std::vector<at::Tensor>& arguments) const {
  at::Tensor value = arguments[0];
  for (const uint32_t operation : program_.function) {
    value = apply_operation(operation, value, arguments[1], captured_);
  }
  switch (program_.results % 8) {
    case 0: return value.chunk(2, 1);
    case 1: return {value.slice(1, 0, 2), value};
    case 2: return {value, value.t(), value};
    case 3: return {value.select(1, 3), value * 2, value.slice(1, 1, 4)};
    case 4: return {captured_.scale.slice(0, 0, 3), value, captured_.scale};
    case 5: return {value, arguments[1], value.detach()};
    default: return {value};
  }
}

void World::backward(const at::Tensor& value, bool within_scope) {
  if (by_sconce_ && within_scope) {
    const CompiledBackward scope(*backwards_);
    value.backward();
  } else {
    value.backward();
  }
}

void World::call(const Numbers& numbers, size_t index, Observed& observed) {
  // Most calls of a program are of one form, so that they are recorded.
  const uint32_t form = numbers[2] % 4 == 0 ? numbers[3] : program_.options / 4;
  const at::Tensor x = argument(numbers[0], form, index, observed);
  std::optional<c10::InferenceMode> inference;
  std::optional<at::NoGradGuard> no_grad;
  std::optional<Autocast> autocast;
  const uint32_t mode = numbers[1] % 5;
  if (mode == 0) {
    no_grad.emplace();
  } else if (mode == 1) {
    inference.emplace();
  }
  if (casts_) {
    autocast.emplace();
    observed.is_rounded = true;
  }
  const c10::IValue result = forward(x, observed);
  autocast.reset();
  if (mode == 0 && !casts_ && !first_of(result).requires_grad()) {
    keep(first_of(result));
  }
  at::Tensor loss;
  for (const at::Tensor& y : tensors_in(result)) {
    if (y.requires_grad() && (!loss.defined() || numbers[3] % 2 == 0)) {
      loss = loss.defined() ? loss + y.pow(2).mean() : y.pow(2).mean();
    }
  }
  if (mode > 2 && loss.defined()) {
    backward(loss, mode == 4);
  }
}

void World::train_step(const Numbers& numbers, size_t index, Observed& observed) {
  const at::Tensor x = rows(numbers[0], index);
  const at::Tensor target = rows((numbers[0] & 15) | 16, index + 1000);
  observed.tensors.emplace_back("the target", target);
  observed.tensors.emplace_back("the argument", x);
  at::Tensor loss;
  if (by_sconce_) {
    loss = (*step_)({argument_of(x)}, {target});
  } else {
    const TrainOptions options = step_options(program_.options);
    optimizer_->zero_grad();
    try {
      const at::AutoGradMode with_gradients(true);
      const auto is_trained = [](const at::Tensor& parameter) { return parameter.requires_grad(); };
      const std::vector<at::Tensor> trained = parameters();
      TORCH_CHECK(std::any_of(trained.begin(), trained.end(), is_trained),
                  "the optimizer has no parameter that requires a gradient");
      const WithoutOptimization plain;
      loss = loss_of(first_of(script_.forward({argument_of(x)})), target);
      TORCH_CHECK(
          loss.requires_grad(),
          "element 0 of tensors does not require grad and does not have a grad_fn: the loss must depend on a parameter");
      loss.backward();
    } catch (...) {
      optimizer_->zero_grad();
      throw;
    }
    if (options.clip_norm()) {
      torch::nn::utils::clip_grad_norm_(parameters(), *options.clip_norm());
    }
    if (options.clip_value()) {
      torch::nn::utils::clip_grad_value_(parameters(), *options.clip_value());
    }
    optimizer_->step();
    optimizer_->zero_grad();
    loss = loss.detach();
  }
  observed.tensors.emplace_back("loss", loss);
}

void World::plain_step(const Numbers& numbers, size_t index, Observed& observed) {
  const at::Tensor x = rows(numbers[0], index);
  const at::Tensor target = rows((numbers[0] & 15) | 16, index + 1000);
  if (numbers[1] % 2 == 0) {
    optimizer_->zero_grad();
  }
  const at::Tensor loss = loss_of(first_of(forward(x, observed)), target);
  if (loss.requires_grad()) {
    backward(loss, numbers[2] % 2 == 0);
    optimizer_->step();
  }
  observed.tensors.emplace_back("loss", loss);
}

void World::traced_call(const Numbers& numbers, size_t index, Observed& observed) {
  constexpr std::array kForms = {0, 0, 0, 0, 4, 1, 2, 3, 5, 5};
  const uint32_t form = kForms[numbers[1] % kForms.size()];
  std::vector<at::Tensor> arguments = {argument(numbers[0], form, index, observed),
                                       rows((numbers[0] & 15) | 16, index + 1000)};
  if (numbers[2] % 8 == 0 && arguments[1].size(0) > 0) {
    arguments[1] = arguments[1].select(0, 0);
  } else if (numbers[2] % 8 == 1) {
    arguments[1] = arguments[1].detach().clone().set_requires_grad(true);
  }
  for (const at::Tensor& each : arguments) {
    observed.tensors.emplace_back("an argument of the function", each);
  }
  const bool records = form != 5;
  std::optional<c10::InferenceMode> inference;
  if (!records && numbers[3] % 2 == 0) {
    inference.emplace();
  }
  const at::AutoGradMode mode(records);
  std::optional<Autocast> autocast;
  if (casts_) {
    autocast.emplace();
    observed.is_rounded = true;
  }
  const std::vector<at::Tensor> results = by_sconce_ ? (*traced_)(arguments) : function(arguments);
  autocast.reset();
  at::Tensor sum;
  for (const at::Tensor& y : results) {
    observed.tensors.emplace_back("result of the function", y);
    if (y.requires_grad()) {
      sum = sum.defined() ? sum + y.pow(2).mean() : y.pow(2).mean();
    }
  }
  if (sum.defined() && numbers[3] % 4 != 0) {
    backward(sum, numbers[3] % 4 == 1);
  }
  if (!sum.defined() && !inference && !casts_) {
    keep(results.front());
  }
}

void World::mark(const Numbers& numbers) {
  at::Tensor tensor = numbers[0] % 3 == 0   ? script_.attr("mean").toTensor()
                      : numbers[0] % 3 == 1 ? script_.attr("var").toTensor()
                                            : buffers_[numbers[1] % buffers_.size()];
  if (tensor.is_leaf()) {
    tensor.set_requires_grad(!tensor.requires_grad());
  }
}

void World::clean() {
  std::vector<at::Tensor> buffers = {script_.attr("mean").toTensor(), script_.attr("var").toTensor()};
  buffers.insert(buffers.end(), buffers_.begin(), buffers_.end());
  for (at::Tensor& tensor : buffers) {
    tensor.is_leaf() ? tensor.set_requires_grad(false) : tensor.detach_();
  }
  for (const std::vector<at::Tensor>& tensors : {buffers, parameters()}) {
    std::ranges::for_each(tensors, clear_gradient);
  }
}

void World::switch_mode(const Numbers& numbers) {
  constexpr std::array kModes = {&World::is_observed_, &World::is_deterministic_, &World::casts_};
  bool World::* mode = kModes[numbers[0] % kModes.size()];
  this->*mode = !(this->*mode);
}

void World::forget_gradients(const Observed& observed) {
  for (const char* name : kTensors) {
    clear_gradient(script_.attr(name).toTensor());
  }
  clear_gradient(captured_.scale);
  clear_gradient(captured_.matrix);
  std::ranges::for_each(buffers_, clear_gradient);
  for (const auto& [name, tensor] : observed.tensors) {
    clear_gradient(tensor);
  }
  for (const auto& calls : hook_calls_) {
    *calls = 0;
  }
}

void World::forget_rounding() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < kTensors.size(); ++i) {
    script_.attr(kTensors[i]).toTensor().copy_(first_values_[i]);
  }
  forget_gradients({});
}

void World::wait(size_t index) {
  if (by_sconce_ && std::mt19937(program_.compile + index)() % 3 == 0) {
    module_->method("forward").wait_for_compiles();
    traced_->wait_for_compiles();
    step_->wait_for_compiles();
  }
}

void World::write_parameter(const Numbers& numbers) {
  const at::NoGradGuard no_grad;
  at::Tensor parameter = parameters()[numbers[0] % 3];
  switch (numbers[1] % 4) {
    case 0: parameter.mul_(0.75); break;
    case 1: parameter.data().add_(0.125); break;
    case 2: static_cast<float*>(parameter.data_ptr())[numbers[2] % kWidth] += 0.25F; break;
    default: parameter.set_data(parameter.detach().clone() * 0.5);
  }
  if (by_sconce_ && numbers[1] % 4 != 0) {
    module_->weights_changed();  // for what is not counted
  }
}

void World::write_captured(const Numbers& numbers) {
  const at::NoGradGuard no_grad;
  if (numbers[0] % 3 == 0) {
    captured_.scale.add_(0.25);
  } else if (numbers[0] % 3 == 1) {
    captured_.matrix.data().mul_(0.75);
  } else {
    captured_.scale.set_requires_grad(!captured_.scale.requires_grad());
  }
}

void World::switch_hook(const Numbers& numbers) {
  const size_t at = numbers[0] % 3;
  const at::Tensor parameter = parameters()[at];
  if (const auto found = hooks_.find(at); found != hooks_.end()) {
    parameter.remove_hook(found->second);
    hooks_.erase(found);
  } else if (parameter.requires_grad()) {
    hook_calls_.push_back(std::make_unique<int64_t>(0));
    hooks_[at] = parameter.register_hook([calls = hook_calls_.back().get()](const at::Tensor& gradient) {
      ++*calls;
      return gradient * 0.5;
    });
  }
}

}  // namespace sconce::clients
