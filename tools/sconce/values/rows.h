// Tensors whose first dimension counts examples, read a few rows at a time, from memory or from files.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace sconce::cli {

// A file that is read part by part and not mapped: one that another process cuts short gives an error.
class OpenFile {
 public:
  // Throws UserError with one line that begins with the path.
  explicit OpenFile(std::string path);
  ~OpenFile();
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }
  // Throws UserError if the file has fewer bytes there.
  void read(uint64_t position, void* buffer, size_t bytes) const;

 private:
  const std::string path_;
  int descriptor_ = -1;
  uint64_t size_ = 0;
};

// Where the elements of a dense tensor are in a file, in row-major order and in this machine's byte order.
struct StoredTensor {
  std::shared_ptr<const OpenFile> file;
  uint64_t position = 0;
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> sizes;
};

class ExampleRows {
 public:
  virtual ~ExampleRows() = default;

  int64_t count() const { return count_; }
  at::ScalarType dtype() const { return dtype_; }
  const std::vector<int64_t>& sizes_of_row() const { return sizes_of_row_; }
  size_t bytes_of_row() const { return bytes_of_row_; }
  // Where they come from, "data.pt: inputs[1]", for messages.
  const std::string& name() const { return name_; }

  // Copies rows [begin, end).
  virtual void read(int64_t begin, int64_t end, char* buffer) const = 0;

  // Returns rows with these numbers (int64, one dimension), in this order.
  at::Tensor read(const at::Tensor& numbers) const;

 protected:
  ExampleRows(std::string name, at::ScalarType dtype, const std::vector<int64_t>& sizes);

 private:
  const std::string name_;
  const at::ScalarType dtype_;
  const int64_t count_;
  const std::vector<int64_t> sizes_of_row_;
  const size_t bytes_of_row_;
};

// Throw UserError for tensors that have no rows, or that are sparse, quantized or on another device.
std::unique_ptr<ExampleRows> rows_of(const std::string& name, const at::Tensor& tensor);
std::unique_ptr<ExampleRows> rows_of(const std::string& name, StoredTensor tensor);
// Returns the rows of all parts, one part after the other. Throws UserError if their dtypes or sizes differ.
std::unique_ptr<ExampleRows> joined_rows(std::vector<std::unique_ptr<ExampleRows>> parts);

}  // namespace sconce::cli
