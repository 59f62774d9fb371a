#include "tools/sconce/train/metric.h"

#include "base/nearest_name.h"
#include "tools/sconce/report/errors.h"
#include "tools/sconce/train/loss.h"
#include "tools/sconce/values/compare.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

namespace sconce::cli {
namespace {

constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kIgnoredClass = -100;  // as in LibTorch's cross_entropy and nll

at::Tensor tensor_of_doubles(const std::vector<double>& values) { return at::tensor(values, at::kDouble); }

std::vector<double> doubles_in(const at::Tensor& tensor) {
  const at::Tensor plain = tensor.to(at::kDouble).contiguous();
  return {plain.const_data_ptr<double>(), plain.const_data_ptr<double>() + plain.numel()};
}

// Scores and true classes of examples: [examples, classes] and [examples].
struct ClassExamples {
  at::Tensor scores;
  at::Tensor classes;
};

ClassExamples class_examples(const std::string& metric, const at::Tensor& output, const at::Tensor& target) {
  at::Tensor classes = target;
  if (at::isFloatingType(target.scalar_type()) && output.sizes() == target.sizes() && output.dim() > 1) {
    classes = target.argmax(1);
  }
  if (output.dim() < 2 || classes.dim() != output.dim() - 1 || output.numel() / output.size(1) != classes.numel() ||
      at::isFloatingType(classes.scalar_type())) {
    throw UserError("--metric " + metric + ": the model returns " + describe_tensor_type(output) + " for targets " +
                    describe_tensor_type(target) + "; it takes scores [N, classes] and integers [N]");
  }
  classes = classes.reshape(-1).to(at::kLong);
  const at::Tensor scores = output.movedim(1, -1).reshape({-1, output.size(1)});
  const at::Tensor counted = classes.ne(kIgnoredClass);
  return {scores.index({counted}), classes.index({counted})};
}

// A share of examples.
class ShareMetric : public Metric {
 public:
  explicit ShareMetric(std::string text) : text_(std::move(text)) {}
  at::Tensor state() const final { return tensor_of_doubles({hits_, examples_}); }
  void merge(const at::Tensor& state) final {
    const std::vector<double> other = doubles_in(state);
    hits_ += other[0];
    examples_ += other[1];
  }
  double value() const final { return examples_ == 0 ? kNoValue : hits_ / examples_; }

 protected:
  void add_hits(const at::Tensor& hits) {
    hits_ += hits.sum().item<double>();
    examples_ += static_cast<double>(hits.numel());
  }

  const std::string text_;

 private:
  double hits_ = 0;
  double examples_ = 0;
};

class Accuracy final : public ShareMetric {
 public:
  Accuracy(std::string text, TargetKind targets) : ShareMetric(std::move(text)), targets_(targets) {}
  void add(const at::Tensor& output, const at::Tensor& target) override {
    if (targets_ == TargetKind::kBinary) {
      expect_equal_sizes("--metric " + text_, output, target);
      return add_hits(output.gt(0).eq(target.gt(0.5)));
    }
    const ClassExamples examples = class_examples(text_, output, target);
    add_hits(examples.scores.argmax(1).eq(examples.classes));
  }

 private:
  const TargetKind targets_;
};

class TopFive final : public ShareMetric {
 public:
  using ShareMetric::ShareMetric;
  void add(const at::Tensor& output, const at::Tensor& target) override {
    const ClassExamples examples = class_examples(text_, output, target);
    if (examples.scores.size(1) <= 5) {
      throw UserError("--metric " + text_ + ": the model has " + std::to_string(examples.scores.size(1)) +
                      " classes; it takes more than 5");
    }
    add_hits(std::get<1>(examples.scores.topk(5, 1)).eq(examples.classes.unsqueeze(1)).any(1));
  }
};

// The mean over classes that occur, in results or targets, of 2 TP / (2 TP + FP + FN); of two classes as yes and no, that of
// the yes.
class F1 final : public Metric {
 public:
  F1(std::string text, TargetKind targets) : text_(std::move(text)), targets_(targets) {}

  void add(const at::Tensor& output, const at::Tensor& target) override {
    at::Tensor predicted;
    at::Tensor classes;
    int64_t count = 2;
    if (targets_ == TargetKind::kBinary) {
      expect_equal_sizes("--metric " + text_, output, target);
      predicted = output.gt(0).reshape(-1).to(at::kLong);
      classes = target.gt(0.5).reshape(-1).to(at::kLong);
    } else {
      ClassExamples examples = class_examples(text_, output, target);
      count = examples.scores.size(1);
      predicted = examples.scores.argmax(1);
      classes = std::move(examples.classes);
    }
    const auto counts = [count](const at::Tensor& of) { return of.bincount({}, count).to(at::kDouble); };
    merge(at::stack({counts(predicted.index({predicted.eq(classes)})), counts(predicted), counts(classes)}));
  }
  at::Tensor state() const override { return counts_.defined() ? counts_ : at::zeros({3, 0}, at::kDouble); }
  void merge(const at::Tensor& state) override {
    if (state.size(1) > 0) {
      counts_ = counts_.defined() ? counts_ + state : state;
    }
  }
  double value() const override {
    if (!counts_.defined()) {
      return kNoValue;
    }
    const at::Tensor all = counts_[1] + counts_[2];  // 2 TP + FP + FN
    const at::Tensor scores = 2 * counts_[0] / all;
    return targets_ == TargetKind::kBinary ? scores[1].item<double>() : scores.index({all.gt(0)}).mean().item<double>();
  }

 private:
  const std::string text_;
  const TargetKind targets_;
  at::Tensor counts_;  // of hits, of results and of targets, for each class: [3, classes]
};

// The share of pairs of a yes and a no whose scores are in the right order; equal scores count half.
class AreaUnderCurve final : public Metric {
 public:
  AreaUnderCurve(std::string text, TargetKind targets) : text_(std::move(text)), targets_(targets) {}

  void add(const at::Tensor& output, const at::Tensor& target) override {
    if (targets_ == TargetKind::kBinary) {
      expect_equal_sizes("--metric " + text_, output, target);
      return merge(at::stack({output.reshape(-1).to(at::kDouble), target.gt(0.5).reshape(-1).to(at::kDouble)}));
    }
    const ClassExamples examples = class_examples(text_, output, target);
    if (examples.scores.size(1) != 2) {
      throw UserError("--metric " + text_ + ": the model has " + std::to_string(examples.scores.size(1)) +
                      " classes; it takes two, or the logits of bce_with_logits");
    }
    const at::Tensor scores = examples.scores.to(at::kDouble);
    merge(at::stack({scores.select(1, 1) - scores.select(1, 0), examples.classes.to(at::kDouble)}));
  }
  at::Tensor state() const override {
    std::vector<at::Tensor> parts = parts_;
    parts.push_back(at::zeros({2, 0}, at::kDouble));
    return at::cat(parts, 1);
  }
  void merge(const at::Tensor& state) override { parts_.push_back(state); }
  double value() const override {
    const at::Tensor all = state();
    const std::vector<double> scores = doubles_in(all[0]);
    const std::vector<double> labels = doubles_in(all[1]);
    std::vector<std::pair<double, double>> examples;
    for (size_t i = 0; i < scores.size(); ++i) {
      examples.emplace_back(scores[i], labels[i]);
    }
    std::sort(examples.begin(), examples.end());
    double no = 0;
    double yes = 0;
    double right = 0;  // pairs
    for (size_t begin = 0; begin < examples.size();) {
      double equal_yes = 0;
      size_t end = begin;
      for (; end < examples.size() && examples[end].first == examples[begin].first; ++end) {
        equal_yes += examples[end].second;
      }
      const double equal_no = static_cast<double>(end - begin) - equal_yes;
      right += equal_yes * (no + equal_no / 2);
      yes += equal_yes;
      no += equal_no;
      begin = end;
    }
    return yes == 0 || no == 0 || std::any_of(scores.begin(), scores.end(), [](double score) { return std::isnan(score); })
               ? kNoValue
               : right / (yes * no);
  }

 private:
  const std::string text_;
  const TargetKind targets_;
  std::vector<at::Tensor> parts_;  // scores and labels, 0 or 1: [2, examples]
};

// Of errors, over all elements.
class ErrorMetric final : public Metric {
 public:
  ErrorMetric(std::string text, std::string name) : text_(std::move(text)), name_(std::move(name)) {}

  void add(const at::Tensor& output, const at::Tensor& target) override {
    expect_equal_sizes("--metric " + text_, output, target);
    if (target.numel() == 0) {
      return;
    }
    const at::Tensor values = target.to(at::kDouble);
    const at::Tensor errors = output.to(at::kDouble) - values;
    const at::Tensor mean = values.mean();
    merge(at::stack({at::scalar_tensor(static_cast<double>(values.numel()), at::kDouble), errors.abs().sum(),
                     errors.square().sum(), mean, (values - mean).square().sum()}));
  }
  at::Tensor state() const override { return tensor_of_doubles({count_, absolute_, square_, mean_, spread_}); }
  // Adds the spread as Chan, Golub and LeVeque do (1979), without the cancellation of sums of squares.
  void merge(const at::Tensor& state) override {
    const std::vector<double> other = doubles_in(state);
    if (other[0] == 0) {
      return;
    }
    const double count = count_ + other[0];
    const double apart = other[3] - mean_;
    spread_ += other[4] + apart * apart * count_ * other[0] / count;
    mean_ += apart * other[0] / count;
    absolute_ += other[1];
    square_ += other[2];
    count_ = count;
  }
  double value() const override {
    return count_ == 0       ? kNoValue
           : name_ == "mae"  ? absolute_ / count_
           : name_ == "rmse" ? std::sqrt(square_ / count_)
           : spread_ == 0    ? kNoValue
                             : 1 - square_ / spread_;
  }

 private:
  const std::string text_;
  const std::string name_;
  double count_ = 0;
  double absolute_ = 0;
  double square_ = 0;
  // Of the targets.
  double mean_ = 0;
  double spread_ = 0;  // squares of distances to the mean
};

}  // namespace

MetricName metric_name(const std::string& text) {
  const size_t at = text.find('@');
  MetricName metric{text.substr(0, at)};
  if (at != std::string::npos) {
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + at + 1, end, metric.result);
    if (error != std::errc() || stop != end) {
      throw UserError("--metric " + text + ": '" + text.substr(at + 1) +
                      "' is no number of a result of the model; accuracy@1 is that of the second one");
    }
  }
  return metric;
}

std::unique_ptr<Metric> make_metric(const std::string& text, TargetKind targets) {
  const std::string name = metric_name(text).name;
  if (std::find(kMetricNames.begin(), kMetricNames.end(), name) == kMetricNames.end()) {
    throw UserError("--metric: there is no '" + name + "'" + did_you_mean(name, {kMetricNames.begin(), kMetricNames.end()}));
  }
  if (name == "top5" && targets == TargetKind::kBinary) {
    throw UserError("--metric " + text + ": takes classes, as --loss cross_entropy and nll do");
  }
  if (name == "accuracy") {
    return std::make_unique<Accuracy>(text, targets);
  }
  if (name == "top5") {
    return std::make_unique<TopFive>(text);
  }
  if (name == "f1") {
    return std::make_unique<F1>(text, targets);
  }
  if (name == "auc") {
    return std::make_unique<AreaUnderCurve>(text, targets);
  }
  return std::make_unique<ErrorMetric>(text, name);
}

bool is_higher_better(const std::string& metric) {
  const std::string name = metric_name(metric).name;
  return name != "mae" && name != "rmse";
}

}  // namespace sconce::cli
