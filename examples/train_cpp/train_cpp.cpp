// Trains a TorchScript model in C++: loads it, trains it on data that this program makes, shows the loss, and saves it for
// Python.
//
//   train_cpp spirals.pt trained.pt [EPOCHS]
#include <sconce/sconce.h>

#include <ATen/ATen.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/optim/adam.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

namespace {

constexpr int64_t kPoints = 2048;
constexpr int64_t kBatch = 128;

struct Data {
  at::Tensor points;   // float32 [kPoints, 2]
  at::Tensor spirals;  // int64 [kPoints], 0 or 1
};

// Makes points of two spirals, with noise.
Data make_data() {
  at::manual_seed(1);
  const at::Tensor spirals = at::randint(2, {kPoints}, at::kLong);
  const at::Tensor radius = at::rand({kPoints}) * 0.95 + 0.05;
  const at::Tensor angle = radius * (3 * M_PI) + spirals * M_PI;
  const at::Tensor points = at::stack({radius * angle.cos(), radius * angle.sin()}, 1);
  return {points + at::randn_like(points) * 0.01, spirals};
}

// Draws the losses as a curve of `kColumns` by `kRows` characters.
void draw_curve(const std::vector<double>& losses) {
  constexpr size_t kColumns = 64;
  constexpr size_t kRows = 10;
  const size_t columns = std::min(kColumns, losses.size());
  std::vector<double> means;
  for (size_t column = 0; column < columns; ++column) {
    const size_t begin = column * losses.size() / columns;
    const size_t end = (column + 1) * losses.size() / columns;
    double sum = 0;
    for (size_t i = begin; i < end; ++i) {
      sum += losses[i];
    }
    means.push_back(sum / static_cast<double>(end - begin));
  }
  const double top = *std::max_element(means.begin(), means.end());
  for (size_t row = 0; row < kRows; ++row) {
    const double upper = top * static_cast<double>(kRows - row) / kRows;
    const double lower = top * static_cast<double>(kRows - row - 1) / kRows;
    std::string line;
    for (const double mean : means) {
      const bool is_here = mean > lower && (mean <= upper || row == 0);
      line += is_here || (row + 1 == kRows && mean <= lower) ? '*' : ' ';
    }
    std::printf("%7.3f |%s\n", upper, line.c_str());
  }
  std::printf("   loss +%s\n%*zu steps\n", std::string(columns, '-').c_str(), static_cast<int>(columns + 3), losses.size());
}

// Shows how far the training is: a bar that moves on a terminal, else a line for every tenth.
void show_progress(int64_t epoch, int64_t epochs, double loss, double accuracy) {
  const bool is_terminal = isatty(STDERR_FILENO) != 0;
  const bool is_last = epoch == epochs;
  if (!is_terminal && !is_last && epoch % std::max<int64_t>(1, epochs / 10) != 0) {
    return;
  }
  const auto filled = static_cast<size_t>(30 * epoch / epochs);
  std::fprintf(stderr, "%s[%s%s] epoch %lld of %lld, loss %.4f, %.1f %% right%s", is_terminal ? "\r" : "",
               std::string(filled, '#').c_str(), std::string(30 - filled, '.').c_str(), static_cast<long long>(epoch),
               static_cast<long long>(epochs), loss, 100 * accuracy, is_terminal && !is_last ? "" : "\n");
}

// Saves under another name first, so that the file is complete or not there.
void save(const sconce::Module& model, const std::string& path) {
  const std::string partial = path + ".partial";
  model.script_module().save(partial);
  std::filesystem::rename(partial, path);
}

// Throws an error before hours of training if the model could not be saved after them.
void expect_writable(const sconce::Module& model, const std::string& path) {
  if (std::filesystem::is_directory(path)) {
    throw std::runtime_error("it is a folder");
  }
  const std::string partial = path + ".partial";
  model.script_module().save(partial);
  std::filesystem::remove(partial);
}

// Returns the loss of every step.
std::vector<double> train(sconce::Module& model, const Data& data, int64_t epochs) {
  torch::optim::Adam optimizer(model.parameters(), torch::optim::AdamOptions(3e-3));
  model.train();
  std::vector<double> losses;
  for (int64_t epoch = 1; epoch <= epochs; ++epoch) {
    const at::Tensor order = at::randperm(kPoints, at::kLong);
    double right = 0;
    for (int64_t begin = 0; begin < kPoints; begin += kBatch) {
      const at::Tensor batch = order.slice(0, begin, begin + kBatch);
      const at::Tensor expected = data.spirals.index_select(0, batch);
      optimizer.zero_grad();
      const at::Tensor scores = model.forward({data.points.index_select(0, batch)}).toTensor();
      const at::Tensor loss = at::cross_entropy_loss(scores, expected);
      loss.backward();
      optimizer.step();
      losses.push_back(loss.item<double>());
      right += scores.argmax(1).eq(expected).sum().item<double>();
    }
    show_progress(epoch, epochs, losses.back(), right / kPoints);
  }
  model.eval();
  return losses;
}

// Returns the error in one line: without LibTorch's stack trace.
std::string reason_of(const std::exception& failure) {
  const auto* error = dynamic_cast<const c10::Error*>(&failure);
  const std::string message = error != nullptr ? error->what_without_backtrace() : failure.what();
  return message.substr(0, message.find('\n'));
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t epochs = argc == 4 ? std::atoll(argv[3]) : 60;
  if (argc < 3 || argc > 4 || epochs < 1) {
    std::fprintf(stderr, "usage: %s MODEL.pt TRAINED.pt [EPOCHS]\n", argv[0]);
    return 2;
  }
  const std::string output = argv[2];
  try {
    sconce::Module model = sconce::load(argv[1]);
    try {
      expect_writable(model, output);
    } catch (const std::exception& failure) {
      throw std::runtime_error(output + ": cannot be written: " + reason_of(failure));
    }
    const std::vector<double> losses = train(model, make_data(), epochs);
    draw_curve(losses);
    save(model, output);
    std::printf("%s: trained, read it with torch.jit.load\n", output.c_str());
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "%s: error: %s\n", argv[0], reason_of(failure).c_str());
    return 1;
  }
  return 0;
}
