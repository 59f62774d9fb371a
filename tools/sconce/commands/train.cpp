// sconce train: trains a model on a file of examples.
#include "base/exception_message.h"
#include "base/nearest_name.h"
#include "tools/sconce/commands/commands.h"
#include "tools/sconce/commands/device.h"
#include "tools/sconce/commands/missing_kernels.h"
#include "tools/sconce/commands/model_options.h"
#include "tools/sconce/report/errors.h"
#include "tools/sconce/train/loop.h"
#include "tools/sconce/train/loss.h"
#include "tools/sconce/train/metric.h"
#include "tools/sconce/train/training.h"
#include "tools/sconce/ui/interruption.h"

#include <cstdlib>
#include <filesystem>
#include <iostream>

namespace sconce::cli {
namespace {

struct TrainCommand {
  CommonOptions common;
  TrainSettings settings;
  std::string model;
  DataFiles data;
  DataFiles validation;
  std::string resume;
  std::string output;
  size_t checkpoint_every = 0;
  size_t max_steps = 0;
  bool overwrite = false;
  bool tensorboard = false;
  std::string vocabulary;
  bool progress = false;
  const CLI::App* parser = nullptr;  // tells which options were given

  bool has(const std::string& option) const { return parser->get_option("--" + option)->count() > 0; }
};

constexpr const char* kResumeAuto = "auto";

// Whether an agent, torchrun, has started the process again after a failure.
bool is_restarted() {
  const char* const count = std::getenv("TORCHELASTIC_RESTART_COUNT");
  return count != nullptr && std::atoi(count) > 0;
}

std::filesystem::path folder_for(const TrainCommand& command) {
  if (!command.output.empty()) {
    return command.output;
  }
  const bool is_file = !command.resume.empty() && command.resume != kResumeAuto;
  const std::filesystem::path beside = is_file ? std::filesystem::path(command.resume).parent_path() : "";
  return !beside.empty() ? beside : is_file ? "." : std::filesystem::path(command.model).stem().concat("-train");
}

// Returns the checkpoint to go on from, or an empty path.
std::string checkpoint_for(const TrainCommand& command, const TrainFolder& folder) {
  const bool is_auto = command.resume == kResumeAuto;
  if (command.overwrite && is_auto) {
    throw UserError("--overwrite: starts again, and --resume auto goes on; leave out one of them");
  }
  if ((is_auto || is_restarted()) && std::filesystem::exists(folder.checkpoint())) {
    return folder.checkpoint();
  }
  return is_auto ? "" : command.resume;
}

// Returns the settings of the command line, or those of the checkpoint with the changes of the command line. Says on stderr
// what changes the training, in the first process.
TrainSettings settings_for(const TrainCommand& command, const std::optional<Checkpoint>& checkpoint, bool is_first) {
  TrainSettings given = command.settings;
  given.autocast = command.common.autocast;
  if (checkpoint) {
    std::vector<std::string> told;
    given =
        changed_settings(checkpoint->settings, given, [&](const std::string& option) { return command.has(option); }, told);
    expect_valid(given);
    for (const std::string& change : is_first ? told : std::vector<std::string>()) {
      std::cerr << "sconce: goes on with another setting: " << change << std::endl;
    }
    return given;
  }
  for (const char* option : {"loss", "optimizer", "epochs"}) {
    if (!command.has(option) && !(option == std::string("loss") && command.has("loss-module"))) {
      throw UserError(std::string("--") + option + " is missing (see 'sconce train --help')");
    }
  }
  expect_valid(given);
  return given;
}

struct TrainAndValidation {
  std::shared_ptr<const DataSource> training;
  std::shared_ptr<const DataSource> validation;  // may be null
};

TrainAndValidation data_for(const TrainCommand& command, const TrainSettings& settings) {
  const bool has_validation = !command.validation.data.empty();
  if (!has_validation && settings.validation_split == 0) {
    const char* const option = !settings.metric.empty()      ? "--metric"
                               : settings.early_stopping > 0 ? "--early-stopping"
                               : command.has("monitor")      ? "--monitor"
                                                             : nullptr;
    if (option != nullptr) {
      throw UserError(std::string(option) +
                      ": is measured on other examples; name them with --validation, or keep some of "
                      "--data with --validation-split 0.1");
    }
  }
  if (has_validation && settings.validation_split > 0) {
    throw UserError("--validation-split: --validation names the examples; leave out one of them");
  }
  if (!has_validation && !command.validation.targets.empty()) {
    throw UserError("--validation-targets: --validation is missing");
  }
  std::shared_ptr<const DataSource> data = open_data(command.data, "--data");
  if (settings.validation_split > 0) {
    SplitData parts = split_data(std::move(data), settings.validation_split, settings.seed);
    return {std::move(parts.training), std::move(parts.validation)};
  }
  std::shared_ptr<const DataSource> validation;
  if (has_validation) {
    validation = open_data(command.validation, "--validation");
    if (validation->targets() != data->targets()) {
      throw UserError(command.validation.data.front() + ": has " + std::to_string(validation->targets()) +
                      " targets, and --data has " + std::to_string(data->targets()));
    }
  }
  return {std::move(data), std::move(validation)};
}

TrainStep::GeneralLoss loss_for(const TrainSettings& settings, const Options& options) {
  if (settings.loss_module.empty()) {
    return sum_of_losses(loss_parts(settings.loss));
  }
  const Module module = load_model(settings.loss_module, options);
  expect_method(module.script_module(), "forward");
  return loss_of_module(module, settings.loss_module);
}

std::string shell_word(const std::string& word) {
  if (word.find_first_of(" \t'\"\\$&;()<>|*?`#~") == std::string::npos) {
    return word;
  }
  std::string quoted = "'";
  for (const char c : word) {
    quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return quoted + "'";
}

// Returns the command that goes on from the checkpoint.
std::string resume_command(const TrainCommand& command, const std::string& checkpoint, const Placement& placement) {
  std::string text = "sconce train " + shell_word(command.model);
  if (placement.world > 1) {
    text = "torchrun --no-python --nproc-per-node " + std::to_string(placement.world) + " " + text;
  }
  const auto add = [&text](const char* option, const std::string& value) {
    text += value.empty() ? "" : std::string(" ") + option + " " + shell_word(value);
  };
  const auto add_all = [&add](const char* option, const std::vector<std::string>& values) {
    for (const std::string& value : values) {
      add(option, value);
    }
  };
  add_all("--data", command.data.data);
  add_all("--targets", command.data.targets);
  add_all("--validation", command.validation.data);
  add_all("--validation-targets", command.validation.targets);
  add("--device", command.common.device);
  add("--intra-op", command.common.intra_op == 0 ? "" : std::to_string(command.common.intra_op));
  add("--checkpoint-every", command.checkpoint_every == 0 ? "" : std::to_string(command.checkpoint_every));
  text += command.tensorboard ? " --tensorboard" : "";
  add("--vocabulary", command.vocabulary);
  add_all("--ops-library", command.common.ops_libraries);
  add_all("--pass-plugin", command.common.pass_plugins);
  add("--options", command.common.options_file);
  add("--resume", checkpoint);
  return text;
}

ui::ProgressMode progress_mode(const TrainCommand& command) {
  return command.common.json ? ui::ProgressMode::kNever
         : command.progress  ? ui::ProgressMode::kAlways
                             : ui::ProgressMode::kAuto;
}

// Returns the device of this process. Of the processes of a machine that torchrun starts, each takes a GPU of its own.
std::string device_of_process(const std::string& device) {
  const char* const number = std::getenv("LOCAL_RANK");
  return device == "cuda" && number != nullptr ? "cuda:" + std::string(number) : device;
}

Options prepare_for(const TrainCommand& command, const TrainSettings& settings) {
  CommonOptions common = command.common;
  common.autocast = settings.autocast;
  common.device = device_of_process(common.device);
  Options options = prepare(common);
  if (options.frozen()) {
    throw UserError(common.options_file + ": the parameters of a frozen model take no gradients; leave out 'frozen'");
  }
  // Which step runs compiled code must not depend on time.
  if (options.compile() == CompileMode::kBackground) {
    options.compile(CompileMode::kBlocking);
  }
  options.time_choices(false);  // nor may the last bits of a step
  return options;
}

void print_result(const TrainCommand& command, const TrainLoop& loop, const Training& training) {
  if (command.common.json) {
    std::cout << json_text(to_json(loop.result(), training));
  } else {
    std::cout << to_text(loop.result(), training);
  }
  std::cout << std::flush;
  if (!loop.is_complete()) {
    std::cerr << "sconce: " << (interrupted() ? "interrupted" : "stopped") << " after step " << training.progress().step
              << " of " << training.steps() << "; this goes on:\n  " << loop.result().resume << std::endl;
  }
}

int train_on(const Ranks& ranks, const TrainCommand& command) {
  const bool is_first = ranks.placement().is_first();
  const TrainFolder folder(folder_for(command));
  const std::string resumed = checkpoint_for(command, folder);
  const std::optional<Checkpoint> checkpoint = resumed.empty() ? std::nullopt : std::optional(read_checkpoint(resumed));
  const TrainSettings settings = settings_for(command, checkpoint, is_first);
  const Options options = prepare_for(command, settings);
  warn_of_missing_kernels(options);
  const Module module = load_model(command.model, options);
  expect_method(module.script_module(), settings.method);
  const bool trains = module.script_module().is_training();
  const TrainAndValidation data = data_for(command, settings);
  const std::vector<std::string> vocabulary =
      command.vocabulary.empty() ? std::vector<std::string>() : read_vocabulary(command.vocabulary);
  const Placement& placement = ranks.placement();
  Training training(module, data.training, settings, loss_for(settings, options), ranks);
  if (checkpoint) {
    if (is_first && checkpoint->world != placement.world) {
      std::cerr << "sconce: goes on in " << placement.world << " processes, and was begun in " << checkpoint->world
                << "; a step takes the batches of as many" << std::endl;
    }
    try {
      training.go_on_from(*checkpoint);
    } catch (const UserError& failure) {
      throw UserError(resumed + ": " + failure.what());
    }
    const Progress& done = training.progress();
    if (done.epoch > settings.epochs || (done.epoch == settings.epochs && done.example > 0)) {
      throw UserError("--epochs " + std::to_string(settings.epochs) + ": " + resumed + " is further than that, with " +
                      std::to_string(done.step) + " steps of " + std::to_string(training.steps_per_epoch()) + " an epoch");
    }
  }
  const auto begin = static_cast<double>(training.progress().step);
  if (ranks.sum({begin})[0] != begin * static_cast<double>(placement.world)) {
    throw UserError(folder.path() +
                    ": the processes see other checkpoints there; --output must be a folder that they share");
  }
  if (is_first) {
    folder.prepare(resumed, command.overwrite);
  }
  const InterruptionGuard interruption(/*handles_termination=*/true);
  training.rehearse(data.validation.get());
  TrainLoop loop(training, *data.training, data.validation.get(), folder,
                 {.checkpoint_every = command.checkpoint_every,
                  .max_steps = command.max_steps,
                  .resumed = resumed,
                  .overwrite = command.overwrite && resumed.empty(),
                  .tensorboard = command.tensorboard,
                  .trains = trains,
                  .progress = progress_mode(command),
                  .prints_epochs = !command.common.json},
                 {.model = command.model,
                  .data = join(command.data.data, " "),
                  .resume = resume_command(command, folder.checkpoint(), placement),
                  .vocabulary = vocabulary});
  loop.run();
  loop.finish();

  if (is_first) {
    print_result(command, loop, training);
  }
  return loop.is_complete() || !interrupted() ? kGood : interruption_signal() == SIGTERM ? kTerminated : kInterrupted;
}

int train(const TrainCommand& command) {
  if (!command.common.device.empty()) {  // before ranks and checkpoints make tensors
    make_available(parse_device(device_of_process(command.common.device)));
  }
  const Ranks ranks = Ranks::of_environment();
  try {
    return train_on(ranks, command);
  } catch (const std::exception& failure) {
    ranks.leave("ended: " + one_line_message(failure));
    throw;
  }
}

template <size_t count>
std::string names(const std::array<const char*, count>& all) {
  return join({all.begin(), all.end()});
}

CLI::Option* add_repeated(CLI::App& command, const std::string& name, std::vector<std::string>& values,
                          const std::string& description) {
  return command.add_option(name, values, description)->expected(1)->take_all()->allow_extra_args(false);
}

void add_settings(CLI::App& command, TrainSettings& settings) {
  command.add_option("--method", settings.method, "the model's method that is trained (forward)")->type_name("NAME");
  add_repeated(command, "--loss", settings.loss,
               "the loss of the model's result and the targets: " + names(kLossNames) +
                   "; of several results the sum, given once for each, in order, as mse or mse:0.5")
      ->type_name("LOSS");
  command.add_option("--loss-module", settings.loss_module, "scripted module whose forward(result, target) is the loss")
      ->type_name("FILE");
  command.add_option("--optimizer", settings.optimizer, names(kOptimizerNames))->type_name("NAME");
  command.add_option("--epochs", settings.epochs, "passes over the data; with --resume, in total")
      ->type_name("N")
      ->check(whole_between(1, 1e9));
  command.add_option("--batch", settings.batch, "examples of a call of the model (32)")
      ->type_name("N")
      ->check(whole_between(1, 1e9));
  command.add_option("--lr", settings.lr, "learning rate (sgd, rmsprop and adagrad 0.01, adam and adamw 0.001, lbfgs 1)")
      ->type_name("X")
      ->check(between(0, 1e6));
  command.add_option("--momentum", settings.momentum, "of sgd and rmsprop (0)")->type_name("X")->check(between(0, 1));
  command.add_option("--weight-decay", settings.weight_decay, "of the optimizer (adamw 0.01, others 0; lbfgs has none)")
      ->type_name("X")
      ->check(between(0, 1e6));
  command
      .add_option(
          "--schedule", settings.schedule,
          "the learning rate over the whole training: constant (default), cosine and linear (down to 0), exponential (down "
          "to a hundredth), step (a tenth after each third), one_cycle (up from 1/25, then down)")
      ->type_name("NAME");
  command.add_option("--warmup", settings.warmup, "first steps, in which the learning rate rises evenly (0)")
      ->type_name("N")
      ->check(whole_between(0, 1e9));
  command.add_option("--min-lr", settings.min_lr, "learning rate at the end of cosine, linear and exponential")
      ->type_name("X")
      ->check(between(0, 1e6));
  command.add_option("--clip-norm", settings.clip_norm, "scale gradients so that their norm together is at most this")
      ->type_name("X")
      ->check(between(1e-30, 1e30));
  command.add_option("--clip-value", settings.clip_value, "clamp each element of each gradient to [-X, X]")
      ->type_name("X")
      ->check(between(1e-30, 1e30));
  command.add_option("--accumulate", settings.accumulate, "batches of a step of the optimizer, by their mean loss (1)")
      ->type_name("N")
      ->check(whole_between(1, 1e6));
  command.add_option("--seed", settings.seed, "seed of the order of examples and of the model's random numbers (0)")
      ->type_name("N");
  command.add_flag("--no-shuffle", settings.no_shuffle, "take the examples in the order of the file in each epoch");
  command.add_flag("--sync-batch-norm", settings.sync_batch_norm,
                   "batch norms take mean and variance of all processes' batches");
  command.add_flag("--shard-optimizer", settings.shard_optimizer,
                   "each process keeps the optimizer's states of a part of the parameters alone");
  command.add_flag("--drop-last", settings.drop_last, "leave out the last batch of an epoch if it is smaller");
  command
      .add_option("--validation-split", settings.validation_split,
                  "keep this share of the examples, at random, for the validation")
      ->type_name("SHARE")
      ->check(between(0, 0.99));
  add_repeated(command, "--metric", settings.metric,
               "also measure on the validation, and show: " + names(kMetricNames) +
                   "; of another result than the first with its number, counted from 0, as accuracy@1")
      ->type_name("NAME");
  command
      .add_option("--monitor", settings.monitor,
                  "what tells the best epoch, for best.pt and --early-stopping: validation_loss (default) or a --metric")
      ->type_name("NAME");
  command.add_option("--early-stopping", settings.early_stopping, "end after N epochs without a better one (0: never)")
      ->type_name("N")
      ->check(whole_between(0, 1e9));
}

}  // namespace

void add_train_command(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<TrainCommand>();
  CLI::App& command = add_command(app, chosen, "train", "Train a model on a file of examples", options, train);
  options->parser = &command;
  command.add_option("MODEL", options->model, "what torch.jit.script(model).save(path) wrote")->required();
  add_repeated(command, "--data", options->data.data,
               "the examples: a file with inputs and targets, or a list (a.pt,b.pt) or pattern ('shards/*.pt') of such; of "
               ".npy files, given once for each input")
      ->type_name("FILE")
      ->required();
  add_repeated(command, "--targets", options->data.targets, "the targets, if --data are .npy files")->type_name("FILE");
  add_settings(command, options->settings);
  add_autocast_option(command, options->common);
  add_repeated(command, "--validation", options->validation.data,
               "other examples: after each epoch their loss and metrics, in evaluation mode")
      ->type_name("FILE");
  add_repeated(command, "--validation-targets", options->validation.targets, "their targets, if they are .npy files")
      ->type_name("FILE");
  command
      .add_option("--output", options->output, "folder of the files (MODEL-train; with --resume, that of the checkpoint)")
      ->type_name("DIR");
  command.add_flag("--overwrite", options->overwrite, "start again in a folder with a checkpoint");
  command
      .add_option("--resume", options->resume,
                  "go on from a checkpoint, with its settings; auto: from that of the folder if there is one, else begin")
      ->type_name("FILE");
  command
      .add_option("--checkpoint-every", options->checkpoint_every,
                  "also write a checkpoint every N steps (after epochs only)")
      ->type_name("N")
      ->check(whole_between(1, 1e9));
  command.add_option("--max-steps", options->max_steps, "stop after N steps, with a checkpoint to go on from")
      ->type_name("N")
      ->check(whole_between(1, 1e9));
  command.add_flag("--tensorboard", options->tensorboard, "also write an event file, for tensorboard --logdir DIR");
  command
      .add_option("--vocabulary", options->vocabulary,
                  "tokens, one in each line, by which report.html shows sequences of integers")
      ->type_name("FILE");
  add_device_option(command, options->common);
  add_intra_op_option(command, options->common, "--intra-op,--threads");
  command.add_flag("--progress", options->progress, "show progress even when stderr is no terminal");
  add_common_options(command, options->common);
  command.footer(
      R"(The first dimension of each tensor counts the examples. Inputs are a tensor, or a tuple of tensors, the arguments of the
model's method. Targets are one for each result of the model: classes for cross_entropy and nll, values of the result's
sizes for the others. In Python:
  import torch
  x, y = torch.randn(1000, 16), torch.randint(0, 3, (1000,))
  torch.save((x, y), "data.pt")
.npy files hold one tensor each (--data x.npy --targets y.npy). A safetensors file has the tensors inputs and targets, or
inputs.0, inputs.1 and so on. Data may be larger than the memory: batches are read while the last one is computed with.

The folder gets model.pt (the trained model, when the training is complete), best.pt (that of the epoch with the best
validation), checkpoint.pt (after epochs and on Ctrl-C), loss.csv, epochs.csv, loss.svg and report.html. A file is
replaced as a whole, so that a full disk or a crash leaves the last one. Ctrl-C and SIGTERM end after the step, write a
checkpoint and print the command that goes on; a second one ends the program. A training that goes on has the same
parameters, bit for bit, as one that was not interrupted, on the same machine with as many threads. Other settings may be
given to it: learning rate, schedule, epochs, clipping and metrics as you like, batches with a note; loss, optimizer and
data stay.

Started by torchrun, N processes train together: --batch is that of a process, and each step takes the examples that one
process with a batch N times as large takes. One of them prints and writes the files. If a process fails, all end, and with
--max-restarts torchrun starts them again from the last checkpoint.

Examples:
  sconce train mlp.pt --data data.pt --loss cross_entropy --optimizer adam --epochs 10
  sconce train mlp.pt --data data.pt --validation test.pt --loss cross_entropy --optimizer sgd --lr 0.1 \
      --momentum 0.9 --schedule cosine --warmup 100 --clip-norm 1 --epochs 30 --output run1
  sconce train mlp.pt --data 'shards/*.safetensors' --validation-split 0.1 --loss cross_entropy --optimizer adamw \
      --epochs 50 --metric accuracy --metric f1 --monitor accuracy --early-stopping 5
  sconce train mlp.pt --data data.pt --resume run1/checkpoint.pt
  torchrun --no-python --nproc-per-node 4 --max-restarts 3 sconce train mlp.pt --data data.pt --loss cross_entropy \
      --optimizer adam --epochs 10 --checkpoint-every 100

Exit codes: 0 good, 1 the loss is not finite or sconce refuses, 2 usage or a bad file, 130 interrupted, 143 terminated.)");
}

}  // namespace sconce::cli
