#include "tools/sconce/report/dump_page.h"

#include "tools/sconce/report/html.h"
#include "tools/sconce/report/text_diff.h"

namespace sconce::cli {
namespace {

constexpr const char* kDumpStyle = R"(
body { max-width: none; }
.stages { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(40rem, 100%), 1fr)); gap: 1rem; }
pre { font: 13px/1.5 ui-monospace, monospace; overflow-x: auto; margin: 0.6rem 0; border: 1px solid var(--rule);
      padding: 0.5rem 0; max-height: 80vh; }
pre span { display: block; padding: 0 0.7rem; min-width: max-content; }
.gone { background: color-mix(in srgb, var(--bad) 18%, transparent); text-decoration: line-through; }
.new { background: color-mix(in srgb, var(--good) 18%, transparent); }
i { color: var(--soft); font-style: normal; }
)";

enum class Side { kBefore, kAfter };

// Returns the text of one side, with the lines that the other side lacks marked. `marked` counts them.
std::string marked_text(const std::vector<DiffLine>& lines, Side side, size_t& marked) {
  const DiffLine::Kind missing = side == Side::kBefore ? DiffLine::Kind::kNew : DiffLine::Kind::kGone;
  std::string html;
  for (const DiffLine& line : lines) {
    if (line.kind == missing) {
      continue;
    }
    const std::string& text = side == Side::kBefore ? line.before : line.after;
    const bool is_marked = line.kind != DiffLine::Kind::kSame;
    marked += is_marked ? 1 : 0;
    const size_t end = end_of_code(text);
    const std::string code =
        escape_html(text.substr(0, end)) + (end < text.size() ? element("i", escape_html(text.substr(end))) : "");
    const char* mark = side == Side::kBefore ? "span class=\"gone\"" : "span class=\"new\"";
    html += element(is_marked ? mark : "span", code.empty() ? "&nbsp;" : code);
  }
  return element("pre", html);
}

std::string node_count_text(size_t nodes) { return std::to_string(nodes) + (nodes == 1 ? " node" : " nodes"); }

std::string plain_column(const std::string& title, const std::string& text) {
  size_t marked = 0;
  return element("div", element("h4", escape_html(title)) + marked_text(diff_texts(text, text), Side::kAfter, marked));
}

// Returns f, the saved values and df, side by side.
std::string subgraph_html(const SubgraphColumns& subgraph) {
  return element("h3", escape_html(subgraph.title)) +
         element("div class=\"stages\"", plain_column("f", subgraph.forward) + plain_column("saved", subgraph.saved) +
                                             plain_column("df", subgraph.backward));
}

}  // namespace

std::string to_page(const std::string& title, const std::vector<StageText>& stages) {
  std::string body = element("h1", escape_html(title)) + "\n";
  for (size_t i = 0; i < stages.size(); ++i) {
    const StageText& stage = stages[i];
    std::string about = stage.help + ": " + node_count_text(stage.nodes);
    std::string columns;
    size_t gone = 0;
    size_t added = 0;
    if (i == 0) {
      columns = marked_text(diff_texts(stage.text, stage.text), Side::kAfter, added);
    } else {
      const StageText& before = stages[i - 1];
      const std::vector<DiffLine> lines = diff_texts(before.text, stage.text);
      columns = marked_text(lines, Side::kBefore, gone) + marked_text(lines, Side::kAfter, added);
      about = stage.help + ": " + node_count_text(before.nodes) + ", then " + std::to_string(stage.nodes) +
              "; lines gone: " + std::to_string(gone) + ", new: " + std::to_string(added);
    }
    std::string subgraphs;
    for (const SubgraphColumns& subgraph : stage.subgraphs) {
      subgraphs += subgraph_html(subgraph);
    }
    const bool same = i > 0 && gone == 0 && added == 0;
    body += element("section", element("h2", escape_html(stage.stage)) +
                                   element("p", escape_html(same ? stage.help + ": nothing changes" : about)) +
                                   (same ? "" : element("div class=\"stages\"", columns)) + subgraphs) +
            "\n";
  }
  return html_page(title, kDumpStyle, body);
}

}  // namespace sconce::cli
