// The contract of the command line, as a user meets it: exit codes, and one clear line for every mistake.
#include "tests/tools/sconce_program.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace sconce::tests {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::vector<std::string> kMlpInput = {"--input", "float32[4,16]"};

std::vector<std::string> run_mlp(const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"run", model_file("mlp.pt")};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

// ---- help and usage -------------------------------------------------------------------------------------------------

TEST(CommandLine, HelpOfEveryCommandTeachesExamplesAndExitCodes) {
  const ProgramResult help = sconce({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("SCONCE_DUMP"));
  for (const char* command : {"run", "check", "bench", "dump", "explain", "info", "opt", "passes", "replay"}) {
    EXPECT_THAT(help.out, HasSubstr(command));
    const ProgramResult result = sconce({command, "--help"});
    EXPECT_EQ(result.exit_code, 0) << command;
    EXPECT_THAT(result.out, HasSubstr("Example")) << command;
    EXPECT_THAT(result.out, HasSubstr("Exit codes: 0 ")) << command;
    EXPECT_EQ(result.err, "") << command;
  }
}

TEST(CommandLine, WrongUsageIsOneLine) {
  expect_usage_error({}, "a command is missing");
  EXPECT_THAT(sconce({"--json"}).out, HasSubstr("a command is missing"));
  expect_usage_error({"chek"}, "no command 'chek'; did you mean 'check'?");
  expect_usage_error({"run"}, "MODEL is required");
  expect_usage_error(run_mlp({"--inptus", "x"}), "no option --inptus; did you mean '--inputs'");
  expect_usage_error(run_mlp({"--threads", "0", "--input", "3"}), "--threads: must be from 1 to 1024, not 0");
  expect_usage_error(run_mlp({"--threads", "four", "--input", "3"}),
                     "--threads: must be a whole number from 1 to 1024, not four");
  expect_usage_error({"check", model_file("mlp.pt"), "--rtol", "x"}, "--rtol: must be a number from 0 to ");
  expect_usage_error(run_mlp({"--seed", "x", "--input", "3"}), "--seed: must be a whole number, not x");
  expect_usage_error(run_mlp({"--repeat", "0", "--input", "3"}), "--repeat: must be from 1 to 1000000000, not 0");
  expect_usage_error(run_mlp({"--input", "3", "--inputs", "x"}), "--inputs excludes --input");
  expect_usage_error({"check", model_file("mlp.pt"), model_file("mlp.cases.pt"), "--plan", "teir0"}, "did you mean 'tier0'");
}

TEST(CommandLine, TeachesTheGradientOptionsOfEachCommand) {
  const std::string model = model_file("mlp.pt");
  expect_usage_error({"bench", model, "--no-grad"},
                     "no option --no-grad; bench records no gradients by default; --with-grad turns it on");
  expect_usage_error({"run", model, "--with-grad"}, "no option --with-grad; run records gradients by default");
  expect_usage_error({"explain", model, "--grad"}, "no option --grad; explain records gradients by default");
  expect_usage_error({"check", model, "--no-grad"}, "no option --no-grad; check makes calls with and without gradients");
  expect_usage_error({"dump", model, "--no-grad"}, "no option --no-grad; dump shows plans without gradients by default");
}

// ---- bad files ------------------------------------------------------------------------------------------------------

TEST(CommandLine, BadModelFilesAreExplained) {
  const std::vector<std::pair<std::string, std::string>> files = {
      {"empty.pt", "the file is empty"},
      {"truncated.pt", "truncated or damaged"},
      {"truncated_by_one_byte.pt", "truncated or damaged"},
      {"flipped_start.pt", "not a TorchScript model"},
      {"flipped_code.pt", "damaged"},
      {"flipped_pickle.pt", "damaged"},
      {"flipped_directory.pt", "damaged"},
      {"text.pt", "not a TorchScript model"},
      {"zip.pt", "zip.pt: "},
      {"state_dict.pt", "written by torch.save, not a TorchScript model"},
      {"tensor.pt", "written by torch.save, not a TorchScript model"},
      {"sparse_out_of_range.pt", "size is inconsistent with indices"},
  };
  for (const auto& [name, expected] : files) {
    const std::string path = model_file("bad/" + name);
    expect_usage_error({"run", path, "--input", "float32[4,16]"}, path + ": ");
    expect_usage_error({"run", path, "--input", "float32[4,16]"}, expected);
  }
  // LibTorch warns while it reads this one.
  const ProgramResult csr = sconce({"run", model_file("bad/csr_out_of_range.pt"), "--input", "float32[3,4]"});
  EXPECT_EQ(csr.exit_code, 2);
  EXPECT_THAT(csr.err, HasSubstr("`0 <= col_indices < ncols` is not satisfied"));
  expect_usage_error({"run", "nowhere.pt"}, "nowhere.pt: no such file");
  expect_usage_error({"run", model_file("bad"), "--input", "3"}, "is a directory");
  expect_usage_error({"run", "/dev/null", "--input", "3"}, "/dev/null: is no regular file; copy what it gives into one");
}

TEST(CommandLine, BadFilesAreExplainedByEveryCommand) {
  const std::string bad = model_file("bad/text.pt");
  const std::string good = model_file("mlp.pt");
  expect_usage_error({"check", bad, model_file("mlp.cases.pt")}, "not a TorchScript model");
  expect_usage_error({"check", good, bad}, "not a TorchScript model");
  expect_usage_error({"bench", bad, "--input", "3"}, "not a TorchScript model");
  expect_usage_error({"dump", bad}, "not a TorchScript model");
  expect_usage_error({"explain", bad, "--input", "3"}, "not a TorchScript model");
}

TEST(CommandLine, BadArgumentsAreExplained) {
  expect_usage_error(run_mlp({}), "needs arguments; give them with --inputs FILE or --input SPEC");
  expect_usage_error(run_mlp({"--inputs", "nowhere.pt"}), "nowhere.pt: no such file");
  expect_usage_error(run_mlp({"--inputs", model_file("bad/text.pt")}), "text.pt: ");
  expect_usage_error(run_mlp({"--inputs", model_file("inputs/mlp_too_many.inputs.pt")}), "takes at most 1");
  expect_usage_error(run_mlp({"--inputs", model_file("inputs/mlp_wrong_type.inputs.pt")}), "must be Tensor, not str");
  expect_usage_error(run_mlp({"--inputs", model_file("inputs/mlp_list.inputs.pt")}), "must be Tensor, not List");
  expect_usage_error(run_mlp({"--input", "float32[4,16"}), "bad SPEC 'float32[4,16' at character 13");
  expect_usage_error(run_mlp({"--method", "forwrd", "--input", "3"}), "no method 'forwrd'; did you mean 'forward'?");
  expect_usage_error(run_mlp({"--device", "gpu", "--input", "3"}), "no device 'gpu'; there are cpu, cuda and cuda:N");
  expect_usage_error(run_mlp({"--device", "cuda:99", "--input", "3"}), "cuda");
}

TEST(CommandLine, ErrorsOfTheModelNameTheOperatorAndThePythonLine) {
  for (const char* file : {"inputs/mlp_wrong_dtype.inputs.pt", "inputs/mlp_wrong_shape.inputs.pt"}) {
    const ProgramResult result = sconce(run_mlp({"--inputs", model_file(file)}));
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, StartsWith("sconce: error: mat1 and mat2"));
    EXPECT_THAT(result.err, HasSubstr("aten::linear"));
    EXPECT_THAT(result.err, HasSubstr("linear.py"));
    EXPECT_THAT(result.err, ::testing::Not(HasSubstr("frame #")));
  }
}

TEST(CommandLine, BadOptionFilesAndLibrariesAreExplained) {
  const ScratchFolder scratch;
  const auto with_options = [&](const std::string& content) {
    return run_mlp({"--options", scratch.write("o.json", content)});
  };
  expect_usage_error(with_options("{\"compil\": \"never\"}"), "no option 'compil'; did you mean 'compile'?");
  expect_usage_error(with_options("{\"compile\": 7}"), "'compile' must be");
  expect_usage_error(with_options("{\"compile\":\n  nvr}"), ".json:2:4: not valid JSON: syntax error while parsing value");
  expect_usage_error(with_options("[]"), "must be a JSON object");
  expect_usage_error(run_mlp({"--options", "nowhere.json"}), "nowhere.json: no such file");
  expect_usage_error(run_mlp({"--ops-library", "nowhere.so"}), "nowhere.so: no such file");
  expect_usage_error(run_mlp({"--ops-library", scratch.write("text.so", "no library")}), "text.so: cannot be opened");
  expect_usage_error(run_mlp({"--ops-library", plugin_file("other_version")}),
                     "other_version.so: registers no operator and no class (--ops-library)");
}

TEST(CommandLine, CasesThatDoNotBelongToTheModelAreBadInput) {
  const std::string mlp = model_file("mlp.pt");
  expect_usage_error({"check", mlp, model_file("bad/mlp_too_few_outputs.cases.pt")}, "'inputs' but");
  expect_usage_error({"check", mlp, model_file("bad/mlp_unknown_method.cases.pt")}, "no method 'backwards'");
  expect_usage_error({"check", mlp, model_file("bad/mlp_without_inputs.cases.pt")}, "has no attribute 'inputs'");
  expect_usage_error({"check", mlp, model_file("bad/mlp_unknown_parameter.cases.pt"), "--grad"}, "nowhere.weight");
}

// ---- run ------------------------------------------------------------------------------------------------------------

TEST(CommandLineRun, PrintsResultsForPeopleAndPrograms) {
  const ProgramResult text = sconce(run_mlp(kMlpInput));
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_THAT(text.out, StartsWith("out: float32[4, 4]"));
  EXPECT_EQ(text.err, "");
  const ProgramResult json = sconce(run_mlp({"--input", "float32[4,16]", "--json"}));
  EXPECT_EQ(json_of(json)["output"]["shape"], (std::vector<int>{4, 4}));
  EXPECT_EQ(sconce(run_mlp(kMlpInput)).out, text.out) << "the same seed gives the same numbers";
}

TEST(CommandLineRun, WrittenResultsCanBeReadAsArguments) {
  const ScratchFolder scratch;
  const std::string file = scratch.path() + "/result.pt";
  ASSERT_EQ(sconce(run_mlp({"--input", "float32[16,16]=ones", "--output", file})).exit_code, 0);
  ASSERT_TRUE(std::filesystem::exists(file));
  // Four columns where the model wants sixteen: read well enough to be told so.
  EXPECT_THAT(sconce(run_mlp({"--inputs", file})).err, HasSubstr("16x4"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch.path()), {}), 1) << "nothing else is left behind";
}

TEST(CommandLineRun, UnwritableOutputIsExplained) {
  expect_usage_error(run_mlp({"--input", "float32[4,16]", "--output", "no/such/folder/out.pt"}),
                     "cannot be written: No such file");
  expect_usage_error(run_mlp({"--input", "float32[4,16]", "--output", "/dev/full"}),
                     "cannot be written: No space left on device");
}

TEST(CommandLineRun, TakesTheMethodAndArgumentsOfACasesFile) {
  const ProgramResult result = sconce(
      {"run", model_file("several_methods_encode.pt"), "--inputs", model_file("several_methods_encode.cases.pt"), "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(json_of(result)["method"], "encode");
}

TEST(CommandLineRun, RepeatsOnThreads) {
  const auto json = json_of(sconce(run_mlp({"--input", "float32[4,16]", "--repeat", "5", "--threads", "3", "--json"})));
  EXPECT_EQ(json["calls"], 15);
  EXPECT_GT(json["median_seconds"], 0);
}

TEST(CommandLineRun, FreezesModelsInEvaluationMode) {
  std::vector<std::string> frozen = kMlpInput;
  frozen.emplace_back("--frozen");
  EXPECT_EQ(sconce(run_mlp(frozen)).exit_code, 0);
  expect_refusal(
      {"run", model_file("conv_bn_small_train.pt"), "--inputs", model_file("conv_bn_small_train.cases.pt"), "--frozen"},
      "the module is in training mode");
  const std::string model = model_file("conv_bn_small.pt");
  const std::string cases = model_file("conv_bn_small.cases.pt");
  EXPECT_EQ(sconce({"check", model, cases, "--frozen"}).exit_code, 0);
  expect_usage_error({"check", model, cases, "--frozen", "--grad"}, "take no gradients");
  const ProgramResult dumped = sconce({"dump", model, "--frozen"});
  EXPECT_THAT(dumped.out, ::testing::Not(HasSubstr("prim::GetAttr")));
  EXPECT_THAT(dumped.out, ::testing::Not(HasSubstr("aten::batch_norm")));
  EXPECT_THAT(sconce({"dump", model, "--frozen", "--stage", "all"}).out, HasSubstr("# forward, freeze"));
  expect_usage_error({"dump", model, "--stage", "freeze"}, "nothing is frozen without --frozen");
  const ScratchFolder scratch;
  // With its weights, the graph can be read again.
  const std::string file = scratch.write("frozen.ir", "");
  EXPECT_EQ(sconce({"dump", model, "--frozen", "--output", file}).exit_code, 0);
  const ProgramResult read = sconce({"opt", file, "--passes", "pool_constants"});
  EXPECT_EQ(read.exit_code, 0) << read.err;
  EXPECT_EQ("# forward, optimize\n" + read.out.substr(0, read.out.find("pass ")), dumped.out);
  std::filesystem::remove(file + ".constants.pt");
  const ProgramResult without = sconce({"opt", file, "--passes", "pool_constants"});
  EXPECT_EQ(without.exit_code, 2);
  EXPECT_THAT(without.err, HasSubstr("constant 0 is not among the constants given with the text"));
  const std::string options = scratch.write("o.json", R"({"frozen": true, "preserved": ["head.weight"]})");
  const ProgramResult preserved = sconce({"dump", model, "--options", options});
  EXPECT_THAT(preserved.out, HasSubstr("prim::GetAttr[name=\"weight\"]"));
}

TEST(CommandLineRun, ErrorsAreJsonToo) {
  const ProgramResult result = sconce({"run", "nowhere.pt", "--json"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(json_of(result)["error"], "nowhere.pt: no such file");
  // The message quotes bytes of the damaged file, which are no UTF-8.
  EXPECT_EQ(json_of(sconce({"run", model_file("bad/flipped_pickle.pt"), "--json"}))["exit_code"], 2);
}

// ---- check ----------------------------------------------------------------------------------------------------------

TEST(CommandLineCheck, AgreesWithRecordedAnswersGradientsAndLibTorch) {
  for (const char* name : {"mlp", "conv_bn_small_train", "rng", "aliased_inputs", "control_flow", "script_class_output"}) {
    const ProgramResult result = sconce({"check", model_file(name + std::string(".pt")),
                                         model_file(name + std::string(".cases.pt")), "--grad", "--plan", "all", "--json"});
    EXPECT_EQ(result.exit_code, 0) << name << "\n" << result.out << result.err;
    EXPECT_TRUE(json_of(result)["good"]) << name;
    EXPECT_EQ(json_of(result)["plans"].dump(), R"(["tier0","tier1"])");
  }
}

TEST(CommandLineCheck, ChecksTheHighestPlansInPlaceOfThoseThatAreNotMadeYet) {
  const ProgramResult result = sconce({"check", model_file("mlp.pt"), "--input", "float32[4,16]", "--plan", "tier2"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err,
            "sconce: note: this build of sconce makes no plans of tier2; checked are those of tier1, its highest\n");
  EXPECT_THAT(result.out, HasSubstr("plans: tier1)"));
}

TEST(CommandLineCheck, TakesArgumentsInPlaceOfRecordedCalls) {
  const std::string model = model_file("mlp.pt");
  const ProgramResult good = sconce({"check", model, "--input", "float32[4,16]", "--grad", "--threads", "2"});
  EXPECT_EQ(good.exit_code, 0) << good.err;
  EXPECT_EQ(
      good.out,
      "1 of 1 cases agree (3 calls each, also from 2 threads, with gradients, with LibTorch alone, plans: tier0, tier1)\n");
  const ProgramResult of_file = sconce({"check", model, "--inputs", model_file("mlp.cases.pt"), "--json"});
  EXPECT_EQ(of_file.exit_code, 0);
  EXPECT_TRUE(json_of(of_file)["cases_file"].is_null());
  EXPECT_EQ(json_of(of_file)["cases"], 1);
  const ProgramResult beside = sconce({"check", model});
  EXPECT_THAT(beside.out, HasSubstr("5 of 5 cases agree"));

  expect_usage_error({"check", model, "--input", "float32[4,16]", "2"}, "takes at most 1");
  expect_usage_error({"check", model, model_file("mlp.cases.pt"), "--inputs", "x.pt"}, "excludes");
  const ScratchFolder scratch;
  const std::string alone = write_model(scratch, "alone.pt", "def forward(self, x):\n    return x\n");
  expect_usage_error({"check", alone}, "which calls? give arguments with --input SPEC");
}

TEST(CommandLineCheck, ChecksAMethodThatTakesNoArguments) {
  const ScratchFolder scratch;
  const std::string model = write_model(scratch, "m.pt",
                                        "def forward(self, x):\n    return x\n\n"
                                        "def width(self) -> int:\n    return 10\n\n"
                                        "def draw(self, size: int = 3):\n    return torch.rand(size)\n");
  for (const char* method : {"width", "draw"}) {
    const ProgramResult result = sconce({"check", model, "--method", method});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("1 of 1 cases agree (3 calls each, with LibTorch alone"));
  }
  expect_usage_error({"check", model, "--method", "widht"}, "the model has no method 'widht'; did you mean 'width'?");
}

// several_methods.cases.pt records calls of forward.
TEST(CommandLineCheck, TakesTheCasesBesideTheModelForTheirMethodAlone) {
  const std::string model = model_file("several_methods.pt");
  const std::string of_another = "several_methods.cases.pt records calls of 'forward', not of 'encode'";
  expect_usage_error({"check", model, "--method", "encode"}, of_another);
  EXPECT_THAT(sconce({"check", model, "--method", "width"}).out,
              HasSubstr("1 of 1 cases agree (3 calls each, with LibTorch alone"));
  EXPECT_THAT(json_of(sconce({"check", model, "--method", "forward", "--json"}))["cases_file"].dump(),
              HasSubstr("several_methods.cases.pt"));
  expect_usage_error({"bench", model, "--method", "encode"}, of_another);
}

TEST(CommandLineCheck, FindsWrongAnswersGradientsAndBuffers) {
  const ProgramResult output = sconce({"check", model_file("mlp.pt"), model_file("bad/mlp_wrong_output.cases.pt")});
  EXPECT_EQ(output.exit_code, 1);
  EXPECT_THAT(output.out, HasSubstr("against recorded answer: out: 1 of "));
  EXPECT_THAT(output.out, HasSubstr("largest error 1 absolute"));

  const std::vector<std::string> grads = {"check", model_file("mlp.pt"), model_file("bad/mlp_wrong_grad.cases.pt")};
  EXPECT_EQ(sconce(grads).exit_code, 0) << "gradients are compared when asked for";
  std::vector<std::string> with_grad = grads;
  with_grad.push_back("--grad");
  EXPECT_EQ(sconce(with_grad).exit_code, 1);

  const ProgramResult buffer = sconce({"check", model_file("conv_bn_small_train.pt"),
                                       model_file("bad/conv_bn_small_train_wrong_buffer.cases.pt"), "--json"});
  EXPECT_EQ(buffer.exit_code, 1);
  EXPECT_EQ(json_of(buffer)["failing_cases"], std::vector<std::string>{"case 0"});
}

TEST(CommandLineCheck, WhatOneSideDoesToTheThreadIsNotSeenByTheOther) {
  const ScratchFolder scratch;
  const std::string model = write_model(scratch, "switches.pt",
                                        "def forward(self, x):\n    on = torch.is_grad_enabled()\n"
                                        "    torch.set_grad_enabled(False)\n    return on, x + 1\n");
  const std::string cases = scratch.path() + "/switches.cases.pt";
  torch::jit::Module module("Cases");
  const auto one = c10::ivalue::Tuple::create(at::ones({2}));
  c10::impl::GenericList inputs(one->type());
  inputs.push_back(one);
  c10::impl::GenericList outputs(c10::TupleType::create({c10::BoolType::get(), c10::TensorType::get()}));
  outputs.push_back(c10::ivalue::Tuple::create(true, at::ones({2}) + 1));
  module.register_attribute("inputs", c10::ListType::create(inputs.elementType()), inputs);
  module.register_attribute("outputs", c10::ListType::create(outputs.elementType()), outputs);
  module.save(cases);
  const ProgramResult result = sconce({"check", model, cases, "--threads", "2"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
}

TEST(CommandLineCheck, SaysThatBothSidesRejectTheInputs) {
  const ProgramResult both = sconce({"check", model_file("mlp.pt"), model_file("bad/mlp_wrong_dtype_inputs.cases.pt")});
  EXPECT_EQ(both.exit_code, 1);
  EXPECT_THAT(both.out,
              HasSubstr("against recorded answer: call: no result: sconce and LibTorch both raise, with the same text; "
                        "the model rejects these inputs: mat1 and mat2"));
  EXPECT_THAT(both.out, ::testing::Not(HasSubstr("against LibTorch")));
}

TEST(CommandLineCheck, ListsFailingOperatorsByName) {
  const std::string good = model_file("operators.cases.pt");
  EXPECT_EQ(sconce({"check", good, good, "--grad", "--calls", "1"}).exit_code, 0);
  const std::string wrong = model_file("bad/operators_wrong_output.cases.pt");
  const ProgramResult result = sconce({"check", wrong, wrong, "--calls", "1"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, StartsWith("FAILED add"));
  EXPECT_THAT(result.out, HasSubstr("cases agree"));
  const std::string wrong_grad = model_file("bad/operators_wrong_grad.cases.pt");
  EXPECT_EQ(sconce({"check", wrong_grad, wrong_grad, "--grad", "--calls", "1"}).exit_code, 1);
}

TEST(CommandLineCheck, ToleranceOfTheCommandLineReplacesThatOfTheCases) {
  EXPECT_EQ(sconce({"check", model_file("mlp.pt"), model_file("bad/mlp_wrong_output.cases.pt"), "--atol", "2"}).exit_code,
            0);
}

// ---- the other commands ---------------------------------------------------------------------------------------------

TEST(CommandLineBench, PutsRatiosFirstAndNamesWhatIsNotAvailable) {
  const std::vector<std::string> bench = {"bench", model_file("conv_bn_small_train.pt"), "--seconds", "0.05"};
  const ProgramResult text = sconce(bench);
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("executor"));
  EXPECT_THAT(text.out, HasSubstr("1.00x"));
  EXPECT_THAT(text.out, HasSubstr("jit-frozen: n/a: freezing needs eval mode"));
  const auto json = json_of(sconce(
      {"bench", model_file("mlp.pt"), "--input", "float32[2,16]", "--against", "jit,eager", "--seconds", "0.05", "--json"}));
  ASSERT_EQ(json["calls"][0]["executors"].size(), 3);
  for (const auto& row : json["calls"][0]["executors"]) {
    EXPECT_TRUE(row["correct"]) << row;
    EXPECT_EQ(row["first_calls_seconds"].size(), 10) << row;
  }
  expect_usage_error({"bench", model_file("mlp.pt"), "--against", "jti"}, "no executor 'jti'; did you mean 'jit'");
}

// Calls of one model repeat its warnings; a check makes many, in sconce and in LibTorch, from several threads.
TEST(CommandLineCheck, ShowsAWarningOfLibTorchOnce) {
  const ScratchFolder scratch;
  const std::string model =
      write_model(scratch, "warns.pt", "def forward(self, x: Tensor):\n    return x[0].var(), x[1:2].std()\n");
  const ProgramResult result = sconce({"check", model, "--input", "float32[3]", "--threads", "3"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  for (const char* warning : {"Warning: var(): degrees of freedom", "Warning: std(): degrees of freedom"}) {
    const size_t first = result.err.find(warning);
    ASSERT_NE(first, std::string::npos) << result.err;
    EXPECT_EQ(result.err.find(warning, first + 1), std::string::npos) << result.err;
  }
}

TEST(CommandLineBench, TrainsWithEveryExecutorThatTrains) {
  for (const char* optimizer : {"sgd", "adam"}) {
    const auto json = json_of(sconce({"bench", model_file("mlp.pt"), "--train", optimizer, "--against", "jit,eager,static",
                                      "--seconds", "0.01", "--json"}));
    for (const auto& row : json["calls"][0]["executors"]) {
      EXPECT_EQ(row["executor"] != "static", row.value("correct", false)) << row;
    }
  }
  const ProgramResult others =
      sconce({"bench", model_file("mlp.pt"), "--train", "sgd", "--against", "static,jit-frozen", "--seconds", "0.01"});
  EXPECT_EQ(others.exit_code, 0) << others.err;
  EXPECT_THAT(others.out, HasSubstr("static: n/a: Static Runtime does not train"));
  EXPECT_THAT(others.out, HasSubstr("jit-frozen: n/a: a frozen model does not train"));
  expect_usage_error({"bench", model_file("mlp.pt"), "--train", "adm"}, "no optimizer 'adm'; did you mean 'adam'");
  expect_usage_error({"bench", model_file("mlp.pt"), "--train", "sgd", "--threads", "2"}, "leave out --threads");
}

TEST(CommandLineDump, PrintsStagesThatOptReadsBack) {
  const ScratchFolder scratch;
  const ProgramResult dumped = sconce({"dump", model_file("control_flow.pt"), "--stage", "inline"});
  ASSERT_EQ(dumped.exit_code, 0) << dumped.err;
  const ProgramResult optimized = sconce(
      {"opt", scratch.write("m.ir", dumped.out), "--passes", "canonicalize_ops,eliminate_dead_nodes", "--verify-each"});
  EXPECT_EQ(optimized.exit_code, 0) << optimized.err;
  EXPECT_THAT(optimized.out, StartsWith("graph("));
  EXPECT_THAT(optimized.err, HasSubstr("eliminate_dead_nodes"));
  expect_usage_error({"opt", model_file("mlp.pt"), "--passes", "peephole"}, "is an archive, not a graph in text form");
  const ProgramResult all = sconce({"dump", model_file("mlp.pt"), "--stage", "all", "--json"});
  EXPECT_EQ(json_of(all)["dumps"].size(), 4);
}

TEST(CommandLineOpt, ShowsWhatEachPassChanged) {
  const ScratchFolder scratch;
  const std::string file = scratch.write("m.ir",
                                         "graph(%x : Tensor):\n"
                                         "  %dead : Tensor = aten::neg(%x)\n"
                                         "  %y : Tensor = aten::relu(%x)\n"
                                         "  return (%y)\n");
  const std::vector<std::string> call = {"opt", file, "--passes", "peephole,eliminate_dead_nodes", "--diff"};
  EXPECT_EQ(sconce(call).out,
            "--- before eliminate_dead_nodes\n"
            "+++ after eliminate_dead_nodes\n"
            "@@ -1,4 +1,3 @@\n"
            " graph(%x : Tensor):\n"
            "-  %dead : Tensor = aten::neg(%x)\n"
            "   %y : Tensor = aten::relu(%x)\n"
            "   return (%y)\n");
  std::vector<std::string> as_json = call;
  as_json.push_back("--json");
  const auto passes = json_of(sconce(as_json))["passes"];
  EXPECT_EQ(passes.at(0)["diff"], "");
  EXPECT_THAT(passes.at(1)["diff"].get<std::string>(), HasSubstr("-  %dead"));
}

TEST(Dump, ShowsTheKernelsOfACall) {
  const std::vector<std::string> command = {
      "dump", model_file("gru_loop.pt"), "--inputs", model_file("gru_loop.cases.pt"), "--format", "kernel"};
  const ProgramResult text = sconce(command);
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("# kernel 0: chunk add sigmoid add sigmoid mul add tanh sub"));
  EXPECT_THAT(text.out, HasSubstr("%0 = load.Float 0"));
  EXPECT_THAT(text.out, HasSubstr("define void @kernel(ptr %operands"));
  EXPECT_THAT(text.out, HasSubstr("# assembly"));
  std::vector<std::string> with_json = command;
  with_json.emplace_back("--json");
  const auto first = json_of(sconce(with_json))["dumps"][0];
  EXPECT_THAT(first["groups"][0].get<std::string>(), HasSubstr("sigmoid mul add tanh"));
  EXPECT_THAT(first["assembly"].get<std::string>(), HasSubstr("kernel:"));
}

TEST(CommandLineDump, MarksWhatEachStageChangesOnOnePage) {
  const ProgramResult page = sconce({"dump", model_file("lstm_loop.pt"), "--stage", "all", "--format", "html"});
  ASSERT_EQ(page.exit_code, 0) << page.err;
  EXPECT_THAT(page.out, StartsWith("<!DOCTYPE html>"));
  EXPECT_THAT(page.out, HasSubstr("<h2>optimize</h2>"));
  EXPECT_THAT(page.out, ::testing::Not(HasSubstr("http"))) << "it needs no network";
  // The call is gone, and what was called is there.
  EXPECT_THAT(page.out, ::testing::ContainsRegex("<span class=\"gone\">[^<]*prim::CallMethod"));
  EXPECT_THAT(page.out, ::testing::ContainsRegex("<span class=\"new\">[^<]*aten::sigmoid"));
  EXPECT_THAT(page.out, ::testing::Not(::testing::ContainsRegex("<span class=\"new\">[^<]*prim::CallMethod")));
}

TEST(CommandLineDump, DrawsAndShowsPlans) {
  EXPECT_THAT(sconce({"dump", model_file("mlp.pt"), "--format", "dot"}).out, HasSubstr("digraph"));
  EXPECT_THAT(sconce({"dump", model_file("mlp.pt"), "--format", "svg"}).out, HasSubstr("<svg"));
  EXPECT_THAT(sconce({"dump", model_file("mlp.pt"), "--format", "plan"}).out, HasSubstr("aten::linear"));
  expect_usage_error({"dump", model_file("mlp.pt"), "--format", "kernel"}, "needs arguments");
  expect_usage_error({"dump", model_file("mlp.pt"), "--format", "kernel", "--stage", "load"}, "leave --stage out");
  expect_usage_error({"dump", model_file("mlp.pt"), "--format", "pdf"}, "no 'pdf'");
  expect_usage_error({"dump", model_file("mlp.pt"), "--stage", "laod"}, "did you mean 'load'");
  const ProgramResult no_dot = sconce({"dump", model_file("mlp.pt"), "--format", "svg"}, {{"PATH", "/nowhere"}});
  EXPECT_EQ(no_dot.exit_code, 2);
  EXPECT_THAT(no_dot.err, HasSubstr("install graphviz, or use --format dot"));
}

TEST(CommandLineExplain, TellsPlansAndCounters) {
  const ProgramResult text = sconce({"explain", model_file("mlp.pt"), "--input", "float32[4,16]"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("generic plan"));
  const auto json = json_of(sconce({"explain", model_file("mlp.pt"), "--input", "float32[4,16]", "--calls", "5", "--json"}));
  EXPECT_EQ(json["counters"]["invocations"], 5);
  ASSERT_EQ(json["plans"].size(), 2);
  EXPECT_EQ(json["plans"][0]["tier"], "tier0");
  EXPECT_THAT(json["plans"][1]["text"].get<std::string>(), HasSubstr("sconce::differentiable"));
}

TEST(CommandLineOpt, ShowsThePlaceInMalformedText) {
  const ScratchFolder scratch;
  const std::string file = scratch.write("bad.ir", "graph(%x : Tensor):\n  %y : Tensor = aten::relu(%z)\n  return (%y)\n");
  const ProgramResult result = sconce({"opt", file, "--passes", "eliminate_dead_nodes"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, StartsWith("sconce: error: " + file + ":2:"));
  EXPECT_THAT(result.err, HasSubstr("^"));
  expect_usage_error({"opt", file, "--passes", "eliminate_dead_node"}, "did you mean 'eliminate_dead_nodes'");
  expect_usage_error({"opt", "nowhere.ir", "--passes", "eliminate_dead_nodes"}, "nowhere.ir: no such file");
  expect_usage_error({"opt", file}, "--passes is required");
}

TEST(CommandLinePasses, ListsNamesHelpAndWhere) {
  EXPECT_THAT(sconce({"passes"}).out, HasSubstr("eliminate_dead_nodes"));
  for (const auto& pass : json_of(sconce({"passes", "--json"}))) {
    EXPECT_FALSE(pass["help"].get<std::string>().empty());
  }
}

// ---- what users met -------------------------------------------------------------------------------------------------

// The parser of options would take "[1,2]" for two values.
TEST(CommandLine, AListIsOneSpec) {
  expect_usage_error(run_mlp({"--input", "[1,2]"}), "Tensor");
  const ProgramResult lists =
      sconce({"run", model_file("several_methods.pt"), "--method", "width", "--input", "[float32[2],float32[2]]"});
  EXPECT_EQ(lists.exit_code, 2) << "one argument too many, not two";
  EXPECT_THAT(lists.err, HasSubstr("1"));
}

TEST(CommandLine, TheInlinedGraphOfAModelCanBeReadAgain) {
  const ProgramResult dump = sconce({"dump", model_file("resnet18.pt"), "--stage", "inline"});
  ASSERT_EQ(dump.exit_code, 0) << dump.err;
  const std::filesystem::path file = std::filesystem::path(::testing::TempDir()) / "inlined.ir";
  std::ofstream(file) << dump.out;
  const ProgramResult opt =
      sconce({"opt", file.string(), "--passes", "canonicalize_ops,eliminate_dead_nodes", "--verify-each"});
  EXPECT_EQ(opt.exit_code, 0) << opt.err;
  EXPECT_THAT(opt.out, HasSubstr("aten::conv2d"));
}

TEST(CommandLine, AnOutputThatCannotBeWrittenIsAnError) {
  const ProgramResult result = run_program("/bin/sh", {"-c", "'" + sconce_binary() + "' passes > /dev/full"}, {});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("the output could not be written"));
}

TEST(CommandLine, TellsItsVersion) { EXPECT_THAT(sconce({"--version"}).out, StartsWith("sconce 0.")); }

}  // namespace
}  // namespace sconce::tests
