#include "tools/sconce/report/html.h"

namespace sconce::cli {
namespace {

// Colors that are distinguishable with color blindness, too.
const std::string kPageStyle = R"(
:root { color-scheme: light dark; --text: #1b1f24; --back: #ffffff; --soft: #59636e; --rule: #d5dae0; --stripe: #f4f6f8;
        --good: #12703a; --bad: #b3261e;
        --c0: var(--text); --c1: #0072b2; --c2: #d55e00; --c3: #009e73; --c4: #b6579a; --c5: #b88000; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e8eaed; --back: #15181c; --soft: #a3abb5; --rule: #3a4149; --stripe: #1d2126;
          --good: #6fd39a; --bad: #ff8a80;
          --c1: #56b4e9; --c2: #ff8f4a; --c3: #3fc79c; --c4: #e39bc9; --c5: #f0c040; }
}
body { font: 15px/1.45 system-ui, sans-serif; color: var(--text); background: var(--back); max-width: 88rem;
       margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin: 2.5rem 0 0; overflow-wrap: anywhere; }
h3 { font-size: 1rem; margin: 0; }
p { margin: 0.3rem 0 0.8rem; color: var(--soft); overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.1rem 1rem; margin: 0; } dt { color: var(--soft); }
dd { margin: 0; }
.scroll { overflow-x: auto; }
)";

}  // namespace

std::string escape_html(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '&': safe += "&amp;"; break;
      case '<': safe += "&lt;"; break;
      case '>': safe += "&gt;"; break;
      case '"': safe += "&quot;"; break;
      default: safe += c;
    }
  }
  return safe;
}

std::string element(const std::string& tag, const std::string& content) {
  return "<" + tag + ">" + content + "</" + tag.substr(0, tag.find(' ')) + ">";
}

std::string html_page(const std::string& title, const std::string& style, const std::string& body) {
  return "<!DOCTYPE html>\n<html lang=\"en\">\n" +
         element("head", "\n<meta charset=\"utf-8\"/>\n<meta name=\"viewport\" content=\"width=device-width\"/>\n" +
                             element("title", escape_html(title)) + "\n" + element("style", kPageStyle + style) + "\n") +
         "\n" + element("body", "\n" + body) + "\n</html>\n";
}

}  // namespace sconce::cli
