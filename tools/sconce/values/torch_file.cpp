#include "tools/sconce/values/torch_file.h"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/jit_type.h>
#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/serialization/pickler.h>

#include <string>
#include <unordered_map>
#include <unordered_set>

namespace sconce::cli {
namespace {

// Copies containers, with elements of any type: the pickler writes a list of ints or floats as a call of its own. Undefined
// tensors become None, as Python shows them.
class TypeEraser {
 public:
  c10::IValue erase(const c10::IValue& value) {
    if (value.isTensor() && !value.toTensor().defined()) {
      return {};
    }
    if (!value.isList() && !value.isGenericDict() && !value.isTuple()) {
      return value;
    }
    // A container that stands at two places is still one when the file is read.
    if (const auto found = erased_.find(value); found != erased_.end()) {
      return found->second;
    }
    return erased_.emplace(value, erased_container(value)).first->second;
  }

 private:
  c10::IValue erased_container(const c10::IValue& value) {
    if (value.isList()) {
      c10::impl::GenericList list(c10::AnyType::get());
      for (const c10::IValue& element : value.toListRef()) {
        list.push_back(erase(element));
      }
      return list;
    }
    if (value.isGenericDict()) {
      const auto entries = value.toGenericDict();
      c10::impl::GenericDict dict(entries.keyType(), c10::AnyType::get());
      for (const auto& entry : entries) {
        dict.insert(entry.key(), erase(entry.value()));
      }
      return dict;
    }
    std::vector<c10::IValue> elements;
    for (const c10::IValue& element : value.toTupleRef().elements()) {
      elements.push_back(erase(element));
    }
    return c10::ivalue::Tuple::create(std::move(elements));
  }

  std::unordered_map<c10::IValue, c10::IValue, c10::IValue::HashAliasedIValue, c10::IValue::CompAliasedIValues> erased_;
};

}  // namespace

std::vector<char> torch_file(const c10::IValue& value) {
  std::vector<char> file;
  write_torch_file(value, [&file](const char* data, size_t bytes) { file.insert(file.end(), data, data + bytes); });
  return file;
}

void write_torch_file(const c10::IValue& value, const ByteSink& sink) {
  std::string pickle;
  std::unordered_map<const c10::StorageImpl*, std::string> names;
  // Tensors over one storage still share it when the file is read.
  const auto name_of = [&names](const at::Tensor& tensor) {
    const std::string next = std::to_string(names.size());
    return names.emplace(tensor.storage().unsafeGetStorageImpl(), next).first->second;
  };
  torch::jit::Pickler pickler([&pickle](const char* data, size_t size) { pickle.append(data, size); },
                              /*tensor_table=*/nullptr, /*type_renamer=*/nullptr, /*memoized_class_types=*/nullptr, name_of,
                              /*tag_aggregates=*/false);
  pickler.protocol();
  TypeEraser eraser;
  pickler.pushIValue(eraser.erase(value));
  pickler.stop();

  caffe2::serialize::PyTorchStreamWriter writer([&sink](const void* data, size_t size) {
    sink(static_cast<const char*>(data), size);
    return size;
  });
  writer.writeRecord("data.pkl", pickle.data(), pickle.size());
  std::unordered_set<std::string> written;
  for (const at::Tensor& tensor : pickler.tensorData()) {
    const std::string name = name_of(tensor);
    if (written.insert(name).second) {
      const torch::jit::WriteableTensorData data = torch::jit::getWriteableTensorData(tensor);
      writer.writeRecord("data/" + name, data.data(), data.sizeInBytes());
    }
  }
  const std::string byteorder = "little";
  writer.writeRecord("byteorder", byteorder.data(), byteorder.size());
  writer.writeEndOfFile();
}

}  // namespace sconce::cli
