// The files of a training.
#pragma once

#include <filesystem>
#include <string>

namespace sconce::cli {

class TrainFolder {
 public:
  explicit TrainFolder(std::filesystem::path path) : path_(std::move(path)) {}

  // Makes the folder. Throws UserError if that is impossible, files cannot be written there, or it has a checkpoint other
  // than `resumed`, unless that may be overwritten. Takes over the best model from the folder of `resumed`.
  void prepare(const std::string& resumed, bool overwrite) const;

  std::string model() const { return file("model.pt"); }
  std::string best() const { return file("best.pt"); }
  std::string checkpoint() const { return file("checkpoint.pt"); }
  std::string loss_csv() const { return file("loss.csv"); }
  std::string epochs_csv() const { return file("epochs.csv"); }
  std::string svg() const { return file("loss.svg"); }
  std::string page() const { return file("report.html"); }
  std::string path() const { return path_.string(); }

 private:
  std::string file(const char* name) const { return (path_ / name).string(); }

  std::filesystem::path path_;
};

}  // namespace sconce::cli
