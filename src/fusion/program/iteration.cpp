#include "fusion/program/iteration.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace sconce {
namespace {

// Dimensions from the outermost to the innermost.
struct Loops {
  std::vector<int64_t> sizes;
  std::vector<std::vector<int64_t>> strides;  // by dimension, then by operand

  // Adds a dimension inside all others. Merges it with the one around it, if every operand allows it.
  void add(int64_t size, std::vector<int64_t> steps) {
    bool merges = !sizes.empty();
    for (size_t k = 0; k < steps.size() && merges; ++k) {
      merges = strides.back()[k] == steps[k] * size;
    }
    if (merges) {
      sizes.back() *= size;
      strides.back() = std::move(steps);
    } else {
      sizes.push_back(size);
      strides.push_back(std::move(steps));
    }
  }
};

class LoopPlanner {
 public:
  LoopPlanner(const Form& result, DimSet reduced, std::span<const IterationOperand> operands,
              std::span<const IterationOutput> outputs)
      : result_(result), reduced_(reduced), operands_(operands), outputs_(outputs), row_strides_(result.sizes.size(), 0) {
    for (const IterationOperand& operand : operands) {
      strides_.push_back(broadcast_strides(operand.form, result.sizes));
    }
    int64_t step = 1;
    for (size_t dim = result.sizes.size(); dim-- > 0;) {
      if (!reduced[dim]) {
        row_strides_[dim] = step;
        step *= std::max<int64_t>(result.sizes[dim], 1);
      }
    }
  }

  std::optional<Iteration> plan() const {
    Loops rows;
    Loops row;
    const std::vector<size_t> order = memory_order();
    for (const size_t dim : order) {
      (reduced_[dim] ? row : rows).add(result_.sizes[dim], strides_of(dim));
    }
    if (row.sizes.size() > 2) {
      return std::nullopt;
    }
    Iteration iteration;
    if (reduced_.none() && !rows.sizes.empty()) {
      row = {{rows.sizes.back()}, {std::move(rows.strides.back())}};
      rows.sizes.pop_back();
      rows.strides.pop_back();
    }
    if (row.sizes.empty()) {
      // Rows of one element. The output's next one follows, so that the program is that of longer rows.
      std::vector<int64_t> next(operands_.size(), 0);
      for (const IterationOutput& output : outputs_) {
        next.push_back(output.is_of_row ? 0 : static_cast<int64_t>(output.bytes));
      }
      row.add(1, next);
    } else if (!reduced_[order.back()] && !reduced_.none() && row_strides_[order.back()] == 1) {
      iteration.order = LoopOrder::kColumns;
    } else if (row.sizes.size() == 2) {
      iteration.order = LoopOrder::kSegments;
    }
    if (rows.sizes.empty()) {
      rows.add(1, std::vector<int64_t>(operands_.size() + outputs_.size(), 0));
    }
    iteration.segments = row.sizes.size() == 2 ? row.sizes[0] : 1;
    iteration.segment_strides = row.sizes.size() == 2 ? row.strides[0] : std::vector<int64_t>(row.strides[0].size(), 0);
    iteration.sizes = std::move(rows.sizes);
    iteration.sizes.push_back(row.sizes.back());
    rows.strides.push_back(std::move(row.strides.back()));
    iteration.strides.resize(operands_.size() + outputs_.size());
    for (const std::vector<int64_t>& of_dim : rows.strides) {
      for (size_t k = 0; k < of_dim.size(); ++k) {
        iteration.strides[k].push_back(of_dim[k]);
      }
    }
    return iteration;
  }

 private:
  // Returns the dimensions of several elements, from the outermost to the innermost: in the order of the results' memory or,
  // where all results are of rows, of the first operand that is not broadcast.
  std::vector<size_t> memory_order() const {
    c10::IntArrayRef strides = result_.strides;
    const bool is_of_rows = std::ranges::all_of(outputs_, [](const auto& output) { return output.is_of_row; });
    for (size_t k = 0; k < operands_.size() && is_of_rows && reduced_.any(); ++k) {
      bool is_broadcast = false;
      for (size_t dim = 0; dim < result_.sizes.size(); ++dim) {
        is_broadcast = is_broadcast || (strides_[k][dim] == 0 && result_.sizes[dim] > 1);
      }
      if (!is_broadcast) {
        strides = strides_[k];
        break;
      }
    }
    std::vector<size_t> order;
    for (size_t dim = 0; dim < result_.sizes.size(); ++dim) {
      if (result_.sizes[dim] != 1) {
        order.push_back(dim);
      }
    }
    std::ranges::stable_sort(order, [&](size_t a, size_t b) { return strides[a] > strides[b]; });
    return order;
  }

  std::vector<int64_t> strides_of(size_t dim) const {
    std::vector<int64_t> bytes;
    for (size_t k = 0; k < operands_.size(); ++k) {
      bytes.push_back(strides_[k][dim] * operands_[k].bytes);
    }
    for (const IterationOutput& output : outputs_) {
      const auto& strides = output.is_of_row ? row_strides_ : result_.strides;
      bytes.push_back(strides[dim] * static_cast<int64_t>(output.bytes));
    }
    return bytes;
  }

  const Form& result_;
  const DimSet reduced_;
  const std::span<const IterationOperand> operands_;
  const std::span<const IterationOutput> outputs_;
  std::vector<c10::DimVector> strides_;  // of the operands
  c10::DimVector row_strides_;           // of results with one element for each row
};

}  // namespace

int64_t Iteration::elements() const { return std::accumulate(sizes.begin(), sizes.end(), segments, std::multiplies<>()); }

std::optional<Iteration> plan_iteration(const Form& result, DimSet reduced, std::span<const IterationOperand> operands,
                                        std::span<const IterationOutput> outputs) {
  return LoopPlanner(result, reduced, operands, outputs).plan();
}

}  // namespace sconce
