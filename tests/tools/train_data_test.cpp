// The files that sconce train reads examples from.
#include "tests/tools/train_command.h"
#include "tools/sconce/report/errors.h"
#include "tools/sconce/train/data_source.h"
#include "tools/sconce/values/stored_tensors.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

namespace sconce::tests {
namespace {

using ::testing::HasSubstr;

std::string bytes_of(const at::Tensor& tensor) {
  const at::Tensor plain = tensor.contiguous();
  return {static_cast<const char*>(plain.const_data_ptr()), plain.nbytes()};
}

// What numpy.save writes; `header` without the padding.
std::string npy_file(const std::string& header, const std::string& elements) {
  std::string text = header;
  text.append(63 - (10 + text.size()) % 64, ' ');
  text += '\n';
  const auto length = static_cast<uint16_t>(text.size());
  return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(length & 0xff) + static_cast<char>(length >> 8) + text +
         elements;
}
std::string npy_file(const std::string& dtype, const std::string& shape, const std::string& elements) {
  return npy_file("{'descr': '" + dtype + "', 'fortran_order': False, 'shape': (" + shape + "), }", elements);
}

std::string safetensors_file(const std::string& header, const std::string& elements) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header + elements;
}
// As the package of Python writes it: {"__metadata__": ..., "targets": ..., "inputs": ...}.
std::string pair_as_safetensors(const at::Tensor& inputs, const at::Tensor& targets) {
  const auto entry = [](const char* name, const char* dtype, const at::Tensor& tensor, size_t begin) {
    std::string shape;
    for (const int64_t size : tensor.sizes()) {
      shape += (shape.empty() ? "" : ",") + std::to_string(size);
    }
    return "\"" + std::string(name) + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + shape + "],\"data_offsets\":[" +
           std::to_string(begin) + "," + std::to_string(begin + tensor.nbytes()) + "]}";
  };
  const size_t begin = targets.nbytes();
  return safetensors_file(R"({"__metadata__":{"format":"pt"},)" + entry("targets", "I64", targets, 0) + "," +
                              entry("inputs", "F32", inputs, begin) + "}      ",
                          bytes_of(targets) + bytes_of(inputs));
}

at::Tensor tensor_of(const std::vector<c10::IValue>& values, size_t number = 0) { return values[number].toTensor(); }

void expect_user_error(const std::function<void()>& call, const std::string& message) {
  try {
    call();
    ADD_FAILURE() << "no error; expected: " << message;
  } catch (const cli::UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr(message));
  }
}

class TrainData : public ::testing::Test {
 protected:
  std::shared_ptr<const cli::DataSource> open(const std::string& name) const {
    return cli::open_data({.data = {folder_.path() + "/" + name}}, "--data");
  }
  void expect_bad(const std::string& name, const std::string& content, const std::string& message) const {
    folder_.write(name, content);
    expect_user_error([&] { open(name); }, name + message);
  }

  const ScratchFolder folder_;
  const at::Tensor inputs_ = at::randn({12, 3, 2});
  const at::Tensor targets_ = at::randint(0, 9, {12}, at::kLong);
  const at::Tensor some_ = at::tensor({7, 8, 9, 0, 11, 3}, at::kLong);
};

TEST_F(TrainData, ReadsNpyFiles) {
  for (const auto& [dtype, type] : {std::pair("<f4", at::kFloat), std::pair("<f8", at::kDouble), std::pair("<f2", at::kHalf),
                                    std::pair("<i4", at::kInt), std::pair("|u1", at::kByte), std::pair("|b1", at::kBool)}) {
    const at::Tensor inputs = (inputs_ * 10).abs().to(type);
    const cli::DataFiles files{{folder_.write("x.npy", npy_file(dtype, "12, 3, 2", bytes_of(inputs)))},
                               {folder_.write("y.npy", npy_file("<i8", "12,", bytes_of(targets_)))}};
    const auto data = cli::open_data(files, "--data");
    EXPECT_EQ(data->examples(), 12);
    const cli::TrainBatch batch = data->read(some_);
    EXPECT_TRUE(at::equal(tensor_of(batch.inputs), inputs.index_select(0, some_))) << dtype;
    EXPECT_TRUE(at::equal(tensor_of(batch.targets), targets_.index_select(0, some_)));
  }
}

TEST_F(TrainData, ReadsSafetensorsAndShards) {
  folder_.write("a.safetensors", pair_as_safetensors(inputs_.slice(0, 0, 5), targets_.slice(0, 0, 5)));
  folder_.write("b.safetensors", pair_as_safetensors(inputs_.slice(0, 5, 8), targets_.slice(0, 5, 8)));
  write_pair(folder_, "c.pt", inputs_.slice(0, 8).clone(), targets_.slice(0, 8).clone());
  for (const std::string& list :
       {"a.safetensors," + folder_.path() + "/b.safetensors," + folder_.path() + "/c.pt", std::string("?.*t*")}) {
    const auto data = open(list);
    EXPECT_EQ(data->examples(), 12) << list;
    for (const at::Tensor& numbers : {some_, at::arange(12)}) {
      EXPECT_TRUE(at::equal(tensor_of(data->read(numbers).inputs), inputs_.index_select(0, numbers))) << list;
      EXPECT_TRUE(at::equal(tensor_of(data->read(numbers).targets), targets_.index_select(0, numbers))) << list;
    }
  }
  expect_user_error([&] { open("*.tfrecord"); }, "*.tfrecord: no file has such a name");
  write_pair(folder_, "d.pt", at::zeros({2, 3}), at::zeros({2}, at::kLong));
  expect_user_error([&] { open("?.*t*"); }, "d.pt: inputs has examples of float32[3], and ");
}

TEST_F(TrainData, ReadsLargeFilesOfTorchSaveWhenTheyAreNeeded) {
  const std::string first = write_pair(folder_, "a.pt", inputs_.slice(0, 0, 5).clone(), targets_.slice(0, 0, 5).clone());
  const std::string second = write_pair(folder_, "b.pt", inputs_.slice(0, 5).clone(), targets_.slice(0, 5).clone());
  const auto data = cli::open_data({.data = {first + "," + second}, .most_in_memory = 0}, "--data");
  for (const at::Tensor& numbers : {some_, at::arange(12)}) {
    EXPECT_TRUE(at::equal(tensor_of(data->read(numbers).inputs), inputs_.index_select(0, numbers)));
    EXPECT_TRUE(at::equal(tensor_of(data->read(numbers).targets), targets_.index_select(0, numbers)));
  }
  std::filesystem::resize_file(second, 100);
  expect_user_error([&] { data->read(some_); }, "b.pt: ends before byte ");
}

TEST_F(TrainData, ReadsMoreFilesThanAProcessHasOpen) {
  std::vector<at::Tensor> parts;
  for (int64_t shard = 0; shard < 1100; ++shard) {
    parts.push_back(at::full({1, 2}, static_cast<double>(shard), at::kFloat));
    const std::string number = std::to_string(10000 + shard);
    folder_.write("shard-" + number + ".safetensors", pair_as_safetensors(parts.back(), at::zeros({1}, at::kLong)));
  }
  const auto data = open("shard-*.safetensors");
  const at::Tensor numbers = at::tensor({1099, 0, 500}, at::kLong);
  EXPECT_TRUE(at::equal(tensor_of(data->read(numbers).inputs), at::cat(parts).index_select(0, numbers)));
}

TEST_F(TrainData, ReadsTheRecordsOfTorchSave) {
  const at::Tensor wide = at::randn({12, 5, 3});
  const at::Tensor turned = at::randn({5, 12}).t();
  const std::string path = write_pair(folder_, "data.pt", c10::ivalue::Tuple::create({inputs_, wide.slice(0, 3, 9), turned}),
                                      c10::List<at::Tensor>({targets_, targets_}));
  const cli::TorchRecords records(path);
  const auto& inputs = records.value().toTupleRef().elements()[0].toTupleRef().elements();
  const auto rows = cli::rows_of("inputs[0]", records.find("inputs[0]", inputs[0].toTensor()));
  EXPECT_TRUE(at::equal(rows->read(some_), inputs_.index_select(0, some_)));
  const auto part = cli::rows_of("inputs[1]", records.find("inputs[1]", inputs[1].toTensor()));
  EXPECT_EQ(part->count(), 6);
  EXPECT_TRUE(at::equal(part->read(at::arange(6)), wide.slice(0, 3, 9)));
  expect_user_error([&] { records.find("inputs[2]", inputs[2].toTensor()); },
                    "inputs[2] is float32[12, 5] with its elements");
}

TEST_F(TrainData, NamesWhatIsWrongWithAFile) {
  const std::string elements = bytes_of(inputs_);
  const auto bad_npy = [&](const std::string& content, const std::string& message) {
    folder_.write("x.npy", content);
    expect_user_error([&] { cli::find_npy_tensor(folder_.path() + "/x.npy"); }, "x.npy" + message);
  };
  bad_npy(npy_file("<f4", "13, 3, 2", elements), ": is cut short: it has 288 bytes of elements, and its header names 312");
  bad_npy(npy_file("<f4", "4611686018427387904, 3, 2", elements), ": is cut short: it has 288 bytes of elements, and its");
  bad_npy(npy_file(">f4", "12, 3, 2", elements), ": is in big-endian byte order (>f4)");
  bad_npy(npy_file("<U5", "12", elements), ": has the dtype <U5, which train does not read");
  bad_npy(npy_file("{'descr': '<f4', 'fortran_order': True, 'shape': (12, 6), }", elements), ": is in Fortran order");
  bad_npy(npy_file("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (12,), }", elements), ": holds records");
  bad_npy(npy_file("<f4", "12, 3, 2", elements).substr(0, 30), ": is a damaged .npy file: its header ends behind");
  bad_npy(npy_file("<f4", std::string(60000, ' '), elements), ": holds records");
  bad_npy("short", ": is no .npy file");
  expect_bad("x.npy", npy_file("<f4", "12, 3, 2", elements), ": .npy files hold one array; name that of the targets with");

  const std::string good = pair_as_safetensors(inputs_, targets_);
  expect_bad("x.safetensors", good.substr(0, good.size() - 1), ": is cut short: 'inputs' ends behind the end of the file");
  expect_bad("x.safetensors", good.substr(0, 20), ": is no safetensors file, or a damaged one: its header ends behind");
  expect_bad("x.safetensors", "", ": is no safetensors file, or a damaged one");
  expect_bad("x.safetensors", safetensors_file("{ no JSON", "abc"),
             ": is no safetensors file, or a damaged one: its header");
  expect_bad("x.safetensors", safetensors_file(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "abcd"),
             ": has no tensor 'inputs'; there are: x; name them inputs and targets");
  expect_bad("x.safetensors", safetensors_file(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "abcd"),
             ": is no safetensors file, or a damaged one: 'x' cannot have the size");
  expect_bad("x.safetensors", safetensors_file(R"({"x":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]}})", "ab"),
             ": x has the dtype F8_E4M3");
}

// A file that becomes shorter during the training ends it, and the training goes on from where it was.
TEST_F(TrainCommand, GoesOnAfterAFileThatWasCutShort) {
  at::manual_seed(3);
  const at::Tensor inputs = at::randn({64, 4});
  const at::Tensor targets = at::randint(0, 3, {64}, at::kLong);
  const std::string path = folder_.write("data.safetensors", pair_as_safetensors(inputs, targets));
  const std::vector<std::string> common = {"--loss", "cross_entropy", "--optimizer", "adam", "--epochs", "2000", "--batch",
                                           "16",     "--no-shuffle",  "--threads",   "1"};
  const auto train = [&](const std::string& output, std::vector<std::string> more) {
    more.insert(more.begin(), {"train", model_, "--data", path, "--output", file(output)});
    more.insert(more.end(), common.begin(), common.end());
    return more;
  };
  ASSERT_EQ(sconce(train("whole", {})).exit_code, 0);
  std::string command = "'" + sconce_binary() + "'";
  for (const std::string& word : train("part", {"--progress"})) {
    command += " '" + word + "'";
  }
  const std::string err = file("err");
  command += " 2> '" + err + "' & child=$!; until grep -q 'epoch 3/' '" + err +
             "' || ! kill -0 $child; do sleep 0.02; done; cp '" + path + "' '" + path + ".whole'; truncate -s 1000 '" +
             path + "'; wait $child; code=$?; mv '" + path + ".whole' '" + path + "'; exit $code";
  const ProgramResult cut = run_program("/bin/bash", {"-c", command}, {});
  EXPECT_EQ(cut.exit_code, 2);
  EXPECT_THAT(read_file(err), HasSubstr("data.safetensors: ends before byte "));
  const ProgramResult resumed =
      sconce({"train", model_, "--data", path, "--threads", "1", "--resume", file("part/checkpoint.pt")});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  expect_equal_models("whole/model.pt", "part/model.pt");
}

TEST_F(TrainCommand, TrainsAlikeOnAllKindsOfFiles) {
  at::manual_seed(4);
  const at::Tensor inputs = at::randn({40, 4});
  const at::Tensor targets = at::randint(0, 3, {40}, at::kLong);
  const std::string pair = write_pair(folder_, "pair.pt", inputs, targets);
  const std::string tensors = folder_.write("pair.safetensors", pair_as_safetensors(inputs, targets));
  const std::string x = folder_.write("x.npy", npy_file("<f4", "40, 4", bytes_of(inputs)));
  const std::string y = folder_.write("y.npy", npy_file("<i8", "40,", bytes_of(targets)));
  const auto train = [&](const std::string& output, const std::vector<std::string>& data) {
    std::vector<std::string> words = {"train",    model_,       "--loss",      "cross_entropy",
                                      "--output", file(output), "--optimizer", "adamw",
                                      "--epochs", "2",          "--threads",   "1"};
    words.insert(words.end(), data.begin(), data.end());
    const ProgramResult result = sconce(words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
  };
  train("a", {"--data", pair, "--validation", pair});
  train("b", {"--data", tensors, "--validation", tensors});
  train("c", {"--data", x, "--targets", y, "--validation", x, "--validation-targets", y});
  expect_equal_models("a/model.pt", "b/model.pt");
  expect_equal_models("a/model.pt", "c/model.pt");
  EXPECT_EQ(read_file(file("a/loss.csv")), read_file(file("c/loss.csv")));

  expect_usage_error({"train", model_, "--data", x, "--data", x, "--targets", y, "--loss", "cross_entropy", "--optimizer",
                      "sgd", "--epochs", "1", "--output", file("x")},
                     "forward");
  expect_usage_error({"train", model_, "--data", pair, "--targets", y, "--loss", "mse", "--optimizer", "sgd", "--epochs",
                      "1", "--output", file("x")},
                     "--targets, which is for .npy files");
}

}  // namespace
}  // namespace sconce::tests
