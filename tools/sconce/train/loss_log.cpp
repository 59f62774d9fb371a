#include "tools/sconce/train/loss_log.h"

#include "report/number_format.h"
#include "tools/sconce/train/training.h"
#include "tools/sconce/values/write_file.h"

#include <cstdlib>
#include <fstream>

namespace sconce::cli {
namespace {

constexpr const char* kColumns = "step,epoch,learning_rate,loss,validation_loss";

}  // namespace

LossLog::LossLog(std::string path, std::string before, size_t steps)
    : path_(std::move(path)), before_(std::move(before)), steps_before_(steps) {}

void LossLog::add(const Training& training) {
  constexpr int kDigits = 9;  // a float's
  const TrainHistory& history = training.history();
  const bool is_last = training.is_at_end_of_epoch();
  const Series* validation = is_last ? history.find(TrainHistory::kValidationLoss) : nullptr;
  const bool is_validated = validation != nullptr && validation->values.back() == validation->values.back();
  const Progress& progress = training.progress();
  const std::string line = std::to_string(progress.step) + "," + std::to_string(progress.epoch + (is_last ? 0 : 1)) + "," +
                           format_number(training.learning_rate_of(progress.step - 1), kDigits) + "," +
                           format_number(history.last_loss, kDigits) + "," +
                           (is_validated ? format_number(validation->values.back(), kDigits) : "") + "\n";
  if (file_) {
    file_->add(line);
  } else {
    first_lines_ += line;
  }
}

uint64_t LossLog::begin_file() const {
  uint64_t length = 0;
  write_file(path_, [&](const ByteSink& sink) {
    const auto put = [&](const std::string& line) {
      sink((line + "\n").c_str(), line.size() + 1);
      length += line.size() + 1;
    };
    put(kColumns);
    std::string line;
    std::ifstream file(steps_before_ == 0 ? "" : before_);
    if (std::getline(file, line) && line == kColumns) {
      while (std::getline(file, line) && std::strtoull(line.c_str(), nullptr, 10) <= steps_before_) {
        put(line);
      }
    }
  });
  return length;
}

void LossLog::flush() {
  if (!file_) {
    file_.emplace(path_, begin_file());
    file_->add(first_lines_);
    first_lines_.clear();
  }
  file_->flush();
}

}  // namespace sconce::cli
