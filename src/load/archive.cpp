#include "load/archive.h"

#include <c10/util/Exception.h>
#include <caffe2/serialize/inline_container.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

namespace sconce {

std::string first_line(const std::string& message) { return message.substr(0, message.find('\n')); }

namespace {

// Opens the file as a zip archive: LibTorch's other readers trust the offsets in its directory.
std::unique_ptr<caffe2::serialize::PyTorchStreamReader> open_zip(const std::string& path, const std::string& what,
                                                                 const std::string& remedy) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  TORCH_CHECK(std::filesystem::exists(status), path, ": no such file");
  TORCH_CHECK(!std::filesystem::is_directory(status), path, ": is a directory, not ", what);
  std::ifstream file(path, std::ios::binary);
  TORCH_CHECK(file.good(), path, ": cannot be opened: ", std::strerror(errno));
  std::array<char, 4> magic{};
  file.read(magic.data(), magic.size());
  TORCH_CHECK(file.gcount() > 0, path, ": the file is empty");
  const bool is_zip = file.gcount() == 4 && std::memcmp(magic.data(), "PK\x03\x04", 4) == 0;
  TORCH_CHECK(is_zip, path, ": not ", what, " (it is not a zip file); ", remedy);
  try {
    return std::make_unique<caffe2::serialize::PyTorchStreamReader>(path);
  } catch (const c10::Error& failure) {
    TORCH_CHECK(false, path, ": truncated or damaged: ", first_line(failure.what_without_backtrace()));
  }
}

}  // namespace

void check_archive(const std::string& path) {
  const std::string remedy = "write the model with torch.jit.script(model).save(path)";
  const auto reader = open_zip(path, "a TorchScript model", remedy);
  TORCH_CHECK(reader->hasRecord("constants.pkl"), path, ": ",
              reader->hasRecord("data.pkl") ? "written by torch.save, not a TorchScript model; " + remedy
                                            : "a zip file, but not a TorchScript archive (it has no constants.pkl)");
  TORCH_CHECK(reader->hasRecord("data.pkl"), path, ": damaged TorchScript archive: it has no data.pkl");
}

void check_arguments_archive(const std::string& path) {
  const auto reader = open_zip(path, "a file of arguments", "write it with torch.save((x, y), path)");
  TORCH_CHECK(reader->hasRecord("data.pkl"), path, ": a zip file, but it holds no value (it has no data.pkl)");
}

}  // namespace sconce
