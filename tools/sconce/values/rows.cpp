#include "tools/sconce/values/rows.h"

#include "tools/sconce/report/errors.h"
#include "tools/sconce/values/compare.h"

#include <ATen/ops/empty.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <numeric>

namespace sconce::cli {
namespace {

std::vector<int64_t> sizes_after_first(const std::string& name, const std::vector<int64_t>& sizes) {
  if (sizes.empty()) {
    throw UserError(name + " has no dimensions, and its first dimension should count the examples");
  }
  return {sizes.begin() + 1, sizes.end()};
}

size_t size_of_row(at::ScalarType dtype, const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), c10::elementSize(dtype), std::multiplies<>());
}

class RowsInMemory final : public ExampleRows {
 public:
  RowsInMemory(const std::string& name, const at::Tensor& tensor)
      : ExampleRows(name, tensor.scalar_type(), tensor.sizes().vec()), tensor_(tensor.contiguous()) {}

  void read(int64_t begin, int64_t end, char* buffer) const override {
    const auto* data = static_cast<const char*>(tensor_.const_data_ptr());
    std::memcpy(buffer, data + static_cast<size_t>(begin) * bytes_of_row(),
                static_cast<size_t>(end - begin) * bytes_of_row());
  }

 private:
  const at::Tensor tensor_;
};

class RowsInFile final : public ExampleRows {
 public:
  RowsInFile(const std::string& name, StoredTensor tensor)
      : ExampleRows(name, tensor.dtype, tensor.sizes), file_(std::move(tensor.file)), position_(tensor.position) {}

  void read(int64_t begin, int64_t end, char* buffer) const override {
    file_->read(position_ + static_cast<uint64_t>(begin) * bytes_of_row(), buffer,
                static_cast<size_t>(end - begin) * bytes_of_row());
  }

 private:
  const std::shared_ptr<const OpenFile> file_;
  const uint64_t position_;
};

std::vector<int64_t> sizes_together(const std::vector<std::unique_ptr<ExampleRows>>& parts) {
  std::vector<int64_t> sizes = {0};
  sizes.insert(sizes.end(), parts.front()->sizes_of_row().begin(), parts.front()->sizes_of_row().end());
  for (const auto& part : parts) {
    sizes.front() += part->count();
  }
  return sizes;
}

class JoinedRows final : public ExampleRows {
 public:
  explicit JoinedRows(std::vector<std::unique_ptr<ExampleRows>> parts)
      : ExampleRows(parts.front()->name(), parts.front()->dtype(), sizes_together(parts)), parts_(std::move(parts)) {
    int64_t end = 0;
    for (const auto& part : parts_) {
      ends_.push_back(end += part->count());
    }
  }

  void read(int64_t begin, int64_t end, char* buffer) const override {
    auto part = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin());
    for (; begin < end; ++part) {
      const int64_t first = ends_[part] - parts_[part]->count();
      const int64_t stop = std::min(end, ends_[part]);
      parts_[part]->read(begin - first, stop - first, buffer);
      buffer += static_cast<size_t>(stop - begin) * bytes_of_row();
      begin = stop;
    }
  }

 private:
  const std::vector<std::unique_ptr<ExampleRows>> parts_;
  std::vector<int64_t> ends_;  // of each part, among all rows
};

}  // namespace

OpenFile::OpenFile(std::string path) : path_(std::move(path)), descriptor_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (descriptor_ < 0) {
    throw UserError(path_ + (errno == ENOENT ? ": no such file" : std::string(": cannot be read: ") + std::strerror(errno)));
  }
  struct stat status{};
  if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    throw UserError(path_ + (S_ISDIR(status.st_mode) ? ": is a directory, not a file" : ": is no regular file"));
  }
  size_ = static_cast<uint64_t>(status.st_size);
}

OpenFile::~OpenFile() { ::close(descriptor_); }

void OpenFile::read(uint64_t position, void* buffer, size_t bytes) const {
  for (size_t done = 0; done < bytes;) {
    const ssize_t count =
        ::pread(descriptor_, static_cast<char*>(buffer) + done, bytes - done, static_cast<off_t>(position + done));
    if (count < 0 && errno != EINTR) {
      throw UserError(path_ + ": cannot be read: " + std::strerror(errno));
    }
    if (count == 0) {
      throw UserError(path_ + ": ends before byte " + std::to_string(position + done) +
                      ", where it has elements by its header; it was cut short, so copy it again");
    }
    done += static_cast<size_t>(std::max<ssize_t>(count, 0));
  }
}

ExampleRows::ExampleRows(std::string name, at::ScalarType dtype, const std::vector<int64_t>& sizes)
    : name_(std::move(name)),
      dtype_(dtype),
      count_(sizes.empty() ? 0 : sizes.front()),
      sizes_of_row_(sizes_after_first(name_, sizes)),
      bytes_of_row_(size_of_row(dtype, sizes_of_row_)) {}

at::Tensor ExampleRows::read(const at::Tensor& numbers) const {
  std::vector<int64_t> sizes = {numbers.size(0)};
  sizes.insert(sizes.end(), sizes_of_row_.begin(), sizes_of_row_.end());
  at::Tensor rows = at::empty(sizes, dtype_);
  char* buffer = static_cast<char*>(rows.mutable_data_ptr());
  const at::Tensor plain = numbers.contiguous();
  const int64_t* const number = plain.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < plain.size(0);) {
    int64_t run = 1;  // rows that follow each other in the file, too
    while (i + run < plain.size(0) && number[i + run] == number[i] + run) {
      ++run;
    }
    read(number[i], number[i] + run, buffer);
    buffer += static_cast<size_t>(run) * bytes_of_row_;
    i += run;
  }
  return rows;
}

std::unique_ptr<ExampleRows> rows_of(const std::string& name, const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided || tensor.is_quantized() || !tensor.device().is_cpu()) {
    throw UserError(name + " is a sparse, quantized or non-CPU tensor; train takes dense tensors on the CPU");
  }
  if (tensor.dim() == 0) {
    throw UserError(name + " is " + describe_tensor_type(tensor) + ", without a first dimension that counts the examples");
  }
  return std::make_unique<RowsInMemory>(name, tensor.detach().resolve_conj().resolve_neg());
}

std::unique_ptr<ExampleRows> rows_of(const std::string& name, StoredTensor tensor) {
  return std::make_unique<RowsInFile>(name, std::move(tensor));
}

std::unique_ptr<ExampleRows> joined_rows(std::vector<std::unique_ptr<ExampleRows>> parts) {
  if (parts.size() == 1) {
    return std::move(parts.front());
  }
  const ExampleRows& first = *parts.front();
  for (const auto& part : parts) {
    if (part->dtype() != first.dtype() || part->sizes_of_row() != first.sizes_of_row()) {
      const auto row = [](const ExampleRows& rows) {
        return describe_tensor_type(at::empty(rows.sizes_of_row(), at::TensorOptions(rows.dtype()).device(at::kMeta)));
      };
      throw UserError(part->name() + " has examples of " + row(*part) + ", and " + first.name() + " of " + row(first) +
                      "; all files of a list must be alike");
    }
  }
  return std::make_unique<JoinedRows>(std::move(parts));
}

}  // namespace sconce::cli
