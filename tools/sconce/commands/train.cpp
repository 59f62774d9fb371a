// sconce train: trains a model on a file of examples.
#include "base/nearest_name.h"
#include "tools/sconce/commands/commands.h"
#include "tools/sconce/commands/missing_kernels.h"
#include "tools/sconce/commands/model_options.h"
#include "tools/sconce/report/errors.h"
#include "tools/sconce/train/loop.h"
#include "tools/sconce/train/training.h"
#include "tools/sconce/ui/interruption.h"

#include <filesystem>
#include <iostream>

namespace sconce::cli {
namespace {

struct TrainCommand {
  CommonOptions common;
  TrainSettings settings;
  std::string model;
  std::string data;
  std::string validation;
  std::string resume;
  std::string output;
  size_t checkpoint_every = 0;
  size_t max_steps = 0;
  bool overwrite = false;
  bool progress = false;
  const CLI::App* parser = nullptr;  // tells which options were given

  bool has(const std::string& option) const { return parser->get_option("--" + option)->count() > 0; }
};

// Returns the settings of the command line. A checkpoint's settings stay as they are, but for the number of epochs: an
// option that says otherwise is an error.
TrainSettings settings_for(const TrainCommand& command, const std::optional<Checkpoint>& checkpoint) {
  TrainSettings given = command.settings;
  given.autocast = command.common.autocast;
  if (!checkpoint) {
    for (const char* option : {"loss", "optimizer", "epochs"}) {
      if (!command.has(option)) {
        throw UserError(std::string("--") + option + " is missing (see 'sconce train --help')");
      }
    }
    expect_valid(given);
    return given;
  }
  Json settings = to_json(checkpoint->settings);
  const Json asked = to_json(given);
  for (const auto& [name, value] : asked.items()) {
    if (command.has(name) && name == "epochs") {
      settings[name] = value;
    } else if (command.has(name) && value != settings[name]) {
      throw UserError("--" + name + ": is " + value.dump() + ", and the checkpoint's training has " + settings[name].dump() +
                      "; leave the option out");
    }
  }
  return settings_of(settings);
}

std::filesystem::path folder_for(const TrainCommand& command) {
  if (!command.output.empty()) {
    return command.output;
  }
  const std::filesystem::path beside = std::filesystem::path(command.resume).parent_path();
  return !beside.empty()           ? beside
         : !command.resume.empty() ? "."
                                   : std::filesystem::path(command.model).stem().concat("-train");
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
std::string resume_command(const TrainCommand& command, const std::string& checkpoint) {
  std::string text = "sconce train " + shell_word(command.model) + " --data " + shell_word(command.data);
  const auto add = [&text](const char* option, const std::string& value) {
    text += value.empty() ? "" : std::string(" ") + option + " " + shell_word(value);
  };
  add("--validation", command.validation);
  add("--intra-op", command.common.intra_op == 0 ? "" : std::to_string(command.common.intra_op));
  add("--checkpoint-every", command.checkpoint_every == 0 ? "" : std::to_string(command.checkpoint_every));
  for (const std::string& library : command.common.ops_libraries) {
    add("--ops-library", library);
  }
  for (const std::string& library : command.common.pass_plugins) {
    add("--pass-plugin", library);
  }
  add("--options", command.common.options_file);
  add("--resume", checkpoint);
  return text;
}

ui::ProgressMode progress_mode(const TrainCommand& command) {
  return command.common.json ? ui::ProgressMode::kNever
         : command.progress  ? ui::ProgressMode::kAlways
                             : ui::ProgressMode::kAuto;
}

Options prepare_for(const TrainCommand& command, const TrainSettings& settings) {
  CommonOptions common = command.common;
  common.autocast = settings.autocast;
  Options options = prepare(common);
  if (options.frozen()) {
    throw UserError(common.options_file + ": the parameters of a frozen model take no gradients; leave out 'frozen'");
  }
  if (options.device() && !options.device()->is_cpu()) {
    throw RefusedError("train runs on the CPU; leave out the device in " + common.options_file);
  }
  // Which step runs compiled code must not depend on time.
  if (options.compile() == CompileMode::kBackground) {
    options.compile(CompileMode::kBlocking);
  }
  options.time_choices(false);  // nor may the last bits of a step
  return options;
}

int train(const TrainCommand& command) {
  const std::optional<Checkpoint> checkpoint =
      command.resume.empty() ? std::nullopt : std::optional(read_checkpoint(command.resume));
  const TrainSettings settings = settings_for(command, checkpoint);
  const Options options = prepare_for(command, settings);
  warn_of_missing_kernels(options);
  const Module module = load_model(command.model, options);
  expect_method(module.script_module(), "forward");
  const bool trains = module.script_module().is_training();
  TrainData data = read_train_data(command.data);
  const std::optional<TrainData> validation =
      command.validation.empty() ? std::nullopt : std::optional(read_train_data(command.validation));
  Training training(module, std::move(data), settings);
  if (checkpoint) {
    try {
      training.go_on_from(*checkpoint);
    } catch (const UserError& failure) {
      throw UserError(command.resume + ": " + failure.what());
    }
    if (training.steps_done() > training.steps()) {
      throw UserError("--epochs " + std::to_string(settings.epochs) + ": " + command.resume +
                      " is further than that, with " + std::to_string(training.steps_done()) + " steps of " +
                      std::to_string(training.steps_per_epoch()) + " an epoch");
    }
  }
  const TrainFolder folder(folder_for(command));
  folder.prepare(command.resume, command.overwrite);
  const InterruptionGuard interruption;
  training.rehearse(validation);
  TrainLoop loop(training, validation, folder,
                 {.checkpoint_every = command.checkpoint_every,
                  .max_steps = command.max_steps,
                  .progress = progress_mode(command),
                  .prints_epochs = !command.common.json},
                 {.model = command.model, .data = command.data, .resume = resume_command(command, folder.checkpoint())});
  loop.run();
  loop.finish(trains);

  if (command.common.json) {
    std::cout << json_text(to_json(loop.result(), training));
  } else {
    std::cout << to_text(loop.result(), training);
  }
  if (loop.is_complete()) {
    return kGood;
  }
  std::cout << std::flush;
  std::cerr << "sconce: " << (interrupted() ? "interrupted" : "stopped") << " after step " << training.steps_done() << " of "
            << training.steps() << "; this goes on:\n  " << loop.result().resume << std::endl;
  return interrupted() ? kInterrupted : kGood;
}

template <size_t count>
std::string names(const std::array<const char*, count>& all) {
  return join({all.begin(), all.end()});
}

void add_settings(CLI::App& command, TrainSettings& settings) {
  command.add_option("--loss", settings.loss, "the loss of the model's result and the targets: " + names(kLossNames))
      ->type_name("LOSS");
  command.add_option("--optimizer", settings.optimizer, names(kOptimizerNames))->type_name("NAME");
  command.add_option("--epochs", settings.epochs, "passes over the data; with --resume, in total")
      ->type_name("N")
      ->check(whole_between(1, 1e9));
  command.add_option("--batch", settings.batch, "examples of a call of the model (32)")
      ->type_name("N")
      ->check(whole_between(1, 1e9));
  command.add_option("--lr", settings.lr, "learning rate (sgd, rmsprop and adagrad 0.01, adam and adamw 0.001)")
      ->type_name("X")
      ->check(between(0, 1e6));
  command.add_option("--momentum", settings.momentum, "of sgd and rmsprop (0)")->type_name("X")->check(between(0, 1));
  command.add_option("--weight-decay", settings.weight_decay, "of the optimizer (adamw 0.01, others 0)")
      ->type_name("X")
      ->check(between(0, 1e6));
  command
      .add_option(
          "--schedule", settings.schedule,
          "the learning rate over the whole training: constant (default), cosine (down to 0), step (a tenth after each "
          "third)")
      ->type_name("NAME");
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
  command.add_flag("--drop-last", settings.drop_last, "leave out the last batch of an epoch if it is smaller");
}

}  // namespace

void add_train_command(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<TrainCommand>();
  CLI::App& command = add_command(app, chosen, "train", "Train a model on a file of examples", options, train);
  options->parser = &command;
  command.add_option("MODEL", options->model, "what torch.jit.script(model).save(path) wrote")->required();
  command.add_option("--data", options->data, "the examples, written by torch.save((inputs, targets), FILE)")
      ->type_name("FILE")
      ->required();
  add_settings(command, options->settings);
  add_autocast_option(command, options->common);
  command
      .add_option("--validation", options->validation,
                  "other examples: after each epoch their loss in evaluation mode, without gradients")
      ->type_name("FILE");
  command
      .add_option("--output", options->output, "folder of the files (MODEL-train; with --resume, that of the checkpoint)")
      ->type_name("DIR");
  command.add_flag("--overwrite", options->overwrite, "start again in a folder with a checkpoint");
  command.add_option("--resume", options->resume, "go on from a checkpoint, with its settings")->type_name("FILE");
  command
      .add_option("--checkpoint-every", options->checkpoint_every,
                  "also write a checkpoint every N steps (after epochs only)")
      ->type_name("N")
      ->check(whole_between(1, 1e9));
  command.add_option("--max-steps", options->max_steps, "stop after N steps, with a checkpoint to go on from")
      ->type_name("N")
      ->check(whole_between(1, 1e9));
  add_intra_op_option(command, options->common, "--intra-op,--threads");
  command.add_flag("--progress", options->progress, "show progress even when stderr is no terminal");
  add_common_options(command, options->common);
  command.footer(
      "The first dimension of each tensor counts the examples. Inputs are a tensor, or a tuple of tensors, the arguments "
      "of\n"
      "the model's forward; the model returns one tensor. Targets are one tensor: classes for cross_entropy and nll, "
      "values\n"
      "of the result's sizes for the others. In Python:\n"
      "  import torch\n"
      "  x, y = torch.randn(1000, 16), torch.randint(0, 3, (1000,))\n"
      "  torch.save((x, y), \"data.pt\")\n\n"
      "The folder gets model.pt (the trained model, when the training is complete), checkpoint.pt (after epochs and on\n"
      "Ctrl-C), loss.csv, loss.svg and report.html. Each file is replaced as a whole, so that a full disk or a crash "
      "leaves\n"
      "the last one. Ctrl-C ends after the step, writes a checkpoint and prints the command that goes on; a second one "
      "ends\n"
      "the program. A training that goes on has the same parameters, bit for bit, as one that was not interrupted, on the\n"
      "same machine with as many threads.\n\n"
      "Examples:\n"
      "  sconce train mlp.pt --data data.pt --loss cross_entropy --optimizer adam --epochs 10\n"
      "  sconce train mlp.pt --data data.pt --validation test.pt --loss cross_entropy --optimizer sgd --lr 0.1 \\\n"
      "      --momentum 0.9 --schedule cosine --clip-norm 1 --epochs 30 --output run1\n"
      "  sconce train mlp.pt --data data.pt --resume run1/checkpoint.pt\n"
      "\nExit codes: 0 good, 1 the loss is not finite or sconce refuses, 2 usage or a bad file, 130 interrupted.");
}

}  // namespace sconce::cli
