// sconce train, end to end.
#include "tests/tools/train_command.h"
#include "tools/sconce/train/checkpoint.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace sconce::tests {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST_F(TrainCommand, LowersTheLossAndWritesItsFiles) {
  const std::string validation = write_points(folder_, "validation.pt", 33);
  const ProgramResult result = sconce(classify("run", {"--json", "--validation", validation}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto json = json_of(result);
  EXPECT_LT(json["epoch_losses"][3].get<double>(), 0.8 * json["epoch_losses"][0].get<double>());
  EXPECT_LT(json["validation_losses"][3].get<double>(), json["validation_losses"][0].get<double>());
  EXPECT_EQ(json["steps_per_epoch"], 5) << "four batches of 16 and one of 6";
  EXPECT_EQ(json["steps_done"], 20);
  EXPECT_EQ(json["complete"], true);
  EXPECT_EQ(json["calls_by_plan"], 20) << result.out;
  EXPECT_EQ(json["optimizer"]["steps_by_plan"], 20) << result.out;
  // The model runs, has the mode of the one that was read, and its buffers were trained, too.
  const torch::jit::Module trained = torch::jit::load(json["files"]["model"].get<std::string>());
  EXPECT_FALSE(trained.is_training());
  EXPECT_FALSE(at::equal(trained.attr("mean").toTensor(), at::zeros({16})));
  EXPECT_EQ(sconce({"run", file("run/model.pt"), "--input", "float32[2,4]"}).exit_code, 0);
  const std::string csv = read_file(file("run/loss.csv"));
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 21);
  EXPECT_THAT(csv, StartsWith("step,epoch,learning_rate,loss,validation_loss\n1,1,0.02,"));
  EXPECT_THAT(read_file(file("run/loss.svg")), ::testing::AllOf(StartsWith("<svg "), HasSubstr("class=\"validation\"")));
  EXPECT_THAT(read_file(file("run/report.html")), ::testing::AllOf(HasSubstr("<svg "), HasSubstr("--optimizer")));
}

TEST_F(TrainCommand, ShowsEpochsAndATable) {
  const ProgramResult result = sconce(classify("run"));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* text :
       {"epoch 1/4  loss ", "epoch 4/4  loss ", "epochs", "20 of 20", "calls by plan", "Adam: 20 of 20"}) {
    EXPECT_THAT(result.out, HasSubstr(text));
  }
}

TEST_F(TrainCommand, GoesOnToTheSameBits) {
  for (const std::vector<std::string>& options :
       {std::vector<std::string>{},
        {"--optimizer", "sgd", "--momentum", "0.9", "--schedule", "cosine", "--clip-norm", "0.5"},
        {"--optimizer", "rmsprop", "--accumulate", "2", "--lr", "0.005"},
        {"--optimizer", "adagrad", "--schedule", "step"},
        {"--optimizer", "lbfgs", "--lr", "0.1", "--schedule", "linear"},
        {"--optimizer", "adamw", "--autocast", "bfloat16", "--no-shuffle"}}) {
    SCOPED_TRACE(::testing::PrintToString(options));
    std::vector<std::string> whole = options;
    whole.emplace_back("--overwrite");
    std::vector<std::string> part = whole;
    part.insert(part.end(), {"--max-steps", "3"});
    ASSERT_EQ(sconce(classify("whole", whole)).exit_code, 0);
    const ProgramResult stopped = sconce(classify("part", part));
    ASSERT_EQ(stopped.exit_code, 0) << stopped.err;
    EXPECT_THAT(stopped.err, HasSubstr("stopped after step 3 of "));
    EXPECT_THAT(stopped.err, HasSubstr("--resume " + file("part/checkpoint.pt")));
    EXPECT_FALSE(std::filesystem::exists(file("part/model.pt"))) << "it is not trained yet";
    const ProgramResult resumed =
        sconce({"train", model_, "--data", data_, "--threads", "1", "--resume", file("part/checkpoint.pt")});
    ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
    expect_equal_models("whole/model.pt", "part/model.pt");
    EXPECT_EQ(read_file(file("whole/loss.csv")), read_file(file("part/loss.csv")));
    std::filesystem::remove_all(file("part"));
  }
}

TEST_F(TrainCommand, EndsWithACheckpointOnCtrlCAndSIGTERM) {
  ASSERT_EQ(sconce(classify("whole", {"--epochs", "2000"})).exit_code, 0);
  for (const auto& [signal, code] : {std::pair("INT", 130), std::pair("TERM", 143)}) {
    SCOPED_TRACE(signal);
    std::string command = "'" + sconce_binary() + "'";
    for (const std::string& word : classify("part", {"--epochs", "2000", "--progress", "--overwrite"})) {
      command += " '" + word + "'";
    }
    const std::string err = file("err");
    command += " 2> '" + err + "' & child=$!; until grep -q 'epoch 3/' '" + err +
               "' || ! kill -0 $child; do sleep 0.02; done; kill -" + signal + " $child; wait $child";
    // A shell without job control starts background processes with SIGINT ignored; bash -m does not.
    const ProgramResult interrupted = run_program("/bin/bash", {"-m", "-c", command}, {});
    EXPECT_EQ(interrupted.exit_code, code) << read_file(err);
    EXPECT_THAT(read_file(err), HasSubstr("interrupted after step "));
    const size_t steps = cli::read_checkpoint(file("part/checkpoint.pt")).progress.step;
    EXPECT_GE(steps, 10U);
    EXPECT_LT(steps, 10000U);
    ASSERT_EQ(sconce({"train", model_, "--data", data_, "--threads", "1", "--resume", file("part/checkpoint.pt")}).exit_code,
              0);
    expect_equal_models("whole/model.pt", "part/model.pt");
    EXPECT_EQ(read_file(file("whole/loss.csv")), read_file(file("part/loss.csv")));
  }
}

// A validation that is interrupted is made when the training goes on.
TEST_F(TrainCommand, EndsWithACheckpointInAValidation) {
  const std::string validation = write_points(folder_, "validation.pt", 200000);
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--validation", validation, "--metric", "accuracy", "--epochs", "3"});
    return more;
  };
  ASSERT_EQ(sconce(classify("whole", with({}))).exit_code, 0);
  std::string command = "'" + sconce_binary() + "'";
  for (const std::string& word : classify("part", with({"--progress"}))) {
    command += " '" + word + "'";
  }
  const std::string err = file("err");
  command += " 2> '" + err + "' & child=$!; until grep -q 'epoch 2/3.*100%' '" + err +
             "' || ! kill -0 $child; do sleep 0.01; done; kill -INT $child; wait $child";
  const ProgramResult interrupted = run_program("/bin/bash", {"-m", "-c", command}, {});
  ASSERT_EQ(interrupted.exit_code, 130) << read_file(err);
  ASSERT_EQ(sconce({"train", model_, "--data", data_, "--validation", validation, "--threads", "1", "--resume",
                    file("part/checkpoint.pt")})
                .exit_code,
            0);
  expect_equal_models("whole/model.pt", "part/model.pt");
  expect_equal_models("whole/best.pt", "part/best.pt");
  for (const char* name : {"loss.csv", "epochs.csv"}) {
    EXPECT_EQ(read_file(file(std::string("whole/") + name)), read_file(file(std::string("part/") + name)));
  }
}

TEST_F(TrainCommand, NamesWhatIsWrongWithTheData) {
  const auto expect_bad = [&](const std::string& data, const std::string& message) {
    expect_usage_error(
        {"train", model_, "--data", data, "--loss", "mse", "--optimizer", "sgd", "--epochs", "1", "--output", file("bad")},
        message);
  };
  const at::Tensor ten = at::zeros({10, 4});
  expect_bad(write_pair(folder_, "bad.pt", ten, at::zeros({9})),
             "bad.pt: inputs has 10 examples (the first dimension), targets has 9");
  expect_bad(write_pair(folder_, "bad.pt", c10::ivalue::Tuple::create({ten, at::zeros({3})}), at::zeros({10})),
             "bad.pt: inputs[1] has 3 examples");
  expect_bad(write_pair(folder_, "bad.pt", at::zeros({0, 4}), at::zeros({0})), "bad.pt: has no examples");
  expect_bad(write_pair(folder_, "bad.pt", ten, 3), "bad.pt: targets is an int, not a tensor");
  expect_bad(write_pair(folder_, "bad.pt", "text", ten), "bad.pt: inputs is a str, not a tensor or a tuple of tensors");
  expect_bad(write_pair(folder_, "bad.pt", at::zeros({}), ten), "bad.pt: inputs is float32[], without a first dimension");
  expect_bad(write_values(folder_, "bad.pt", ten), "bad.pt: holds 1 value instead of two");
  expect_bad(model_, "is a TorchScript archive without the attributes 'inputs' and 'targets'");
  expect_bad(file("nowhere.pt"), "nowhere.pt: no such file");
  expect_bad(write_pair(folder_, "bad.pt", ten, at::zeros({10})),
             "--loss mse: the model returns float32[10, 3] for targets float32[10]; their sizes must be equal");
  expect_usage_error({"train", model_, "--data", write_pair(folder_, "bad.pt", ten, at::zeros({10})), "--loss",
                      "cross_entropy", "--optimizer", "sgd", "--epochs", "1", "--output", file("bad")},
                     "--loss cross_entropy: the targets are float32[10]; it takes the numbers of classes, as integers");
  const at::Tensor with_nan = at::zeros({10, 4});
  with_nan[3][1] = std::nan("");
  expect_refusal({"train", model_, "--data", write_pair(folder_, "bad.pt", with_nan, at::zeros({10, 3})), "--loss", "mse",
                  "--optimizer", "sgd", "--epochs", "1", "--output", file("bad_numbers")},
                 "the loss is nan in step 1, epoch 1: an example of its batch has numbers that are not finite");
  // The validation's data, before the first epoch.
  std::vector<std::string> words = classify("bad", {"--validation", write_pair(folder_, "bad.pt", at::zeros({10, 5}), ten)});
  EXPECT_EQ(sconce(words).exit_code, 2);
  EXPECT_FALSE(std::filesystem::exists(file("bad/checkpoint.pt")));
}

TEST_F(TrainCommand, ReadsDataOfATorchScriptArchive) {
  torch::jit::Module module("Data");
  module.register_attribute("inputs", c10::TupleType::create({c10::TensorType::get()}),
                            c10::ivalue::Tuple::create({at::randn({20, 4})}));
  module.register_attribute("targets", c10::TensorType::get(), at::randn({20, 3}));
  module.save(file("script_data.pt"));
  for (const char* loss : {"mse", "l1", "huber", "bce_with_logits"}) {
    const ProgramResult result = sconce({"train", model_, "--data", file("script_data.pt"), "--loss", loss, "--optimizer",
                                         "sgd", "--epochs", "1", "--output", file("script"), "--overwrite", "--json"});
    EXPECT_EQ(result.exit_code, 0) << loss << result.err;
  }
}

TEST_F(TrainCommand, NamesWhatIsWrongWithOptions) {
  expect_usage_error(classify("x", {"--schedule", "cosin"}), "--schedule: there is no 'cosin'; did you mean 'cosine'?");
  expect_usage_error(classify("x", {"--momentum", "0.5"}), "--momentum: 'adam' has none; sgd and rmsprop have");
  for (const auto& [option, reason] :
       {std::pair("--clip-norm", "clipped ones are not those of the loss"),
        std::pair("--clip-value", "clipped ones are not those of the loss"),
        std::pair("--accumulate", "give a larger --batch"), std::pair("--weight-decay", "'lbfgs' has none")}) {
    expect_usage_error(classify("x", {"--optimizer", "lbfgs", option, "2"}), option + std::string(": "));
    expect_usage_error(classify("x", {"--optimizer", "lbfgs", option, "2"}), reason);
  }
  expect_usage_error(classify("x", {"--method", "forwards"}), "the model has no method 'forwards'; did you mean 'forward'?");
  expect_usage_error(classify("x", {"--device", "gpu"}), "no device 'gpu'; there are cpu, cuda and cuda:N");
  const ProgramResult of_process = sconce(classify("x", {"--device", "cuda"}), {{"LOCAL_RANK", "second"}});
  EXPECT_EQ(of_process.exit_code, 2);
  EXPECT_THAT(of_process.err, HasSubstr("no device 'cuda:second'")) << "each process takes the GPU of its number";
  expect_usage_error(classify("x", {"--accumulate", "6"}),
                     "an epoch of 70 examples has 5 batches of 16, too few for one step of 6");
  expect_usage_error(arguments("x", {"--loss", "mse", "--optimizer", "sgd"}), "--epochs is missing");
  const std::string plain = write_model(folder_, "plain.pt", "def forward(self, x: Tensor):\n    return x.relu()\n");
  expect_usage_error(
      {"train", plain, "--data", data_, "--loss", "mse", "--optimizer", "sgd", "--epochs", "1", "--output", file("x")},
      "no parameter of the model requires a gradient");
  EXPECT_FALSE(std::filesystem::exists(file("x")));
}

TEST_F(TrainCommand, ResumesOnlyWhatFits) {
  ASSERT_EQ(sconce(classify("run", {"--max-steps", "7"})).exit_code, 0);
  const std::string checkpoint = file("run/checkpoint.pt");
  const std::vector<std::string> resume = {"train", model_, "--data", data_, "--resume", checkpoint};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), resume.begin(), resume.end());
    return more;
  };
  expect_usage_error(classify("run"), "checkpoint.pt: exists; go on with --resume " + checkpoint);
  expect_usage_error(with({"--loss", "nll"}),
                     R"(--loss: is ["nll"], and the checkpoint's training has ["cross_entropy"]; leave the option out)");
  expect_usage_error(with({"--optimizer", "sgd"}),
                     R"(--optimizer: is "sgd", and the checkpoint's training has "adam"; leave the option out)");
  expect_usage_error(with({"--epochs", "1"}),
                     "--epochs 1: " + checkpoint + " is further than that, with 7 steps of 5 an epoch");
  expect_usage_error({"train", model_, "--data", write_points(folder_, "fewer.pt", 60), "--resume", checkpoint},
                     checkpoint + ": is of data with 70 examples, and --data has 60");
  expect_usage_error({"train", model_, "--data", data_, "--resume", data_}, "points.pt: is no checkpoint that this version");
  torch::jit::Module other = torch::jit::load(model_);
  other.setattr("b", at::zeros({5, 16}).set_requires_grad(true));
  other.save(file("other.pt"));
  expect_usage_error({"train", file("other.pt"), "--data", data_, "--resume", checkpoint},
                     checkpoint + ": is of another model: 'b' is float32[3, 16] there, and float32[5, 16] in this model");
  const ProgramResult longer = sconce(with({"--epochs", "6", "--json"}));
  EXPECT_EQ(json_of(longer)["steps_done"], 30) << longer.err;
}

// Lines of steps after the checkpoint are of a run that ended later, without one.
TEST_F(TrainCommand, CutsTheLossesToTheCheckpointsStep) {
  ASSERT_EQ(sconce(classify("whole")).exit_code, 0);
  ASSERT_EQ(sconce(classify("run", {"--max-steps", "7"})).exit_code, 0);
  const std::string csv = read_file(file("run/loss.csv"));
  folder_.write("run/loss.csv", csv + "8,2,0.02,0.5,\n9,2,0.02,0");
  const std::vector<std::string> resume = {"train",     model_, "--data",   data_,
                                           "--threads", "1",    "--resume", file("run/checkpoint.pt")};
  std::vector<std::string> elsewhere = resume;
  elsewhere.insert(elsewhere.end(), {"--output", file("elsewhere")});
  ASSERT_EQ(sconce(elsewhere).exit_code, 0);
  EXPECT_EQ(read_file(file("elsewhere/loss.csv")), read_file(file("whole/loss.csv")));
  ASSERT_EQ(sconce(resume).exit_code, 0);
  EXPECT_EQ(read_file(file("run/loss.csv")), read_file(file("whole/loss.csv")));
}

TEST_F(TrainCommand, KeepsTheSplitWhenItGoesOn) {
  ASSERT_EQ(sconce(classify("run", {"--validation-split", "0.2", "--max-steps", "5"})).exit_code, 0);
  expect_usage_error({"train", model_, "--data", data_, "--resume", file("run/checkpoint.pt"), "--seed", "3"},
                     "--seed: also says which examples are for the validation, so it cannot change");
  expect_usage_error({"train", model_, "--data", data_, "--resume", file("run/checkpoint.pt"), "--validation-split", "0.3"},
                     "--validation-split: is 0.3, and the checkpoint's training has 0.2");
  // The best model so far moves along.
  ASSERT_EQ(sconce({"train", model_, "--data", data_, "--resume", file("run/checkpoint.pt"), "--output", file("next"),
                    "--max-steps", "1"})
                .exit_code,
            0);
  expect_equal_models("run/best.pt", "next/best.pt");
}

TEST_F(TrainCommand, TellsOfSettingsThatChangeTheTraining) {
  ASSERT_EQ(sconce(classify("run", {"--max-steps", "7"})).exit_code, 0);
  const ProgramResult result = sconce({"train", model_, "--data", data_, "--resume", file("run/checkpoint.pt"), "--batch",
                                       "10", "--json", "--schedule", "cosine"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "sconce: goes on with another setting: --batch is 10, and was 16\n");
  // 2 of 5 steps of the second epoch are done; 38 examples are left.
  EXPECT_EQ(json_of(result)["steps_done"], 7 + 4 + 7 + 7);
  EXPECT_EQ(json_of(result)["epoch_losses"].size(), 4U);
}

TEST_F(TrainCommand, GoesOnByItselfIfThereIsACheckpoint) {
  ASSERT_EQ(sconce(classify("whole")).exit_code, 0);
  ASSERT_EQ(sconce(classify("part", {"--max-steps", "7", "--resume", "auto"})).exit_code, 0);
  const ProgramResult rest = sconce(classify("part", {"--resume", "auto", "--json"}));
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  EXPECT_EQ(json_of(rest)["steps_before"], 7);
  expect_equal_models("whole/model.pt", "part/model.pt");
  expect_usage_error(classify("part", {"--resume", "auto", "--overwrite"}), "--overwrite: starts again, and --resume auto");

  // As torchrun starts a process again. The first start has replaced the checkpoint of another training.
  ASSERT_EQ(sconce(classify("agent", {"--lr", "0.5"})).exit_code, 0);
  const std::vector<std::string> words = classify("agent", {"--overwrite", "--max-steps", "7"});
  ASSERT_EQ(sconce(words, {{"TORCHELASTIC_RESTART_COUNT", "0"}}).exit_code, 0);
  const ProgramResult again = sconce(words, {{"TORCHELASTIC_RESTART_COUNT", "1"}});
  EXPECT_THAT(again.err, HasSubstr("stopped after step 14 of 20"));
  EXPECT_THAT(sconce(words, {{"TORCHELASTIC_RESTART_COUNT", "2"}}).err, ::testing::IsEmpty());
  expect_equal_models("whole/model.pt", "agent/model.pt");
}

// Steps go on while no checkpoint can be written; the end tells of it.
TEST_F(TrainCommand, GoesOnWithoutRoomForACheckpoint) {
  std::string command = "ulimit -f 4; trap '' XFSZ; exec '" + sconce_binary() + "'";  // no file above 4 KiB
  for (const std::string& word : classify("run", {"--checkpoint-every", "3"})) {
    command += " '" + word + "'";
  }
  const ProgramResult result = run_program("/bin/bash", {"-c", command}, {});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.out, HasSubstr("epoch 4/4  loss "));
  const std::string warning = "sconce: warning: " + file("run/checkpoint.pt") + ": cannot be written: ";
  EXPECT_THAT(result.err, StartsWith(warning));
  EXPECT_EQ(result.err.find(warning, 1), std::string::npos) << "once: " << result.err;
  EXPECT_THAT(result.err, HasSubstr("sconce: error: " + file("run/checkpoint.pt") + ": cannot be written: "));
  EXPECT_FALSE(std::filesystem::exists(file("run/checkpoint.pt")));
  const std::string csv = read_file(file("run/loss.csv"));
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 21) << "what fits is there";
}

TEST_F(TrainCommand, RefusesACheckpointWithAGenerator) {
  c10::Dict<std::string, std::string> old;
  old.insert("format", "sconce train checkpoint 1");
  const std::string path = write_values(folder_, "old.pt", old);
  expect_usage_error({"train", model_, "--data", data_, "--resume", path},
                     "old.pt: was written by an earlier version of 'sconce train', whose steps draw other random numbers");
}

TEST_F(TrainCommand, LeavesTheLastCheckpointWholeWhenTheDiskIsFull) {
  ASSERT_EQ(sconce(classify("run", {"--max-steps", "7"})).exit_code, 0);
  const std::string before = read_file(file("run/checkpoint.pt"));
  std::string command = "ulimit -f 4; trap '' XFSZ; exec '" + sconce_binary() + "'";  // no file above 4 KiB
  for (const std::string& word : std::vector<std::string>{"train", model_, "--data", data_, "--resume", "checkpoint.pt"}) {
    command += " '" + word + "'";
  }
  const ProgramResult result = run_program("/bin/bash", {"-c", "cd '" + file("run") + "'; " + command}, {});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("checkpoint.pt: cannot be written: "));
  EXPECT_EQ(read_file(file("run/checkpoint.pt")), before);
  EXPECT_EQ(cli::read_checkpoint(file("run/checkpoint.pt")).progress.step, 7U);
}

TEST_F(TrainCommand, ChecksTheFolderBeforeTraining) {
  expect_usage_error(classify("points.pt/below"), "points.pt/below: cannot be created: ");
  std::filesystem::create_directories(file("run/checkpoint.pt"));
  expect_usage_error(classify("run"), "run/checkpoint.pt: cannot be written: ");
}

TEST_F(TrainCommand, StopsWhenTheLossIsNotFinite) {
  const std::string data = write_pair(folder_, "large.pt", at::randn({64, 4}), at::full({64, 3}, 1e38));
  const std::vector<std::string> words = {"train",       model_, "--data",   data, "--loss",   "mse",
                                          "--optimizer", "sgd",  "--epochs", "2",  "--output", file("large")};
  expect_refusal(words, "the loss is inf in step 1, epoch 1; a smaller --lr or --clip-norm may help");
}

TEST_F(TrainCommand, ShowsTheLossesBeforeTheOneThatIsNotFinite) {
  const std::string data = write_pair(folder_, "values.pt", at::randn({64, 4}), at::randn({64, 3}));
  const ProgramResult result = sconce({"train", model_, "--data", data, "--loss", "mse", "--optimizer", "sgd", "--lr",
                                       "1000", "--epochs", "50", "--output", file("run")});
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr("in step "));
  const std::string csv = read_file(file("run/loss.csv"));
  const size_t step = std::stoul(result.err.substr(result.err.find("in step ") + 8));
  EXPECT_EQ(static_cast<size_t>(std::count(csv.begin(), csv.end(), '\n')), step);  // a header and the steps before
  EXPECT_GT(step, 2U);
  EXPECT_TRUE(std::filesystem::exists(file("run/report.html")));
  EXPECT_FALSE(std::filesystem::exists(file("run/checkpoint.pt")));
}

}  // namespace
}  // namespace sconce::tests
