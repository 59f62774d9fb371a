// The models that the tests run: files of SCONCE_MODELS_DIR (tests/models/write_models.py makes them).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace sconce::testing {

// The names of the files NAME.pt that have a NAME.cases.pt, sorted. In a folder: those in it, as FOLDER/NAME.
std::vector<std::string> model_names(const std::string& folder = "");

// Those that a sweep over whole models runs: all small ones, and those of 1 MB or more that are in the part of the run.
std::vector<std::string> models_in_part(const std::string& folder = "");

std::string model_file(const std::string& name);
std::string cases_file(const std::string& name);

}  // namespace sconce::testing
