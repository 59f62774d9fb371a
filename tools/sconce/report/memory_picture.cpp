#include "tools/sconce/report/memory_picture.h"

#include "report/explanation_text.h"
#include "report/number_format.h"
#include "tools/sconce/report/html.h"

#include <algorithm>
#include <functional>

namespace sconce::cli {
namespace {

constexpr double kWidth = 1200;
constexpr double kHeight = 600;
constexpr double kLeft = 90;
constexpr double kTop = 50;
constexpr double kBottom = 40;
constexpr double kLetter = 6.2;  // the width of a letter of the labels
constexpr double kLine = 12;

std::string number(double value) { return format_number(value, 6); }

// Returns "aten::add" of "%5 : Tensor = aten::add(%3, %4)".
std::string operator_of(const std::string& node) {
  const size_t begin = node.find(" = ");
  const size_t start = begin == std::string::npos ? 0 : begin + 3;
  return node.substr(start, node.find_first_of("([", start) - start);
}

std::string text_at(double x, double y, const std::string& anchor, const std::string& text) {
  return "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" text-anchor=\"" + anchor + "\">" + escape_html(text) +
         "</text>\n";
}

// Equal operators have equal colors.
std::string color_of(const std::string& op) {
  return "hsl(" + std::to_string(std::hash<std::string>{}(op) % 360) + ",55%,72%)";
}

class Picture {
 public:
  explicit Picture(const MemoryExplanation& memory)
      : memory_(memory),
        x_scale_(kWidth / static_cast<double>(std::max<size_t>(memory.positions, 1))),
        y_scale_(kHeight / static_cast<double>(std::max<size_t>(memory.arena_bytes, 1))) {}

  std::string draw(const std::string& title) const {
    const double width = kLeft + kWidth + 20;
    const double height = kTop + kHeight + kBottom;
    std::string svg = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" +
                      number(width) + "\" height=\"" + number(height) + "\" viewBox=\"0 0 " + number(width) + " " +
                      number(height) + "\" font-family=\"sans-serif\" font-size=\"11\">\n";
    svg += "<rect class=\"page\" width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
    svg += text_at(kLeft, 20, "start", title) + text_at(kLeft, 38, "start", describe_memory(memory_));
    svg += "<rect class=\"arena\" x=\"" + number(kLeft) + "\" y=\"" + number(kTop) + "\" width=\"" + number(kWidth) +
           "\" height=\"" + number(kHeight) + "\" fill=\"#f4f4f4\" stroke=\"#888\"/>\n";
    constexpr int kTicks = 4;
    for (int tick = 0; tick <= kTicks; ++tick) {
      const double share = static_cast<double>(tick) / kTicks;
      svg += text_at(kLeft - 6, kTop + kHeight * (1 - share) + 4, "end",
                     format_bytes(share * static_cast<double>(memory_.arena_bytes)));
    }
    svg += text_at(kLeft, kTop + kHeight + 16, "start", "first node");
    svg += text_at(kLeft + kWidth, kTop + kHeight + 16, "end", "last of " + std::to_string(memory_.positions) + " nodes");
    for (size_t i = 0; i < memory_.slots.size(); ++i) {
      svg += memory_.slots[i].bytes > 0 ? slot(i) : "";
    }
    return svg + "</svg>\n";
  }

 private:
  std::string slot(size_t index) const {
    const SlotExplanation& slot = memory_.slots[index];
    const size_t last = std::min(slot.last, memory_.positions - 1);  // to the end of the run is one position more
    const double x = kLeft + static_cast<double>(slot.first) * x_scale_;
    const double width = static_cast<double>(last - slot.first + 1) * x_scale_;
    const double height = static_cast<double>(slot.bytes) * y_scale_;
    const double y = kTop + kHeight - static_cast<double>(slot.offset) * y_scale_ - height;
    const std::string op = operator_of(slot.node);
    std::string svg = "<g><rect class=\"slot\" x=\"" + number(x) + "\" y=\"" + number(y) + "\" width=\"" + number(width) +
                      "\" height=\"" + number(height) + "\" fill=\"" + color_of(op) +
                      "\" stroke=\"#444\" stroke-width=\"0.5\"";
    svg += " data-first=\"" + std::to_string(slot.first) + "\" data-last=\"" + std::to_string(last) + "\" data-offset=\"" +
           std::to_string(slot.offset) + "\" data-bytes=\"" + std::to_string(slot.bytes) + "\">";
    svg +=
        "<title>" +
        escape_html("slot " + std::to_string(index) + ": " + format_bytes(static_cast<double>(slot.bytes)) + " at offset " +
                    std::to_string(slot.offset) + "\n" + slot.node + (slot.source.empty() ? "" : "\n" + slot.source)) +
        "</title></rect>";
    if (height >= kLine && width >= static_cast<double>(op.size()) * kLetter) {
      svg += "<text x=\"" + number(x + 3) + "\" y=\"" + number(y + height / 2 + 4) + "\" pointer-events=\"none\">" +
             escape_html(op) + "</text>";
    }
    return svg + "</g>\n";
  }

  const MemoryExplanation& memory_;
  const double x_scale_;  // points per position
  const double y_scale_;  // points per byte
};

}  // namespace

std::string draw_memory(const MemoryExplanation& memory, const std::string& title) { return Picture(memory).draw(title); }

}  // namespace sconce::cli
