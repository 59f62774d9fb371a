#include "tests/clients/client_world.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
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
#include <string_view>

namespace sconce::clients {
namespace {

constexpr std::array kModels = {
    "def forward(self, x):\n    return torch.tanh(torch.linear(x, self.w, self.b)) * self.scale\n",
    "def forward(self, x):\n"
    "    h = torch.batch_norm(torch.linear(x, self.w), self.b, self.b, self.mean, self.var, self.training, 0.1, 1e-5, "
    "True)\n"
    "    return torch.relu(h) + torch.linear(x, self.v)\n",
    "def forward(self, x):\n"
    "    self.count = self.count + 1\n"
    "    return torch.linear(x, self.w, self.b) * self.scale + self.count\n",
    "def forward(self, x):\n"
    "    h = torch.zeros_like(x)\n"
    "    for i in range(4):\n"
    "        if i % 2 == 0:\n"
    "            h = torch.tanh(torch.linear(x, self.w) + torch.mm(h, self.v))\n"
    "        else:\n"
    "            h = h * torch.sigmoid(h + self.b)\n"
    "    return h\n",
    "def forward(self, x):\n    return torch.linear(torch.dropout(x, 0.25, self.training), self.w, self.b) - self.mean\n",
    "def forward(self, x):\n"
    "    h = torch.mm(x, self.w)\n"
    "    h[:, 0] = 1.0\n"
    "    h.add_(self.b)\n"
    "    self.mean.mul_(0.9).add_(h.detach().mean(0), alpha=0.1)\n"
    "    return h * torch.sigmoid(torch.linear(x, self.v))\n",
    "def forward(self, x):\n"
    "    assert self.scale < 2.0, 'the scale is too large'\n"
    "    y = torch.linear(x, self.w, self.b).transpose(0, 1).contiguous().transpose(0, 1)\n"
    "    return torch.layer_norm(y, [6], self.b, self.mean) * self.scale\n",
    // Those below read sizes.
    "def forward(self, x):\n"
    "    n, f = x.shape\n"
    "    h = torch.linear(x, self.w, self.b).view(n, 2, -1).transpose(1, 2).reshape(x.shape)\n"
    "    if n > 4:\n"
    "        h = h * 2\n"
    "    return h / max(n, 3) + (n - f) * self.scale\n",
    "def forward(self, x):\n"
    "    k = x.size(0) // 2\n"
    "    h = torch.cat([torch.mm(x[k:], self.w), torch.mm(x[:k], self.v)])\n"
    "    mask = torch.ones(x.size(0), x.size(0)).tril()\n"
    "    return torch.mm(mask, h) * (1.0 / (x.numel() + 1)) + torch.arange(x.size(0) * 2)[::2].unsqueeze(1)\n",
    "def forward(self, x):\n"
    "    s = x.size()[1:] + [x.size(0)]\n"
    "    h = torch.mm(x, self.w).t().reshape(s).t()\n"
    "    rows: List[Tensor] = []\n"
    "    for i in range(min(x.size(0), 3)):\n"
    "        rows.append(h[i] * float(i + x.size(0)) ** 0.5)\n"
    "    if len(rows) > 0:\n"
    "        h = h + torch.stack(rows).sum(0)\n"
    "    self.count = self.count + x.size(0) % 3\n"
    "    return torch.softmax(torch.mm(h, self.v) + self.b, 1) * self.scale\n",
    "def forward(self, x):\n"
    "    h = torch.linear(x, self.w, self.b).clone()\n"
    "    h[x.size(0) // 3:] += self.mean\n"
    "    q = h.view(1, x.size(0), 2, 3).permute(0, 2, 1, 3)\n"
    "    y = torch.scaled_dot_product_attention(q, q, q).permute(0, 2, 1, 3).reshape(x.size(0), 6)\n"
    "    a, b = torch.linear(y, self.v).chunk(2, 1)\n"
    "    return torch.cat([a * torch.sigmoid(b), b], 1)\n",
};

torch::jit::Module make_module(uint32_t model) {
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
  module.define(kModels[model % kModels.size()]);
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
  return text.substr(0, text.find(" (in %"));
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

}  // namespace

World::World(const ClientProgram& program, bool by_sconce)
    : program_(program), by_sconce_(by_sconce), script_(make_module(program.model)) {
  optimizer_ = make_optimizer(program.optimizer, parameters());
  at::manual_seed(12);
  captured_.scale = at::randn({kWidth}).set_requires_grad(true);
  captured_.matrix = (at::randn({kWidth, kWidth}) * 0.4).set_requires_grad(true);
  captured_.table = {1, 2, 3, 4, 5, 6};
  for (int64_t n = 0; n < 8; ++n) {
    buffers_.push_back(at::randn({n, kWidth}));
  }
  if (by_sconce_) {
    const Options options = Options().compile(CompileMode::kBlocking);
    module_ = accelerate(script_, options);
    traced_ = trace([this](const std::vector<at::Tensor>& arguments) { return function(arguments); }, options);
    backwards_.emplace(options);
    const TrainStep::Loss loss = [this](const at::Tensor& y, const at::Tensor& target) { return loss_of(y, target); };
    step_ = std::make_unique<TrainStep>(*module_, loss, *optimizer_, step_options(program.options));
  }
  generator_state_ = generator().get_state();
}

World::~World() = default;

std::vector<at::Tensor> World::parameters() const {
  return {script_.attr("w").toTensor(), script_.attr("v").toTensor(), script_.attr("b").toTensor()};
}

uint64_t World::runs_by_plan() const {
  uint64_t runs = step_->explain().by_plan;
  for (const TraceExplanation::Trace& each : traced_->explain().traces) {
    runs += each.plan ? each.calls - 1 : 0;
  }
  return runs;
}

Observed World::run(const Statement& statement, size_t index) {
  Observed observed;
  generator().set_state(generator_state_);
  torch::autograd::AnomalyMode::set_enabled(is_anomaly_, /*check_nan=*/false);
  try {
    do_statement(statement, index, observed);
  } catch (const std::exception& error) {
    observed.error = message_of(error);
  }
  torch::autograd::AnomalyMode::set_enabled(false);
  generator_state_ = generator().get_state();
  const auto see = [&](const std::string& name, const at::Tensor& tensor) { observed.tensors.emplace_back(name, tensor); };
  for (const char* name : {"w", "v", "b", "mean", "var"}) {
    see(name, script_.attr(name).toTensor());
    see(std::string("gradient of ") + name, script_.attr(name).toTensor().grad());
  }
  see("scale of the function", captured_.scale);
  see("gradient of the function's scale", captured_.scale.grad());
  see("gradient of the function's matrix", captured_.matrix.grad());
  see("state of the generator", generator_state_);
  for (const at::Tensor& buffer : buffers_) {
    see("buffer of " + std::to_string(buffer.size(0)) + " rows", buffer);
  }
  for (const at::Tensor& result : results_) {
    see("earlier result", result);
  }
  observed.numbers.emplace_back("count", script_.attr("count").toInt());
  for (const auto& calls : hook_calls_) {
    observed.numbers.emplace_back("calls of a hook", *calls);
  }
  return observed;
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
  }
}

// Rows that the caller refills, or new ones.
at::Tensor World::rows(uint32_t number, size_t index) {
  constexpr std::array kFewSizes = {4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 2, 2, 3, 1, 5, 0};
  constexpr std::array kManySizes = {4, 4, 4, 5, 5, 6, 6, 7, 7, 3, 3, 2, 2, 1, 4, 0};
  const int64_t n = (program_.results / 8 % 2 == 0 ? kFewSizes : kManySizes)[number % 16];
  if ((number >> 4) % 2 == 0) {
    return buffers_[static_cast<size_t>(n)];
  }
  const at::Tensor state = generator().get_state();
  at::manual_seed(100 + index);
  const at::Tensor fresh = at::randn({n, kWidth});
  generator().set_state(state);
  return fresh;
}

at::Tensor World::forward(const at::Tensor& x) {
  if (by_sconce_) {
    return module_->forward({x}).toTensor();
  }
  torch::jit::setGraphExecutorOptimize(false);  // no gradients but autograd's
  struct Restore {
    ~Restore() { torch::jit::setGraphExecutorOptimize(true); }
  } const restore;
  return script_.forward({x}).toTensor();
}

at::Tensor World::loss_of(const at::Tensor& y, const at::Tensor& target) const {
  at::Tensor value = y;
  for (const uint32_t operation : program_.loss) {
    value = apply_operation(operation, value, target, captured_);
  }
  return (value - target).pow(2).mean();
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
  const at::Tensor x = rows(numbers[0], index);
  const uint32_t mode = numbers[1] % 5;
  at::Tensor y;
  if (mode == 0) {
    const at::NoGradGuard no_grad;
    y = forward(x);
  } else if (mode == 1) {
    const c10::InferenceMode inference;
    y = forward(x).clone();
  } else {
    y = forward(x);
    if (mode > 2 && y.requires_grad()) {
      backward(y.pow(2).mean(), mode == 4);
    }
  }
  observed.tensors.emplace_back("result of the module", y);
  if (mode == 0) {
    keep(y);
  }
}

void World::train_step(const Numbers& numbers, size_t index, Observed& observed) {
  const at::Tensor x = rows(numbers[0], index);
  const at::Tensor target = rows((numbers[0] & 15) | 16, index + 1000);
  at::Tensor loss;
  if (by_sconce_) {
    loss = (*step_)({x}, {target});
  } else {
    const TrainOptions options = step_options(program_.options);
    optimizer_->zero_grad();
    try {
      const at::AutoGradMode with_gradients(true);
      const auto is_trained = [](const at::Tensor& parameter) { return parameter.requires_grad(); };
      const std::vector<at::Tensor> trained = parameters();
      TORCH_CHECK(std::any_of(trained.begin(), trained.end(), is_trained),
                  "the optimizer has no parameter that requires a gradient");
      loss = loss_of(forward(x), target);
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
  const at::Tensor loss = loss_of(forward(x), target);
  if (loss.requires_grad()) {
    backward(loss, numbers[2] % 2 == 0);
    optimizer_->step();
  }
  observed.tensors.emplace_back("loss", loss);
}

void World::traced_call(const Numbers& numbers, size_t index, Observed& observed) {
  // Arguments are new, but for buffers of the caller that require no gradient.
  std::vector<at::Tensor> arguments = {rows(numbers[0], index), rows((numbers[0] & 15) | 16, index + 1000)};
  at::Tensor leaf;
  constexpr std::array kForms = {1, 1, 1, 1, 0, 2, 3, 4, 5, 5};
  const int form = kForms[numbers[1] % kForms.size()];
  if (form > 0 && form < 5) {
    leaf = arguments[0].detach().clone().set_requires_grad(true);
    arguments[0] = form == 1 ? leaf : form == 2 ? leaf * 1.0 : form == 3 ? leaf.t().contiguous().t() : leaf.view_as(leaf);
  }
  if (numbers[2] % 8 == 0 && arguments[1].size(0) > 0) {
    arguments[1] = arguments[1].select(0, 0);
  } else if (numbers[2] % 8 == 1) {
    arguments[1] = arguments[1].detach().clone().set_requires_grad(true);
  }
  const bool records = form != 5;
  std::optional<c10::InferenceMode> inference;
  if (!records && numbers[3] % 2 == 0) {
    inference.emplace();
  }
  const at::AutoGradMode mode(records);
  const std::vector<at::Tensor> results = by_sconce_ ? (*traced_)(arguments) : function(arguments);
  at::Tensor sum;
  for (const at::Tensor& y : results) {
    observed.tensors.emplace_back("result of the function", y);
    if (y.requires_grad()) {
      sum = sum.defined() ? sum + y.pow(2).mean() : y.pow(2).mean();
    }
  }
  observed.tensors.emplace_back("second argument", arguments[1]);
  if (sum.defined() && numbers[3] % 4 != 0) {
    backward(sum, numbers[3] % 4 == 1);
    observed.tensors.emplace_back("gradient of the argument", leaf.defined() ? leaf.grad() : at::Tensor());
    observed.tensors.emplace_back("gradient of the second argument",
                                  arguments[1].is_leaf() ? arguments[1].grad() : at::Tensor());
  }
  if (!sum.defined() && !inference) {
    keep(results.front());
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
