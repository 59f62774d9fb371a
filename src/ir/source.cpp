#include "ir/source.h"

#include <sstream>
#include <utility>

namespace sconce {

SourceLocation::SourceLocation(torch::jit::SourceRange range, std::shared_ptr<const SourceLocation> caller,
                               std::shared_ptr<const std::string> function)
    : range_(std::move(range)), caller_(std::move(caller)), function_(std::move(function)) {}

SourceLocation::SourceLocation(std::string file, size_t line, size_t column)
    : parsed_(std::move(file) + ":" + std::to_string(line) + ":" + std::to_string(column)) {}

torch::jit::SourceRange SourceLocation::original_range() const {
  if (range_->source()) {
    // For some nodes the archive recorded an empty source range.
    if (auto original = range_->findSourceRangeThatGenerated()) {
      const auto place = original->file_line_col();
      if (place && !std::get<0>(*place).empty()) {
        return *original;
      }
    }
  }
  return *range_;
}

std::string SourceLocation::file_line_column() const {
  if (!range_) {
    return parsed_;
  }
  if (auto place = original_range().file_line_col()) {
    const auto& [file, line, column] = *place;
    return file + ":" + std::to_string(line) + ":" + std::to_string(column);
  }
  return {};
}

std::string SourceLocation::excerpt() const {
  if (!range_ || !range_->source()) {
    return {};
  }
  std::ostringstream out;
  original_range().highlight(out);
  return out.str();
}

const std::string& SourceLocation::function() const {
  static const std::string none;
  return function_ != nullptr ? *function_ : none;
}

SourceLocationPtr InlinedCall::extended(const SourceLocationPtr& location) {
  if (!location) {
    return place_;
  }
  if (location->range() == nullptr) {
    return location;
  }
  if (const auto found = extended_.find(location); found != extended_.end()) {
    return found->second;
  }
  const bool is_outermost = location->caller() == nullptr;
  auto longer = std::make_shared<SourceLocation>(*location->range(), is_outermost ? place_ : extended(location->caller()),
                                                 is_outermost ? function_ : location->function_);
  extended_[location] = longer;
  return longer;
}

std::string stack_frames(const SourceLocationPtr& location) {
  std::string frames;
  for (const SourceLocation* place = location.get(); place != nullptr; place = place->caller().get()) {
    std::string frame = place->excerpt();
    if (frame.empty()) {
      const std::string where = place->file_line_column();
      frame = where.empty() ? "" : "  at " + where + "\n";
    } else if (!place->function().empty()) {
      // After `  File "model.py", line 15`, LibTorch prints the method's name without its class.
      frame.insert(frame.find('\n'), ", in " + place->function().substr(place->function().rfind('.') + 1));
    }
    frames.insert(0, frame);
  }
  return frames;
}

std::string describe_call_chain(const SourceLocationPtr& location) {
  std::string text;
  for (const SourceLocation* place = location.get(); place != nullptr; place = place->caller().get()) {
    const std::string where = place->file_line_column();
    if (where.empty()) {
      continue;
    }
    text += (text.empty() ? "" : "\n") + where;
    if (!place->function().empty()) {
      text += " in " + place->function();
    }
  }
  return text;
}

}  // namespace sconce
