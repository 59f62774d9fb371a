// Event files, which TensorBoard shows.
#pragma once

#include "tools/sconce/values/appended_file.h"

#include <cstddef>
#include <string>

namespace sconce::cli {

class Training;

// Scalars by step: loss and learning_rate of each step, and of each epoch epoch/loss, epoch/validation_loss and
// epoch/METRIC. The format is that of TensorFlow's record files, with events in the encoding of protocol buffers.
class EventFile {
 public:
  // A new file in the folder. What other files there have of steps after `step` is no longer shown.
  EventFile(const std::string& folder, size_t step);

  // Adds the last step that was done.
  void add(const Training& training);
  // Throws UserError; what was added is then written by the next call.
  void flush() { file_.flush(); }

  const std::string& path() const { return file_.path(); }
  // Removes the event files of the folder.
  static void remove_all(const std::string& folder);

 private:
  void add_event(size_t step, const std::string& fields);

  AppendedFile file_;
};

}  // namespace sconce::cli
