// The common parts of sconce's pages: HTML with inline CSS, without a network or scripts.
#pragma once

#include <string>

namespace sconce::cli {

std::string escape_html(const std::string& text);

// Returns <tag>content</tag>. `tag` may include attributes; the content must be HTML.
std::string element(const std::string& tag, const std::string& content);

// Returns a whole document, light or dark according to the reader's system. `style`: CSS in addition to that of all pages.
std::string html_page(const std::string& title, const std::string& style, const std::string& body);

}  // namespace sconce::cli
