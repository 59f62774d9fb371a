// Samples in the report of sconce train.
#include "tests/tools/train_command.h"
#include "tools/sconce/report/errors.h"
#include "tools/sconce/report/image.h"
#include "tools/sconce/train/samples.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <cstring>

namespace sconce::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string decoded(const std::string& base64) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : base64) {
    if (c == '=') {
      break;
    }
    bits = bits << 6 | static_cast<uint32_t>(digits.find(c));
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes += static_cast<char>(bits >> count);
    }
  }
  return bytes;
}

int32_t int_at(const std::string& bytes, size_t place) {
  int32_t number = 0;
  std::memcpy(&number, bytes.data() + place, sizeof number);
  return number;
}

// Returns uint8 [3, height, width] of the bitmap in the element.
at::Tensor drawn(const at::Tensor& image) {
  const std::string html = cli::image_element(image);
  const std::string before = "src=\"data:image/bmp;base64,";
  const size_t begin = html.find(before) + before.size();
  const std::string bytes = decoded(html.substr(begin, html.find('"', begin) - begin));
  EXPECT_EQ(bytes.substr(0, 2), "BM");
  EXPECT_EQ(int_at(bytes, 2), static_cast<int32_t>(bytes.size()));
  const int32_t start = int_at(bytes, 10);
  const int32_t width = int_at(bytes, 18);
  const int32_t height = int_at(bytes, 22);
  EXPECT_EQ(bytes[28], 24);
  const int32_t row = (3 * width + 3) / 4 * 4;
  EXPECT_EQ(static_cast<int32_t>(bytes.size()), start + row * height);
  at::Tensor pixels = at::empty({3, height, width}, at::kByte);
  for (int32_t y = 0; y < height; ++y) {
    for (int32_t x = 0; x < width; ++x) {
      for (int32_t channel = 0; channel < 3; ++channel) {
        const auto place = static_cast<size_t>(start + (height - 1 - y) * row + 3 * x + 2 - channel);
        pixels[channel][y][x] = static_cast<uint8_t>(bytes[place]);
      }
    }
  }
  return pixels;
}

TEST(TrainSamples, DrawImagesOfAllForms) {
  const at::Tensor bytes = at::randint(0, 256, {3, 7, 9}, at::kByte);
  EXPECT_TRUE(at::equal(drawn(bytes), bytes));
  EXPECT_TRUE(at::equal(drawn(bytes.to(at::kFloat) / 255), bytes)) << "0 is black, 1 is white";
  const at::Tensor gray = bytes.slice(0, 0, 1);
  EXPECT_TRUE(at::equal(drawn(gray), gray.expand({3, 7, 9})));
  EXPECT_TRUE(at::equal(drawn(gray[0].to(at::kHalf) / 255), gray.expand({3, 7, 9})));
  // Other numbers are spread from black to white.
  const at::Tensor spread = at::linspace(-3, 5, 36).reshape({6, 6});
  EXPECT_TRUE(at::equal(drawn(spread)[0], (at::linspace(0, 1, 36).reshape({6, 6}) * 255).round().to(at::kByte)));
  EXPECT_TRUE(at::equal(drawn(at::full({6, 6}, std::nan(""))), at::zeros({3, 6, 6}, at::kByte)));
  // Half of a color, on white.
  const at::Tensor transparent = at::cat({at::zeros({3, 6, 6}), at::full({1, 6, 6}, 0.4)});
  EXPECT_TRUE(at::equal(drawn(transparent), at::full({3, 6, 6}, 153, at::kByte)));
  const at::Tensor large = at::rand({1, 200, 100});
  EXPECT_EQ(drawn(large).sizes(), (std::vector<int64_t>{3, 50, 25}));
  for (const at::Tensor& other : {at::zeros({7}), at::zeros({2, 7, 9}), at::zeros({7, 5}), at::zeros({7, 9}, at::kLong)}) {
    EXPECT_FALSE(cli::is_image(other)) << other.sizes();
  }
}

cli::Sample sample(int64_t number, double loss) { return {.number = number, .loss = loss}; }

TEST(TrainSamples, AreTheBestAndTheWorst) {
  std::vector<cli::Sample> examples;
  for (int64_t i = 0; i < 40; ++i) {
    examples.push_back(sample(i, static_cast<double>(i * 7 % 40)));
  }
  const cli::Samples chosen = cli::best_and_worst(examples);
  EXPECT_EQ(chosen.examples, 40);
  std::vector<double> losses;
  for (const cli::Sample& each : chosen.samples) {
    losses.push_back(each.loss);
  }
  EXPECT_THAT(losses, ::testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 32, 33, 34, 35, 36, 37, 38, 39));
  EXPECT_EQ(cli::best_and_worst({sample(0, 2), sample(1, 1)}).samples.front().number, 1);
}

TEST(TrainSamples, ShowWhatTheyHold) {
  cli::Sample each = sample(5, 0.25);
  each.inputs = {at::tensor({1, 0, 7}, at::kLong), at::tensor({0.5, -2.0})};
  each.targets = {at::scalar_tensor(2, at::kLong)};
  each.results = {at::tensor({0.1, 0.2, 0.7}), at::zeros({2, 3})};
  const cli::Samples samples{.are_of_validation = true, .examples = 1, .samples = {each}};
  const std::string html = cli::samples_html(samples, {"the", "<cat>"});
  EXPECT_THAT(html,
              AllOf(HasSubstr("<td>5</td><td>0.25</td>"), HasSubstr("<td>&lt;cat&gt; the [7]</td>"),
                    HasSubstr("<td>0.5 &nbsp;-2</td>"), HasSubstr("<td>2<br/><small>0.1 &nbsp;0.2 &nbsp;0.7</small></td>"),
                    HasSubstr("float32[2, 3]"), HasSubstr("<th>result 1</th>"), HasSubstr("of the validation")));
  EXPECT_THAT(cli::samples_html(samples, {}), HasSubstr("<td>1 &nbsp;0 &nbsp;7</td>"));
  EXPECT_THAT(cli::samples_html({.why_none = "a & b"}, {}), HasSubstr("None: a &amp; b"));
}

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t place = text.find(part); place != std::string::npos; place = text.find(part, place + 1)) {
    ++count;
  }
  return count;
}

TEST_F(TrainCommand, ShowsSamplesOfTheTrainedModel) {
  const std::string model = write_trainable(folder_, "images.pt", {{"a", at::randn({3, 64}) * 0.1}}, R"(
def forward(self, x):
    return torch.linear(x.flatten(1), self.a)
)");
  const std::string data =
      write_pair(folder_, "images_data.pt", at::rand({40, 1, 8, 8}), at::randint(0, 3, {40}, at::kLong));
  const std::vector<std::string> words = {"train",       model, "--data",   data, "--loss",   "cross_entropy",
                                          "--optimizer", "sgd", "--epochs", "1",  "--output", file("run")};
  ASSERT_EQ(sconce(words).exit_code, 0);
  const std::string page = read_file(file("run/report.html"));
  EXPECT_EQ(count_of(page, "<img "), 16U);
  EXPECT_THAT(page, HasSubstr("Of the first 40 examples of the training data"));

  // A stopped training has none yet.
  std::vector<std::string> stopped = words;
  stopped.insert(stopped.end(), {"--overwrite", "--max-steps", "1"});
  ASSERT_EQ(sconce(stopped).exit_code, 0);
  EXPECT_THAT(read_file(file("run/report.html")), Not(HasSubstr("Samples")));
}

TEST_F(TrainCommand, ShowsSequencesByAVocabulary) {
  const std::string model = write_trainable(folder_, "tagger.pt", {{"a", at::randn({4, 4})}}, R"(
def forward(self, x):
    return torch.embedding(self.a, x).transpose(1, 2)
)");
  const at::Tensor words = at::randint(0, 4, {12, 5}, at::kLong);
  const std::string data = write_pair(folder_, "words.pt", words, words.flip(1));
  const std::string vocabulary = folder_.write("vocabulary.txt", "zero\none\r\ntwo\nthree\n");
  std::vector<std::string> arguments = {"train",       model,       "--data",       data,      "--loss",  "cross_entropy",
                                        "--optimizer", "sgd",       "--epochs",     "1",       "--batch", "6",
                                        "--output",    file("run"), "--vocabulary", vocabulary};
  ASSERT_EQ(sconce(arguments).exit_code, 0);
  const std::string page = read_file(file("run/report.html"));
  const std::vector<const char*> names = {"zero", "one", "two", "three"};
  std::string first;
  for (int64_t i = 0; i < 5; ++i) {
    first += (first.empty() ? "" : " ") + std::string(names[static_cast<size_t>(words[0][i].item<int64_t>())]);
  }
  EXPECT_THAT(page, HasSubstr("<td>" + first + "</td>"));
  EXPECT_GE(count_of(page, "<tr>"), 13U);
  arguments.back() = folder_.write("empty.txt", "");
  arguments.emplace_back("--overwrite");
  expect_usage_error(arguments, "empty.txt: has no tokens; a vocabulary has one in each line");
}

// A loss of whole batches.
TEST_F(TrainCommand, SaysWhyThereAreNoSamples) {
  const std::string model = write_trainable(folder_, "mean.pt", {{"a", at::randn({1, 4})}}, R"(
def forward(self, x):
    return torch.linear(x, self.a).mean()
)");
  torch::jit::Module loss("Loss");
  loss.define("def forward(self, y, t):\n    return (y - t.sum()).square()\n");
  loss.save(file("loss.pt"));
  const ProgramResult trained = sconce({"train", model, "--data", data_, "--loss-module", file("loss.pt"), "--optimizer",
                                        "sgd", "--lr", "1e-6", "--epochs", "1", "--output", file("mean")});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_THAT(read_file(file("mean/report.html")), HasSubstr("None: the model returns float32[] for 32 examples"));
}

}  // namespace
}  // namespace sconce::tests
