#include "tests/tools/train_command.h"

#include "tools/sconce/values/torch_file.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>

namespace sconce::tests {

std::string write_values(const ScratchFolder& folder, const std::string& name, const c10::IValue& value) {
  const std::vector<char> bytes = cli::torch_file(value);
  return folder.write(name, {bytes.data(), bytes.size()});
}

std::string write_pair(const ScratchFolder& folder, const std::string& name, const c10::IValue& inputs,
                       const c10::IValue& targets) {
  return write_values(folder, name, c10::ivalue::Tuple::create({inputs, targets}));
}

std::string write_points(const ScratchFolder& folder, const std::string& name, int64_t examples) {
  at::manual_seed(examples);
  const at::Tensor points = at::randn({examples, 4});
  const at::Tensor corners = at::eye(4).slice(0, 0, 3) * 2;
  return write_pair(folder, name, points, at::cdist(points, corners).argmin(1));
}

std::string write_classifier(const ScratchFolder& folder, const std::string& name) {
  torch::jit::Module module("Classifier");
  at::manual_seed(7);
  module.register_parameter("a", at::randn({16, 4}) * 0.4, false);
  module.register_parameter("b", at::randn({3, 16}) * 0.4, false);
  module.register_parameter("scale", at::ones({16}), false);
  module.register_parameter("shift", at::zeros({16}), false);
  module.register_buffer("mean", at::zeros({16}));
  module.register_buffer("var", at::ones({16}));
  module.register_attribute("training", c10::BoolType::get(), false);
  module.register_attribute("names", c10::ListType::ofStrings(), c10::List<std::string>({"x", "y"}));
  module.define(R"(
def forward(self, x):
    h = torch.batch_norm(torch.linear(x, self.a), self.scale, self.shift, self.mean, self.var, self.training, 0.1, 1e-5, True)
    h = torch.dropout(torch.relu(h), 0.2, self.training)
    return torch.linear(h, self.b)
)");
  for (const at::Tensor& parameter : module.parameters()) {
    parameter.set_requires_grad(true);
  }
  std::string path = folder.path() + "/" + name;
  module.save(path);
  return path;
}

std::string write_trainable(const ScratchFolder& folder, const std::string& name,
                            const std::vector<std::pair<std::string, at::Tensor>>& parameters, const std::string& methods) {
  torch::jit::Module module("Trainable");
  for (const auto& [each, value] : parameters) {
    module.register_parameter(each, value.clone().set_requires_grad(true), false);
  }
  module.register_attribute("training", c10::BoolType::get(), false);
  module.define(methods);
  std::string path = folder.path() + "/" + name;
  module.save(path);
  return path;
}

std::vector<std::string> TrainCommand::arguments(const std::string& output, std::vector<std::string> more) const {
  std::vector<std::string> words = {"train", model_, "--data", data_, "--output", folder_.path() + "/" + output};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::vector<std::string> TrainCommand::classify(const std::string& output, const std::vector<std::string>& more) const {
  std::vector<std::string> words = arguments(output, {"--loss", "cross_entropy", "--batch", "16", "--threads", "1"});
  const auto has = [&](const char* option) { return std::find(more.begin(), more.end(), option) != more.end(); };
  for (const auto& [option, value] :
       {std::pair("--optimizer", "adam"), std::pair("--epochs", "4"), std::pair("--lr", "0.02")}) {
    if (!has(option)) {
      words.insert(words.end(), {option, value});
    }
  }
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

void TrainCommand::expect_equal_models(const std::string& a, const std::string& b) const {
  const torch::jit::Module first = torch::jit::load(file(a));
  const torch::jit::Module second = torch::jit::load(file(b));
  for (const auto& attribute : first.named_attributes()) {
    if (attribute.value.isTensor()) {
      EXPECT_TRUE(at::equal(attribute.value.toTensor(), second.attr(attribute.name).toTensor())) << attribute.name;
    }
  }
}

}  // namespace sconce::tests
