#include "tools/sconce/check/check_findings.h"

#include <algorithm>

namespace sconce::cli {

void Findings::begin_case(std::string name, std::string plan) {
  cases_.insert(name);
  case_name_ = std::move(name);
  plan_ = std::move(plan);
  call_ = 1;
}

void Findings::add(const std::string& against, Mismatch mismatch) {
  findings_.push_back({case_name_, plan_, call_, against, std::move(mismatch)});
}

void Findings::add(const std::string& against, const std::string& path, const std::string& what) {
  add(against, Mismatch{path, what, {}, {}, {}});
}

void Findings::add_all(const std::string& against, std::vector<Mismatch> mismatches) {
  for (Mismatch& mismatch : mismatches) {
    add(against, std::move(mismatch));
  }
}

void Findings::add_note(const std::string& text) {
  const auto is_known = [&](const Note& note) { return note.case_name == case_name_ && note.text == text; };
  if (std::none_of(notes_.begin(), notes_.end(), is_known)) {
    notes_.push_back({case_name_, text});
  }
}

std::vector<std::string> Findings::failing_cases() const {
  std::vector<std::string> names;
  for (const Finding& finding : findings_) {
    if (std::find(names.begin(), names.end(), finding.case_name) == names.end()) {
      names.push_back(finding.case_name);
    }
  }
  return names;
}

std::string to_text(const Findings& findings) {
  std::string text;
  for (const std::string& name : findings.failing_cases()) {
    text += "FAILED " + name + "\n";
    for (const Finding& finding : findings.all()) {
      if (finding.case_name == name) {
        text += "  " + finding.plan + ", call " + std::to_string(finding.call) + ", against " + finding.against + ": " +
                to_string(finding.mismatch) + "\n";
      }
    }
  }
  for (const Findings::Note& note : findings.notes()) {
    text += "note: " + note.case_name + ": " + note.text + "\n";
  }
  return text;
}

Json to_json(const Finding& finding) {
  Json json{{"case", finding.case_name},  {"plan", finding.plan},          {"call", finding.call},
            {"against", finding.against}, {"path", finding.mismatch.path}, {"what", finding.mismatch.what}};
  if (finding.mismatch.max_absolute_error) {
    json["max_absolute_error"] = json_number(*finding.mismatch.max_absolute_error);
  }
  if (finding.mismatch.max_relative_error) {
    json["max_relative_error"] = json_number(*finding.mismatch.max_relative_error);
  }
  if (!finding.mismatch.first_index.empty()) {
    json["first_index"] = finding.mismatch.first_index;
  }
  return json;
}

}  // namespace sconce::cli
