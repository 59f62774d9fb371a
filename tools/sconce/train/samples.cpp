#include "tools/sconce/train/samples.h"

#include "base/nearest_name.h"
#include "report/number_format.h"
#include "tools/sconce/report/errors.h"
#include "tools/sconce/report/html.h"
#include "tools/sconce/report/image.h"
#include "tools/sconce/train/loss.h"
#include "tools/sconce/values/compare.h"
#include "tools/sconce/values/read_file.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <sstream>

namespace sconce::cli {
namespace {

constexpr size_t kMostSamples = 16;
constexpr int64_t kMostNumbers = 12;
constexpr int64_t kMostTokens = 48;

// Draws the values of samples.
class SampleCells {
 public:
  explicit SampleCells(const std::vector<std::string>& vocabulary) : vocabulary_(vocabulary) {}

  std::string cell(const at::Tensor& value) const {
    if (is_image(value)) {
      return image_element(value);
    }
    const bool is_sequence = value.dim() == 1 && at::isIntegralType(value.scalar_type(), /*includeBool=*/false);
    const bool has_form = value.dim() > 1;
    return (has_form ? escape_html(describe_tensor_type(value)) + "<br/>" : "") +
           (is_sequence && !vocabulary_.empty() ? tokens(value) : numbers(value));
  }

  // For a target that is a class, the class with the highest score comes before the scores.
  std::string result(const at::Tensor& value, const at::Tensor* target) const {
    const bool has_classes = target != nullptr && at::isIntegralType(target->scalar_type(), /*includeBool=*/false) &&
                             at::isFloatingType(value.scalar_type()) && value.dim() == target->dim() + 1 &&
                             value.size(0) > 1;
    if (!has_classes) {
      return cell(value);
    }
    const std::string best = cell(value.argmax(0));
    return value.dim() == 1 ? best + "<br/><small>" + numbers(value) + "</small>" : best;
  }

 private:
  std::string numbers(const at::Tensor& value) const {
    const at::Tensor first = value.reshape(-1).slice(0, 0, kMostNumbers).to(at::kDouble);
    std::vector<std::string> texts;
    for (int64_t i = 0; i < first.numel(); ++i) {
      texts.push_back(format_number(first[i].item<double>(), /*significant_digits=*/3));
    }
    return join(texts, " &nbsp;") + (value.numel() > kMostNumbers ? " …" : "");
  }

  std::string tokens(const at::Tensor& value) const {
    std::vector<std::string> texts;
    for (int64_t i = 0; i < std::min(value.numel(), kMostTokens); ++i) {
      const auto number = value[i].item<int64_t>();
      const bool is_known = number >= 0 && static_cast<size_t>(number) < vocabulary_.size();
      texts.push_back(is_known ? escape_html(vocabulary_[static_cast<size_t>(number)]) : "[" + std::to_string(number) + "]");
    }
    return join(texts, " ") + (value.numel() > kMostTokens ? " …" : "");
  }

  const std::vector<std::string>& vocabulary_;
};

at::Tensor row_of(const at::Tensor& tensor, int64_t example, int64_t examples) {
  if (tensor.dim() == 0 || tensor.size(0) != examples) {
    throw UserError("the model returns " + describe_tensor_type(tensor) + " for " + std::to_string(examples) +
                    " examples, so that no part of it belongs to one example");
  }
  return tensor.narrow(0, example, 1);
}

std::string headers(const std::string& name, size_t count) {
  std::string cells;
  for (size_t i = 0; i < count; ++i) {
    cells += element("th", name + (count == 1 ? "" : " " + std::to_string(i)));
  }
  return cells;
}

}  // namespace

const char* const kSamplesStyle = R"(
.samples { border-collapse: collapse; margin-top: 0.6rem; }
.samples td, .samples th { padding: 0.3rem 0.8rem 0.3rem 0; text-align: left; vertical-align: top; max-width: 30rem; }
.samples tr { border-top: 1px solid var(--rule); } .samples img { width: 6rem; image-rendering: pixelated; }
)";

c10::IValue result_of_example(const c10::IValue& output, int64_t example, int64_t examples) {
  std::vector<at::Tensor> rows;
  for (const at::Tensor& tensor : tensors_of_output(output)) {
    rows.push_back(row_of(tensor, example, examples));
  }
  if (output.isTensor()) {
    return rows.front();
  }
  return output.isList() ? c10::IValue(c10::List<at::Tensor>(rows))
                         : c10::IValue(c10::ivalue::Tuple::create(std::vector<c10::IValue>(rows.begin(), rows.end())));
}

Samples best_and_worst(std::vector<Sample> examples) {
  const auto count = static_cast<int64_t>(examples.size());
  std::stable_sort(examples.begin(), examples.end(), [](const Sample& a, const Sample& b) { return a.loss < b.loss; });
  if (examples.size() > kMostSamples) {
    constexpr auto kHalf = static_cast<std::ptrdiff_t>(kMostSamples / 2);
    examples.erase(examples.begin() + kHalf, examples.end() - kHalf);
  }
  return {.examples = count, .samples = std::move(examples)};
}

std::string samples_html(const Samples& samples, const std::vector<std::string>& vocabulary) {
  const std::string title = element("h2", "Samples") + "\n";
  if (samples.samples.empty()) {
    return title + element("p", escape_html("None: " + samples.why_none)) + "\n";
  }
  const SampleCells cells(vocabulary);
  const Sample& first = samples.samples.front();
  std::string rows = element("tr", element("th", "example") + element("th", "loss") + headers("input", first.inputs.size()) +
                                       headers("target", first.targets.size()) + headers("result", first.results.size())) +
                     "\n";
  for (const Sample& sample : samples.samples) {
    std::string row = element("td", std::to_string(sample.number)) + element("td", format_number(sample.loss));
    for (const auto* values : {&sample.inputs, &sample.targets}) {
      for (const at::Tensor& value : *values) {
        row += element("td", cells.cell(value));
      }
    }
    for (size_t i = 0; i < sample.results.size(); ++i) {
      row += element("td", cells.result(sample.results[i], i < sample.targets.size() ? &sample.targets[i] : nullptr));
    }
    rows += element("tr", row) + "\n";
  }
  const std::string of = samples.are_of_validation ? "the validation" : "the training data";
  const bool are_all = static_cast<int64_t>(samples.samples.size()) == samples.examples;
  const std::string text = (are_all ? "The first examples of " + of + ", by loss"
                                    : "Of the first " + std::to_string(samples.examples) + " examples of " + of +
                                          ", those with the lowest losses, "
                                          "then those with the highest") +
                           ". The model is the one at the end of the training. Examples are counted from 0.";
  return title + element("p", text) + "\n" +
         element("div class=\"scroll\"", element("table class=\"samples\"", "\n" + rows)) + "\n";
}

std::vector<std::string> read_vocabulary(const std::string& path) {
  std::istringstream lines(read_text_file(path));
  std::vector<std::string> tokens;
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) {
      line.pop_back();
    }
    tokens.push_back(line);
  }
  if (tokens.empty()) {
    throw UserError(path + ": has no tokens; a vocabulary has one in each line");
  }
  return tokens;
}

}  // namespace sconce::cli
