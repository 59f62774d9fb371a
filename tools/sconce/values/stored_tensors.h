// Finds tensors in files whose elements are stored as they are in memory: .npy, safetensors, and what torch.save writes.
#pragma once

#include "load/check/archive.h"
#include "tools/sconce/values/rows.h"

#include <ATen/core/ivalue.h>

#include <map>
#include <memory>
#include <string>

namespace sconce::cli {

// Reads the header of a file of `numpy.save`. Throws UserError with one line that begins with the path: for files that are
// no .npy files or are cut short, for arrays in Fortran order or another byte order, and for dtypes that LibTorch lacks.
StoredTensor find_npy_tensor(const std::string& path);

// Reads the header of a file of safetensors: tensors by name. Throws UserError with one line that begins with the path.
std::map<std::string, StoredTensor> find_safetensors(const std::string& path);

// What torch.save wrote, without the elements of its tensors.
class TorchRecords {
 public:
  // Throws UserError or c10::Error with one line that begins with the path.
  explicit TorchRecords(const std::string& path);

  // The elements of its tensors are zeros.
  const c10::IValue& value() const { return value_; }
  // Throws UserError, which begins with `name`, if the elements do not follow each other in the file.
  StoredTensor find(const std::string& name, const at::Tensor& tensor) const;

 private:
  const std::shared_ptr<const OpenFile> file_;
  const CheckedArchive checked_;
  const c10::IValue value_;  // its storages are address space of `checked_`, at the places that they have in the file
};

}  // namespace sconce::cli
