// What sconce train computes, compared with loops of LibTorch's.
#include "tests/support/ranks.h"
#include "tests/tools/train_command.h"
#include "tools/sconce/train/batch_order.h"
#include "tools/sconce/train/checkpoint.h"
#include "tools/sconce/train/loss.h"
#include "tools/sconce/train/training.h"

#include <sconce/module.h>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adam.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <mutex>

namespace sconce::tests {
namespace {

using ::testing::HasSubstr;

using Loss = std::function<at::Tensor(const c10::IValue& output, const std::vector<at::Tensor>& targets)>;

struct LoopOptions {
  size_t steps = 0;
  size_t accumulate = 1;
  std::function<double(size_t step)> lr;
  std::function<void(const std::vector<at::Tensor>& parameters)> before_step;
};

// A loop of LibTorch's over the batches of the order, with the draws that the command's documentation names.
template <typename Optimizer>
void run_loop(torch::jit::Module& module, Optimizer& optimizer, const at::Tensor& inputs,
              const std::vector<at::Tensor>& targets, cli::BatchOrder order, const Loss& loss, const LoopOptions& options) {
  std::vector<at::Tensor> parameters;
  for (const at::Tensor& parameter : module.parameters()) {
    parameters.push_back(parameter);
  }
  module.train();
  for (cli::Progress now; now.step < options.steps; now = order.after_step(now)) {
    optimizer.zero_grad();
    for (size_t call = 0; call < options.accumulate; ++call) {
      const at::Tensor numbers = order.batch(now, call);
      cli::seed_draws(/*seed=*/0, now.step, call);
      std::vector<at::Tensor> of_batch;
      for (const at::Tensor& target : targets) {
        of_batch.push_back(target.index_select(0, numbers));
      }
      const at::Tensor value = loss(module.forward({inputs.index_select(0, numbers)}), of_batch);
      (value / static_cast<double>(options.accumulate)).backward();
    }
    if (options.before_step) {
      options.before_step(parameters);
    }
    if (options.lr) {
      for (auto& group : optimizer.param_groups()) {
        group.options().set_lr(options.lr(now.step));
      }
    }
    optimizer.step();
  }
  module.eval();
}

std::vector<at::Tensor> parameters_of(const torch::jit::Module& module) {
  std::vector<at::Tensor> parameters;
  for (const at::Tensor& parameter : module.parameters()) {
    parameters.push_back(parameter);
  }
  return parameters;
}

class TrainResults : public TrainCommand {
 protected:
  // Tensors of the written model are those of the loop's, but for rounding.
  void expect_close(const std::string& path, const torch::jit::Module& expected) const {
    const torch::jit::Module trained = torch::jit::load(path);
    for (const auto& attribute : expected.named_attributes()) {
      if (attribute.value.isTensor()) {
        const at::Tensor& value = trained.attr(attribute.name).toTensor();
        EXPECT_TRUE(at::allclose(value, attribute.value.toTensor(), 1e-4, 1e-5))
            << attribute.name << " differs by " << (value - attribute.value.toTensor()).abs().max().item<double>();
      }
    }
  }
  void run(const std::vector<std::string>& words) const {
    const ProgramResult result = sconce(words);
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }

  const at::Tensor points_ = [] {
    at::manual_seed(11);
    return at::randn({70, 4});
  }();
  const at::Tensor classes_ = at::cdist(points_, at::eye(4).slice(0, 0, 3) * 2).argmin(1);
  const std::string pair_ = write_pair(folder_, "pair.pt", points_, classes_);
};

// Dropout, batch norm, another order in each epoch, a smaller last batch.
TEST_F(TrainResults, AreThoseOfLibTorchsLoop) {
  run({"train", model_, "--data", pair_, "--loss", "cross_entropy", "--optimizer", "adam", "--lr", "0.02", "--epochs", "3",
       "--batch", "16", "--output", file("run"), "--threads", "1"});
  torch::jit::Module module = torch::jit::load(model_);
  torch::optim::Adam optimizer(parameters_of(module), torch::optim::AdamOptions(0.02));
  run_loop(module, optimizer, points_, {classes_}, cli::BatchOrder(70, {.epochs = 3, .batch = 16}, {}),
           [](const c10::IValue& output, const std::vector<at::Tensor>& targets) {
             return at::cross_entropy_loss(output.toTensor(), targets[0]);
           },
           {.steps = 15});
  expect_close(file("run/model.pt"), module);
}

// In float64, because differences of gradients enlarge rounding errors.
TEST_F(TrainResults, AreThoseOfLibTorchsLBFGS) {
  const std::string model = write_trainable(
      folder_, "mlp.pt", {{"a", at::randn({8, 4}, at::kDouble) * 0.5}, {"b", at::randn({3, 8}, at::kDouble)}}, R"(
def forward(self, x):
    return torch.linear(torch.tanh(torch.linear(x, self.a)), self.b)
)");
  const at::Tensor points = points_.to(at::kDouble);
  const std::string data = write_pair(folder_, "doubles.pt", points, classes_);
  const ProgramResult result =
      sconce({"train", model, "--data", data, "--loss", "cross_entropy", "--optimizer", "lbfgs", "--lr", "0.2", "--epochs",
              "2", "--batch", "35", "--output", file("run"), "--threads", "1", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  torch::jit::Module module = torch::jit::load(model);
  torch::optim::LBFGS optimizer(parameters_of(module), torch::optim::LBFGSOptions(0.2));
  cli::BatchOrder order(70, {.epochs = 2, .batch = 35}, {});
  double last = 0;
  for (cli::Progress now; now.step < 4; now = order.after_step(now)) {
    const at::Tensor numbers = order.batch(now, 0);
    const auto evaluate = [&] {
      optimizer.zero_grad();
      at::Tensor loss = at::cross_entropy_loss(module.forward({points.index_select(0, numbers)}).toTensor(),
                                               classes_.index_select(0, numbers));
      loss.backward();
      return loss;
    };
    last = optimizer.step(evaluate).item<double>();
  }
  expect_close(file("run/model.pt"), module);
  const auto json = json_of(result);
  EXPECT_NEAR(json["last_loss"].get<double>(), last, 1e-5);
  EXPECT_EQ(json["optimizer"]["steps"], 4);
  EXPECT_GE(json["calls_by_plan"].get<int>(), 40) << "each step evaluates the loss up to 25 times";
  EXPECT_EQ(json["calls_eager"], 0);
}

TEST_F(TrainResults, AreOfTheMethodThatIsTrained) {
  const std::string model =
      write_trainable(folder_, "methods.pt", {{"a", at::randn({3, 4}) * 0.5}, {"b", at::randn({3, 3})}}, R"(
def forward(self, x):
    return torch.linear(torch.linear(x, self.a), self.b)
def scores(self, x):
    return torch.linear(torch.tanh(x), self.a)
)");
  const std::vector<std::string> words = {"train", model, "--data", pair_, "--validation", pair_, "--threads", "1"};
  std::vector<std::string> begin = words;
  begin.insert(begin.end(), {"--method", "scores", "--loss", "cross_entropy", "--optimizer", "sgd", "--lr", "0.1",
                             "--epochs", "2", "--batch", "16", "--output", file("run"), "--max-steps", "7"});
  run(begin);
  std::vector<std::string> resume = words;
  resume.insert(resume.end(), {"--resume", file("run/checkpoint.pt"), "--json"});
  const ProgramResult resumed = sconce(resume);  // the method is that of the checkpoint
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  torch::jit::Module module = torch::jit::load(model);
  torch::optim::SGD optimizer(parameters_of(module), torch::optim::SGDOptions(0.1));
  cli::BatchOrder order(70, {.epochs = 2, .batch = 16}, {});
  for (cli::Progress now; now.step < 10; now = order.after_step(now)) {
    const at::Tensor numbers = order.batch(now, 0);
    optimizer.zero_grad();
    at::cross_entropy_loss(module.get_method("scores")({points_.index_select(0, numbers)}).toTensor(),
                           classes_.index_select(0, numbers))
        .backward();
    optimizer.step();
  }
  expect_close(file("run/model.pt"), module);
  const double loss = at::cross_entropy_loss(module.get_method("scores")({points_}).toTensor(), classes_).item<double>();
  EXPECT_NEAR(json_of(resumed)["validation_losses"][1].get<double>(), loss, 1e-5);
  resume.back() = "--method";
  resume.emplace_back("forward");
  expect_usage_error(resume, R"(--method: is "forward", and the checkpoint's training has "scores")");
}

TEST_F(TrainResults, FollowSchedulesClippingAndAccumulation) {
  run({"train",       model_,   "--data",       pair_,       "--loss",     "cross_entropy",
       "--optimizer", "sgd",    "--lr",         "0.2",       "--epochs",   "4",
       "--batch",     "8",      "--accumulate", "2",         "--momentum", "0.9",
       "--schedule",  "linear", "--min-lr",     "0.02",      "--warmup",   "3",
       "--clip-norm", "0.3",    "--output",     file("run"), "--threads",  "1"});
  torch::jit::Module module = torch::jit::load(model_);
  torch::optim::SGD optimizer(parameters_of(module), torch::optim::SGDOptions(0.2).momentum(0.9));
  constexpr size_t kSteps = 16;  // four epochs of nine batches, of which the last is left out
  run_loop(module, optimizer, points_, {classes_}, cli::BatchOrder(70, {.epochs = 4, .batch = 8, .accumulate = 2}, {}),
           [](const c10::IValue& output, const std::vector<at::Tensor>& targets) {
             return at::cross_entropy_loss(output.toTensor(), targets[0]);
           },
           {.steps = kSteps,
            .accumulate = 2,
            .lr =
                [](size_t step) {
                  const double at = (static_cast<double>(step) - 3) / (kSteps - 3);
                  return step < 3 ? 0.2 * static_cast<double>(step + 1) / 3 : 0.2 + (0.02 - 0.2) * at;
                },
            .before_step = [](const std::vector<at::Tensor>& all) { torch::nn::utils::clip_grad_norm_(all, 0.3); }});
  expect_close(file("run/model.pt"), module);
}

TEST_F(TrainResults, MayChangeLearningRatesWhenTheyGoOn) {
  run({"train",     model_, "--data",      pair_,      "--loss", "cross_entropy", "--optimizer", "sgd",      "--momentum",
       "0.9",       "--lr", "0.2",         "--epochs", "3",      "--batch",       "16",          "--output", file("run"),
       "--threads", "1",    "--max-steps", "7"});
  const ProgramResult resumed = sconce({"train", model_, "--data", pair_, "--resume", file("run/checkpoint.pt"), "--lr",
                                        "0.01", "--threads", "1", "--clip-value", "0.05"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(resumed.err, "") << "such changes are free";
  torch::jit::Module module = torch::jit::load(model_);
  torch::optim::SGD optimizer(parameters_of(module), torch::optim::SGDOptions(0.2).momentum(0.9));
  size_t step = 0;
  run_loop(module, optimizer, points_, {classes_}, cli::BatchOrder(70, {.epochs = 3, .batch = 16}, {}),
           [](const c10::IValue& output, const std::vector<at::Tensor>& targets) {
             return at::cross_entropy_loss(output.toTensor(), targets[0]);
           },
           {.steps = 15,
            .lr = [](size_t number) { return number < 7 ? 0.2 : 0.01; },
            .before_step =
                [&step](const std::vector<at::Tensor>& all) {
                  if (step++ >= 7) {
                    torch::nn::utils::clip_grad_value_(all, 0.05);
                  }
                }});
  expect_close(file("run/model.pt"), module);
}

constexpr const char* kTwoResults = R"(
def forward(self, x):
    h = torch.tanh(torch.linear(x, self.a))
    return torch.linear(h, self.b), torch.linear(h, self.c).squeeze(1)
)";

TEST_F(TrainResults, AreOfTheSumOfSeveralLosses) {
  const std::string model = write_trainable(
      folder_, "two.pt", {{"a", at::randn({8, 4})}, {"b", at::randn({3, 8})}, {"c", at::randn({1, 8})}}, kTwoResults);
  const at::Tensor values = points_.sum(1);
  const std::string data = write_pair(folder_, "two_targets.pt", points_, c10::ivalue::Tuple::create({classes_, values}));
  const std::vector<std::string> common = {"train",     model,  "--data",       data, "--optimizer", "sgd",
                                           "--lr",      "0.05", "--epochs",     "2",  "--batch",     "16",
                                           "--threads", "1",    "--validation", data, "--metric",    "accuracy"};
  std::vector<std::string> words = common;
  words.insert(words.end(), {"--loss", "cross_entropy", "--loss", "mse:0.25", "--output", file("run")});
  run(words);
  const Loss sum = [](const c10::IValue& output, const std::vector<at::Tensor>& targets) {
    const auto& both = output.toTupleRef().elements();
    return at::cross_entropy_loss(both[0].toTensor(), targets[0]) + 0.25 * at::mse_loss(both[1].toTensor(), targets[1]);
  };
  torch::jit::Module module = torch::jit::load(model);
  torch::optim::SGD optimizer(parameters_of(module), torch::optim::SGDOptions(0.05));
  run_loop(module, optimizer, points_, {classes_, values}, cli::BatchOrder(70, {.epochs = 2, .batch = 16}, {}), sum,
           {.steps = 10});
  expect_close(file("run/model.pt"), module);

  // The same loss as a script, which takes the results one by one or as a tuple.
  for (const char* taken :
       {"a: Tensor, b: Tensor, y: Tensor, z: Tensor", "both: Tuple[Tensor, Tensor], y: Tensor, z: Tensor"}) {
    torch::jit::Module script("Loss");
    const std::string take = std::string(taken).starts_with("both") ? "    a, b = both\n" : "";
    script.define("def forward(self, " + std::string(taken) + "):\n" + take +
                  "    return torch.cross_entropy_loss(a, y) + 0.25 * torch.mse_loss(b, z)\n");
    script.save(file("loss.pt"));
    words = common;
    words.insert(words.end(), {"--loss-module", file("loss.pt"), "--output", file("script"), "--overwrite"});
    run(words);
    expect_close(file("script/model.pt"), module);
  }

  // Metrics of both results; with a script, targets tell of which kind they are.
  words = common;
  words.insert(words.end(), {"--loss", "cross_entropy", "--loss", "mse:0.25", "--output", file("run"), "--overwrite",
                             "--metric", "rmse@1", "--monitor", "rmse@1", "--json"});
  const ProgramResult measured = sconce(words);
  ASSERT_EQ(measured.exit_code, 0) << measured.err;
  torch::jit::Module trained = torch::jit::load(file("run/model.pt"));
  const auto both = trained.forward({points_}).toTupleRef().elements().vec();
  const double rmse = at::mse_loss(both[1].toTensor(), values).sqrt().item<double>();
  EXPECT_NEAR(json_of(measured)["metrics"]["rmse@1"][1].get<double>(), rmse, 1e-4 * rmse);
  EXPECT_EQ(json_of(measured)["best"]["monitor"], "rmse@1");
  EXPECT_EQ(json_of(measured)["best"]["value"], json_of(measured)["metrics"]["rmse@1"][1]) << "less is better";
  EXPECT_THAT(read_file(file("run/epochs.csv")), ::testing::StartsWith("epoch,step,loss,validation_loss,accuracy,rmse@1\n"));
  words = common;
  words.insert(words.end(), {"--loss", "cross_entropy", "--loss", "mse", "--output", file("bad"), "--metric", "f1@1"});
  expect_usage_error(words, "--metric f1@1: takes classes, and targets of mse are values");
  words.back() = "rmse@2";
  expect_usage_error(words, "--metric rmse@2: there is no result 2 of the model; there are 2 --loss");
  words = common;
  words.insert(words.end(), {"--loss-module", file("loss.pt"), "--output", file("bad"), "--metric", "rmse@2"});
  expect_usage_error(words, "--metric rmse@2: there is no target 2; the data have 2, counted from 0");

  words = common;
  words.insert(words.end(), {"--loss", "cross_entropy", "--output", file("bad")});
  expect_usage_error(words, "--loss: the model returns 2 tensors, the data have 2 targets, and there is 1 --loss");
  words.insert(words.end(), {"--loss", "mse:0"});
  expect_usage_error(words, "--loss mse:0: the weight after the colon must be a number above 0");
  words.back() = "msee";
  expect_usage_error(words, "--loss: there is no 'msee'; did you mean 'mse'?");
  words.back() = "mse";
  words.insert(words.end(), {"--loss-module", file("loss.pt")});
  expect_usage_error(words, "--loss-module: is the whole loss; leave out --loss");
}

// As interatomic potentials do: the loss of energies and of forces, which are gradients.
TEST_F(TrainResults, AreOfModelsThatTakeGradients) {
  const std::string model =
      write_trainable(folder_, "forces.pt", {{"a", at::randn({8, 4}) * 0.5}, {"b", at::randn({1, 8})}}, R"(
def forward(self, x):
    y = x.detach().requires_grad_(True)
    energy = torch.linear(torch.tanh(torch.linear(y, self.a)), self.b).squeeze(1)
    ones: List[Optional[Tensor]] = [torch.ones_like(energy)]
    gradient = torch.autograd.grad([energy], [y], ones, create_graph=True)[0]
    assert gradient is not None
    return energy, -gradient
)");
  const std::string data =
      write_pair(folder_, "forces_data.pt", points_, c10::ivalue::Tuple::create({points_.sum(1), at::ones({70, 4})}));
  const ProgramResult result =
      sconce({"train", model, "--data", data, "--validation", data, "--loss", "mse", "--loss", "mse", "--optimizer", "adam",
              "--epochs", "2", "--output", file("run"), "--metric", "mae", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  torch::jit::Module trained = torch::jit::load(file("run/model.pt"));
  const auto both = trained.forward({points_}).toTupleRef().elements().vec();
  const double loss =
      (at::mse_loss(both[0].toTensor(), points_.sum(1)) + at::mse_loss(both[1].toTensor(), at::ones({70, 4})))
          .item<double>();
  EXPECT_NEAR(json_of(result)["validation_losses"][1].get<double>(), loss, 1e-4 * loss);
  const double mae = at::l1_loss(both[0].toTensor(), points_.sum(1)).item<double>();
  EXPECT_NEAR(json_of(result)["metrics"]["mae"][1].get<double>(), mae, 1e-4 * mae);
}

// ---- Validation ---------------------------------------------------------------------------------------------------------

TEST_F(TrainResults, MetricsAreOfTheTrainedModel) {
  const ProgramResult result =
      sconce(classify("run", {"--validation", pair_, "--metric", "accuracy", "--metric", "f1", "--json"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto json = json_of(result);
  torch::jit::Module trained = torch::jit::load(file("run/model.pt"));
  const at::Tensor output = trained.forward({points_}).toTensor();
  EXPECT_NEAR(json["metrics"]["accuracy"][3].get<double>(),
              output.argmax(1).eq(classes_).to(at::kDouble).mean().item<double>(), 1e-9);
  EXPECT_NEAR(json["validation_losses"][3].get<double>(), at::cross_entropy_loss(output, classes_).item<double>(), 1e-5);
  EXPECT_THAT(read_file(file("run/epochs.csv")), ::testing::StartsWith("epoch,step,loss,validation_loss,accuracy,f1\n1,5,"));
  EXPECT_THAT(read_file(file("run/report.html")), HasSubstr("accuracy by step"));
}

// Three ranks evaluate a third each.
TEST_F(TrainResults, EvaluationsOfRanksAddUpToThatOfOne) {
  const auto data = cli::open_data({.data = {pair_}}, "--data");
  const cli::TrainSettings settings{
      .loss = {"cross_entropy"}, .optimizer = "sgd", .epochs = 1, .batch = 8, .metric = {"accuracy", "f1"}};
  const auto evaluate = [&](const cli::Ranks& ranks) {
    return cli::Training(load(model_), data, settings, cli::sum_of_losses(cli::loss_parts(settings.loss)), ranks)
        .evaluate(*data);
  };
  const cli::Evaluation whole = evaluate({});
  std::mutex mutex;
  testing::run_all_ranks(3, [&](const DataParallel& group) {
    const cli::Evaluation found = evaluate(cli::Ranks(group));
    const std::lock_guard lock(mutex);
    EXPECT_NEAR(found.loss(), whole.loss(), 1e-6);
    for (size_t i = 0; i < settings.metric.size(); ++i) {
      EXPECT_EQ(found.metrics()[i].second, whole.metrics()[i].second) << settings.metric[i];
    }
  });
}

// The best model is that of a training that ends with the best epoch.
TEST_F(TrainResults, KeepTheBestModelAndEndEarly) {
  const std::vector<std::string> options = {"--lr", "0.3", "--validation-split", "0.2", "--metric", "accuracy"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), options.begin(), options.end());
    return more;
  };
  for (const char* monitor : {"validation_loss", "accuracy"}) {
    const std::string name = std::string("run_") + monitor;
    const ProgramResult result =
        sconce(classify(name, with({"--epochs", "200", "--early-stopping", "3", "--monitor", monitor, "--json"})));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const auto json = json_of(result);
    ASSERT_EQ(json["stopped_early"], true) << result.out;
    EXPECT_EQ(json["complete"], true);
    const auto& values = monitor == std::string("accuracy") ? json["metrics"]["accuracy"] : json["validation_losses"];
    ASSERT_TRUE(json["best"].is_object()) << result.out;
    const size_t epoch = json["best"]["epoch"].get<size_t>();
    EXPECT_EQ(values.size(), epoch + 3);
    for (const auto& value : values) {
      if (monitor == std::string("accuracy")) {
        EXPECT_LE(value.get<double>(), json["best"]["value"].get<double>());
      } else {
        EXPECT_GE(value.get<double>(), json["best"]["value"].get<double>());
      }
    }
    ASSERT_EQ(sconce(classify("short", with({"--epochs", std::to_string(epoch), "--overwrite"}))).exit_code, 0);
    expect_equal_models("short/model.pt", name + "/best.pt");
    // It has ended, and does so again.
    const ProgramResult again =
        sconce({"train", model_, "--data", data_, "--resume", file(name + "/checkpoint.pt"), "--json"});
    EXPECT_EQ(json_of(again)["steps_done"], json["steps_done"]) << again.err;
    const ProgramResult longer = sconce({"train", model_, "--data", data_, "--resume", file(name + "/checkpoint.pt"),
                                         "--early-stopping", "0", "--epochs", std::to_string(epoch + 5), "--json"});
    EXPECT_EQ(json_of(longer)["epoch_losses"].size(), epoch + 5) << longer.err;
  }
}

// ---- Event files
// ----------------------------------------------------------------------------------------------------------

// The definition, bit by bit.
uint32_t crc32c(const std::string& bytes) {
  uint32_t rest = 0xffffffff;
  for (const char byte : bytes) {
    rest ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) {
      rest = (rest & 1) != 0 ? (rest >> 1) ^ 0x82f63b78 : rest >> 1;
    }
  }
  return ~rest;
}

template <typename Number>
Number number_at(const std::string& bytes, size_t place) {
  Number number = 0;
  std::memcpy(&number, bytes.substr(place, sizeof number).data(), sizeof number);
  return number;
}

std::vector<std::string> events_in(const std::string& bytes) {
  const auto masked = [](uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8; };
  std::vector<std::string> events;
  for (size_t place = 0; place < bytes.size();) {
    const auto length = number_at<uint64_t>(bytes, place);
    EXPECT_EQ(number_at<uint32_t>(bytes, place + 8), masked(crc32c(bytes.substr(place, 8))));
    events.push_back(bytes.substr(place + 12, length));
    EXPECT_EQ(number_at<uint32_t>(bytes, place + 12 + length), masked(crc32c(events.back())));
    place += 16 + length;
  }
  return events;
}

TEST_F(TrainResults, AreEventsOfTensorBoard) {
  ASSERT_EQ(crc32c("123456789"), 0xe3069283);
  const ProgramResult result = sconce(classify("run", {"--tensorboard", "--validation-split", "0.2", "--json"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto json = json_of(result);
  const std::vector<std::string> events = events_in(read_file(json["files"]["events"].get<std::string>()));
  // Wall time: field 1, 64 bits. Step: field 2. Then the version: field 3, or a summary: field 5, of values: field 1, each
  // of which has a tag: field 1, and a float: field 2.
  EXPECT_EQ(events[0].substr(9), std::string("\x10\x00\x1a\x0d", 4) + "brain.Event:2");
  ASSERT_EQ(events.size(), 2U + 16 + 4 * 2);
  const std::string& first = events[2];
  EXPECT_EQ(first.substr(9, 12), std::string("\x10\x01\x2a\x0d\x0a\x0b\x0a\x04loss", 12));
  EXPECT_EQ(first[21], 0x15);
  EXPECT_EQ(number_at<float>(first, 22), json["first_loss"].get<float>());
  const std::string& last = events.back();
  EXPECT_THAT(last, HasSubstr("epoch/validation_loss\x15"));
  EXPECT_EQ(last[10], 16) << "the step";
  EXPECT_EQ(number_at<float>(last, last.size() - 4), json["validation_losses"][3].get<float>());
}

TEST_F(TrainResults, NameWhatIsWrongWithTheValidation) {
  expect_usage_error(classify("x", {"--metric", "accuracy"}),
                     "--metric: is measured on other examples; name them with --validation, or keep some");
  expect_usage_error(classify("x", {"--early-stopping", "2"}), "--early-stopping: is measured on other examples");
  expect_usage_error(classify("x", {"--validation-split", "0.1", "--validation", data_}),
                     "--validation-split: --validation names the examples");
  expect_usage_error(classify("x", {"--validation-split", "0.1", "--monitor", "f1"}),
                     "--monitor f1: is neither validation_loss nor a --metric");
  expect_usage_error(classify("x", {"--validation-split", "0.1", "--metric", "top5"}), "--metric top5: the model has 3");
  expect_usage_error(classify("x", {"--validation-split", "0.1", "--metric", "rmse"}),
                     "--metric rmse: the model returns float32[7, 3] for targets int64[7]");
  expect_usage_error(classify("x", {"--validation-split", "0.001"}), "--validation-split: of 70 examples, 0 are for");
  expect_usage_error(classify("x", {"--schedule", "one_cycle", "--warmup", "3"}), "--warmup: one_cycle has a rise");
  expect_usage_error(classify("x", {"--min-lr", "0.1"}), "--min-lr: 'constant' has none");
  EXPECT_FALSE(std::filesystem::exists(file("x/checkpoint.pt")));
}

}  // namespace
}  // namespace sconce::tests
