#include "tools/sconce/train/train_folder.h"

#include "tools/sconce/report/errors.h"
#include "tools/sconce/values/write_file.h"

namespace sconce::cli {

void TrainFolder::prepare(const std::string& resumed, bool overwrite) const {
  std::error_code error;
  std::filesystem::create_directories(path_, error);
  if (error) {
    throw UserError(path_.string() + ": cannot be created: " + error.message());
  }
  expect_writable(checkpoint());
  std::error_code ignored;
  const bool is_resumed = !resumed.empty() && std::filesystem::equivalent(checkpoint(), resumed, ignored);
  if (std::filesystem::exists(checkpoint()) && !is_resumed && !overwrite) {
    throw UserError(checkpoint() + ": exists; go on with --resume " + checkpoint() +
                    ", name another folder with --output, or start again with --overwrite");
  }
  const TrainFolder before(std::filesystem::path(resumed).parent_path());
  if (!resumed.empty() && !is_resumed && std::filesystem::exists(before.best())) {
    std::filesystem::copy_file(before.best(), best(), std::filesystem::copy_options::overwrite_existing, error);
    if (error) {
      throw UserError(best() + ": cannot be written: " + error.message());
    }
  }
}

}  // namespace sconce::cli
