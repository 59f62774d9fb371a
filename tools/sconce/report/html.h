// What the pages of sconce have in common: HTML with inline CSS that needs neither a network nor a script.
#pragma once

#include <string>

namespace sconce::cli {

std::string escape_html(const std::string& text);

// <tag>content</tag>; `tag` may carry attributes. The content is HTML already.
std::string element(const std::string& tag, const std::string& content);

// A whole document, light or dark as the reader's system is. `style`: CSS beside that of all pages.
std::string html_page(const std::string& title, const std::string& style, const std::string& body);

}  // namespace sconce::cli
