// Files that are not what they were given as: the message says what each is, and what to do.
#include "tests/tools/sconce_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace sconce::tests {
namespace {

// What torch.save writes before PyTorch 1.6, up to where it can be told.
const std::string kLegacy = std::string("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 14) + ".\x80\x02";

TEST(Files, ModelsAndCasesInEachOthersPlaceAreToldApart) {
  const std::string model = model_file("mlp.pt");
  const std::string cases = model_file("mlp.cases.pt");
  expect_usage_error({"check", cases, model}, "mlp.pt: is a model (it has the method 'forward'), not a CASES file");
  expect_usage_error({"check", cases, cases}, "mlp.cases.pt: is a CASES file (recorded calls and answers), not a model");
  expect_usage_error({"run", cases, "--input", "3"}, "is a CASES file");
  expect_usage_error({"dump", cases}, "is a CASES file");
  expect_usage_error({"run", model, "--inputs", model}, "is a model (it has the method 'forward'), not a CASES file");
  expect_usage_error({"check", model, model_file("inputs/mlp.inputs.pt")}, "sconce run MODEL --inputs");
}

TEST(Files, OldAndPickledFilesAreNamed) {
  const ScratchFolder scratch;
  const std::string legacy = scratch.write("legacy.pt", kLegacy);
  const std::string pickle = scratch.write("pickle.pt", std::string("\x80\x04K\x01.", 5));
  const std::string model = model_file("mlp.pt");
  expect_usage_error({"run", legacy, "--input", "3"}, "format of torch.save before PyTorch 1.6");
  expect_usage_error({"run", model, "--inputs", legacy}, "torch.save(torch.load(path, weights_only=False), path)");
  expect_usage_error({"run", model, "--inputs", pickle}, "it is a pickle");
  // A state_dict is an OrderedDict, an object of a Python class.
  expect_usage_error({"run", model, "--inputs", model_file("bad/state_dict.pt")},
                     "holds a pickled collections.OrderedDict, which only Python can read");
  expect_usage_error({"run", model_file("bad/state_dict.pt"), "--input", "3"}, "it holds a pickled collections.OrderedDict");
}

// Each byte of what comes first and last in the file, and shorter and shorter files: never more than one line, nothing of
// LibTorch's own code in it. (A flipped weight is no damage that can be seen.)
TEST(Files, DamagedModelsAreOneLineWhateverTheDamage) {
  const ScratchFolder scratch;
  const std::string whole = read_file(model_file("mlp.pt"));
  std::vector<std::string> damaged;
  for (size_t i = 1; i < 6; ++i) {
    damaged.push_back(whole.substr(0, whole.size() * i / 6));
  }
  for (const size_t place : {whole.size() - 5, whole.size() - 15, whole.size() - 25, whole.size() / 2, whole.size() / 3}) {
    damaged.push_back(whole);
    damaged.back()[place] = static_cast<char>(damaged.back()[place] ^ 0x5a);
  }
  for (const std::string& content : damaged) {
    const ProgramResult result = sconce({"run", scratch.write("damaged.pt", content), "--input", "float32[1,16]"});
    EXPECT_THAT(result.exit_code, ::testing::AnyOf(0, 2));
    EXPECT_LE(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    for (const char* insides : {"INTERNAL ASSERT", "enforce fail", "miniz", "frame #", ".cpp"}) {
      EXPECT_THAT(result.err, ::testing::Not(::testing::HasSubstr(insides)));
    }
  }
}

}  // namespace
}  // namespace sconce::tests
