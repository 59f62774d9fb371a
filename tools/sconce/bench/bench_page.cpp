#include "tools/sconce/bench/bench_page.h"

#include "report/number_format.h"
#include "tools/sconce/report/html.h"
#include "tools/sconce/ui/percentile.h"

#include <algorithm>
#include <array>
#include <filesystem>

namespace sconce::cli {
namespace {

// Colors of tables and plots. sconce, the first executor, has the color of the text and a thick line.
constexpr const char* kBenchStyle = R"(
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 0.6rem 0; }
th, td { padding: 0.25rem 0.7rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--rule); }
th { font-weight: 600; } tbody tr:nth-child(even) { background: var(--stripe); }
th:first-child, .text { text-align: left; } .text { white-space: normal; } .group { border-left: 1px solid var(--rule); }
.good { color: var(--good); } .bad { color: var(--bad); }
.key { display: inline-block; width: 0.8em; height: 0.8em; margin-right: 0.5em; border-radius: 2px; }
.k0 { background: var(--c0); } .k1 { background: var(--c1); } .k2 { background: var(--c2); }
.k3 { background: var(--c3); } .k4 { background: var(--c4); } .k5 { background: var(--c5); }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(28rem, 100%), 1fr)); gap: 1.2rem; }
figure { margin: 0.6rem 0; } svg { width: 100%; height: auto; }
svg text { fill: var(--soft); font: 12px system-ui, sans-serif; } .grid { stroke: var(--rule); }
.line { fill: none; stroke-width: 1.8; } .l0 { stroke: var(--c0); stroke-width: 3; } .l1 { stroke: var(--c1); }
.l2 { stroke: var(--c2); } .l3 { stroke: var(--c3); } .l4 { stroke: var(--c4); } .l5 { stroke: var(--c5); }
.d0 { fill: var(--c0); } .d1 { fill: var(--c1); } .d2 { fill: var(--c2); } .d3 { fill: var(--c3); } .d4 { fill: var(--c4); }
.d5 { fill: var(--c5); }
)";
constexpr size_t kColors = 6;

std::string colour_of(size_t index) { return std::to_string(index % kColors); }

// ---- plots

struct Series {
  std::string name;
  size_t color = 0;  // the executor's index in the table
  std::vector<double> seconds;
};

// Times on a logarithmic axis: two labels of the y axis differ by the same factor at any height.
class Plot {
 public:
  Plot(const std::vector<std::string>& x_labels, const std::vector<Series>& all) : x_labels_(x_labels), all_(all) {
    double least = INFINITY;
    double most = 0;
    for (const Series& series : all) {
      for (const double seconds : series.seconds) {
        least = std::min(least, std::max(seconds, 1e-9));
        most = std::max(most, seconds);
      }
    }
    // At least a factor of two in total, so that noise does not look like a mountain range.
    const double room = std::max(1.1, std::sqrt(2 / std::max(1.0, most / least)));
    min_ = std::log10(least / room);
    max_ = std::log10(std::max(least, most) * room);
  }

  std::string svg(const std::string& about) const {
    std::string drawn = grid();
    for (size_t i = all_.size(); i-- > 0;) {  // sconce last, on top of the others
      drawn += line(all_[i]);
    }
    return element("svg viewBox=\"0 0 560 300\" role=\"img\" aria-label=\"" + escape_html(about) + "\"", drawn);
  }

 private:
  static constexpr double kLeft = 66;
  static constexpr double kRight = 548;
  static constexpr double kTop = 10;
  static constexpr double kBottom = 270;

  static std::string text_at(double x, double y, const char* anchor, const std::string& text) {
    return element("text x=\"" + format_number(x) + "\" y=\"" + format_number(y) + "\" text-anchor=\"" + anchor + "\"",
                   escape_html(text));
  }

  double x_of(size_t index) const {
    const auto gaps = static_cast<double>(std::max<size_t>(x_labels_.size(), 2) - 1);
    return kLeft + 12 + (kRight - kLeft - 24) * static_cast<double>(index) / gaps;
  }

  double y_of(double seconds) const {
    const double share = (std::log10(std::max(seconds, 1e-9)) - min_) / (max_ - min_);
    return kBottom - (kBottom - kTop) * share;
  }

  // 1, 2, 5, 10, ... or powers of ten for a wide range.
  std::vector<double> ticks() const {
    std::vector<double> values;
    for (double decade = std::floor(min_); decade <= max_; ++decade) {
      for (const double digit : {1.0, 2.0, 5.0}) {
        const double value = std::pow(10, decade) * digit;
        const bool inside = std::log10(value) >= min_ && std::log10(value) <= max_;
        if (inside && (digit == 1 || max_ - min_ < 2.5)) {
          values.push_back(value);
        }
      }
    }
    return values;
  }

  std::string grid() const {
    std::string drawn;
    for (const double value : ticks()) {
      const std::string y = format_number(y_of(value));
      drawn += "<line class=\"grid\" x1=\"" + format_number(kLeft) + "\" x2=\"" + format_number(kRight) + "\" y1=\"" + y +
               "\" y2=\"" + y + "\"/>";
      std::string label = format_duration(value);
      if (const size_t point = label.find(".0"); point != std::string::npos) {
        label.erase(point, label.find(' ') - point);  // "2.00 ms" is a measured value, "2 ms" a mark
      }
      drawn += text_at(kLeft - 6, y_of(value) + 4, "end", label);
    }
    for (size_t i = 0; i < x_labels_.size(); ++i) {
      drawn += text_at(x_of(i), kBottom + 20, "middle", x_labels_[i]);
    }
    return drawn;
  }

  std::string line(const Series& series) const {
    const std::string color = colour_of(series.color);
    std::string points;
    std::string dots;
    for (size_t i = 0; i < series.seconds.size(); ++i) {
      const std::string x = format_number(x_of(i));
      const std::string y = format_number(y_of(series.seconds[i]));
      points += (i == 0 ? "" : " ") + x + "," + y;
      dots += element(
          "circle class=\"d" + color + "\" cx=\"" + x + "\" cy=\"" + y + "\" r=\"3.5\"",
          element("title", escape_html(series.name + ", " + x_labels_[i] + ": " + format_duration(series.seconds[i]))));
    }
    return "<polyline class=\"line l" + color + "\" points=\"" + points + "\"/>" + dots;
  }

  const std::vector<std::string>& x_labels_;
  const std::vector<Series>& all_;
  double min_ = 0;  // logarithms
  double max_ = 0;
};

std::string figure(const std::string& title, const std::vector<std::string>& x_labels, const std::vector<Series>& all) {
  return all.empty() ? "" : element("figure", element("h3", escape_html(title)) + Plot(x_labels, all).svg(title)) + "\n";
}

std::string plots_of(const MeasurementTable& table) {
  static constexpr std::array kShares = {0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999};
  std::vector<std::string> calls;
  std::vector<std::string> shares;
  for (const double share : kShares) {
    shares.push_back("p" + format_number(share * 100));
  }
  std::vector<Series> first;
  std::vector<Series> steady;
  for (size_t i = 0; i < table.rows.size(); ++i) {
    const Measurement& row = table.rows[i];
    if (row.not_available) {
      continue;
    }
    first.push_back({row.name, i, row.first_calls});
    while (calls.size() < row.first_calls.size()) {
      calls.push_back("call " + std::to_string(calls.size() + 1));
    }
    steady.push_back({row.name, i, {}});
    for (const double share : kShares) {
      steady.back().seconds.push_back(ui::percentile(row.steady, share));
    }
  }
  if (calls.size() > 6) {  // no room for the word
    for (std::string& call : calls) {
      call.erase(0, std::string("call ").size());
    }
  }
  return element("div class=\"plots\"", "\n" + figure("Time of each of the first calls, by its number", calls, first) +
                                            figure("Time of steady calls, by percentile", shares, steady)) +
         "\n";
}

// ---- tables

std::string cell(const std::string& text) { return element("td", escape_html(text)); }

// Small differences get no color: they may be noise.
std::string ratio_cell(double ratio, const std::optional<Interval>& interval = {}) {
  const char* color = ratio > 1.05 ? " class=\"good\"" : ratio < 0.95 ? " class=\"bad\"" : "";
  const std::string about = interval ? " title=\"95 % interval: " + text_of(interval) + "\"" : "";
  return element("td" + std::string(color) + about, format_ratio(ratio));
}

std::string ratio_cells(const Ratios& ratios) {
  return ratio_cell(ratios.steady, ratios.steady_interval) + ratio_cell(ratios.first_call) + ratio_cell(ratios.first_calls);
}

std::string name_cell(const std::string& name, size_t index) {
  return element("th scope=\"row\"", element("span class=\"key k" + colour_of(index) + "\"", "") + escape_html(name));
}

std::string wide_cell(size_t columns, const std::string& kind, const std::string& text) {
  return element("td class=\"text" + kind + "\" colspan=\"" + std::to_string(columns) + "\"", escape_html(text));
}

std::string header_of(const std::vector<std::string>& titles) {
  std::string cells;
  for (const std::string& title : titles) {
    cells += element("th scope=\"col\"", title);
  }
  return element("tr", cells);
}

std::string table_element(const std::string& head, const std::string& rows) {
  return element("div class=\"scroll\"", element("table", element("thead", head) + "\n" + element("tbody", rows))) + "\n";
}

std::string table_of(const MeasurementTable& table) {
  const Measurement& sconce = table.rows.front();
  constexpr size_t kCells = 13;
  size_t calls = kFirstCalls;
  std::string rows;
  for (size_t i = 0; i < table.rows.size(); ++i) {
    const Measurement& row = table.rows[i];
    std::string cells = name_cell(row.name, i);
    if (row.not_available) {
      rows += element("tr", cells + wide_cell(kCells, "", "n/a: " + *row.not_available)) + "\n";
      continue;
    }
    calls = row.first_calls.size();
    cells += ratio_cells(ratios_of(row, sconce));
    cells += element("td class=\"group\"", format_duration(ui::median(row.steady)));
    for (const double share : {0.1, 0.9, 0.99, 0.999}) {
      cells += cell(format_duration(ui::percentile(row.steady, share)));
    }
    cells += cell(format_duration(row.first_calls[0])) + cell(format_duration(total(row.first_calls)));
    cells += cell(format_rate(row.calls_per_second));
    cells += cell(format_percent(row.spread));
    cells += cell(memory_of(row));
    rows += element("tr", cells) + "\n";
    if (row.wrong) {
      rows += element("tr", element("td", "") + wide_cell(kCells, " bad", "WRONG RESULT: " + *row.wrong)) + "\n";
    }
  }
  const std::string all_calls = "calls 1&ndash;" + std::to_string(calls);
  const std::string groups = element("tr", "<th></th>" + element("th colspan=\"3\"", "ratio to sconce") +
                                               element("th class=\"group\" colspan=\"10\"", "measured"));
  return table_element(groups + header_of({"executor", "steady", "first call", all_calls, "median", "p10", "p90", "p99",
                                           "p99.9", "first call", all_calls, "calls/s", "spread", "memory"}),
                       rows);
}

std::string means_of(const std::vector<BenchedModel>& models) {
  std::string rows;
  const std::vector<Measurement>& names = models.front().table.rows;
  for (size_t i = 1; i < names.size(); ++i) {
    const auto ran = std::count_if(models.begin(), models.end(),
                                   [i](const BenchedModel& model) { return !model.table.rows[i].not_available; });
    const Ratios means = mean_ratios(models, i);
    const std::string reason = "n/a: it runs " + std::to_string(ran) + " of " + std::to_string(models.size()) + " models";
    const bool all = static_cast<size_t>(ran) == models.size();
    rows += element("tr", name_cell(names[i].name, i) + (all ? ratio_cells(means) : wide_cell(3, "", reason))) + "\n";
  }
  return element("h2", "All " + std::to_string(models.size()) + " models") +
         element("p", "Geometric means of the ratios to sconce.") + "\n" +
         table_element(header_of({"executor", "steady", "first call", "first calls"}), rows);
}

std::string section_of(const BenchedModel& model) {
  std::string notes;
  if (!model.table.complete || model.table.muted > 0 || model.table.rows.front().spread > 0) {
    // The terminal's notes. Those about executors are in the table already.
    const std::string all = notes_of(model.table);
    for (size_t at = all.find("note: "); at != std::string::npos; at = all.find("note: ", at + 1)) {
      notes += element("p", escape_html(all.substr(at, all.find("note: ", at + 1) - at))) + "\n";
    }
  }
  return element("section", "\n" + element("h2", escape_html(std::filesystem::path(model.path).filename().string())) +
                                element("p", escape_html(title_of(model))) + "\n" + table_of(model.table) + notes +
                                plots_of(model.table)) +
         "\n";
}

}  // namespace

std::string to_page(const std::vector<BenchedModel>& models, const MachineFacts& facts) {
  std::string head;
  for (const auto& [name, value] : rows_of(facts)) {
    head += element("dt", escape_html(name)) + element("dd", escape_html(value)) + "\n";
  }
  std::string body =
      element("h1", "sconce bench") + "\n" + element("dl", "\n" + head) + "\n" +
      element("p",
              "Executors side by side in one process, taking turns. Ratios are to sconce: 1.50x means that sconce "
              "is 1.5 times faster; point at a steady one for its 95 % interval. The first call includes all that an "
              "executor does to a model that was just "
              "read; spread is how far the medians of the rounds lie apart; memory is the growth of the process "
              "by the model and its first calls. The plots' time axes are logarithmic.") +
      "\n";
  body += models.size() > 1 ? means_of(models) : "";
  for (const BenchedModel& model : models) {
    body += section_of(model);
  }
  return html_page("sconce bench", kBenchStyle, body);
}

}  // namespace sconce::cli
