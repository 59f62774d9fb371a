// Pages of the documentation, which tests hold to the code. With SCONCE_UPDATE_EXPECTATIONS=1, they rewrite the pages.
#pragma once

#include <filesystem>
#include <string>

namespace sconce::testing {

// Returns the folder of the repository.
std::filesystem::path repository();
// Returns the text of a file of the repository.
std::string read_page(const std::filesystem::path& name);

// Expects the page to be `text`.
void expect_page(const std::filesystem::path& name, const std::string& text);
// Expects the part of the page between the first `opening` and the next `closing` to be `text`.
void expect_part(const std::filesystem::path& name, const std::string& opening, const std::string& closing,
                 const std::string& text);

}  // namespace sconce::testing
