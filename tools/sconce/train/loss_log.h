// loss.csv: a line for each step, appended while the training runs.
#pragma once

#include "tools/sconce/values/appended_file.h"

#include <cstdint>
#include <optional>
#include <string>

namespace sconce::cli {

class Training;

// Lines "step,epoch,learning_rate,loss,validation_loss", both counted from 1. The validation's loss is in the last step of
// its epoch.
class LossLog {
 public:
  // Goes on after `steps` steps of the file `before`, which may be `path` itself; later lines are cut off. Writes nothing.
  LossLog(std::string path, std::string before, size_t steps);

  // Adds the last step that was done.
  void add(const Training& training);
  // Writes the lines that were added. Throws UserError; they are then written by the next call.
  void flush();

 private:
  // Makes a file of the lines that stay. Returns its length.
  uint64_t begin_file() const;

  const std::string path_;
  const std::string before_;
  const size_t steps_before_;
  std::string first_lines_;  // before there is a file
  std::optional<AppendedFile> file_;
};

}  // namespace sconce::cli
