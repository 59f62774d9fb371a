// PassPipeline: adds your passes to sconce's, for one module.
//
//   sconce::Options options;
//   options.passes().after(sconce::Stage::kOptimize, "my_pass", [](sconce::Graph& graph) { … return changed; });
//   options.passes().disable("unroll_loops");
//   sconce::Module module = sconce::load("model.pt", options);
//
// <sconce/pass.h> has the graph and the analyses that a pass needs.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

namespace sconce {

class Graph;

// The named points of a compile. Passes of your own run before or after the first four.
//   kRequired    what must happen before a graph can run
//   kOptimize    what makes it better and leaves it differentiable
//   kSpecialize  what needs to know the arguments: runs for each specialized plan, on the graph that kOptimize left
//   kFuse        what makes kernel nodes: runs last, for each plan, and for the forward and backward graphs of
//                differentiable subgraphs
//   kOnRequest   what runs only where it is asked for by name
enum class Stage { kRequired, kOptimize, kSpecialize, kFuse, kOnRequest };

// A pass. Returns whether it changed the graph. A pass that throws has failed.
using PassCallback = std::function<bool(Graph&)>;

struct CustomPass {
  std::string name;
  std::string help;  // one line
  Stage stage = Stage::kOptimize;
  bool is_after = true;  // runs after the stage's passes, else before them
  PassCallback run;
  std::string library;  // the plug-in it came from, or empty
};

// Each pass of yours works on a copy of the graph. The copy is verified when the pass returns, and dropped if the pass
//   - threw an exception,
//   - violated an invariant of the graph, or changed the number or types of its inputs or outputs,
//   - returned a flag that does not fit what it did.
// The model then runs without the pass. `explain` lists it as a refusal, with the reason and a reproducer.
class PassPipeline {
 public:
  PassPipeline();
  // Runs the pass before or after the stage's own passes, and after your passes added earlier at the same point. Throws
  // c10::Error if the name is taken.
  PassPipeline& before(Stage stage, const std::string& name, PassCallback run, const std::string& help = "");
  PassPipeline& after(Stage stage, const std::string& name, PassCallback run, const std::string& help = "");
  // After the stage, replaces what matches `pattern` by `replacement`, both graphs in text form. The class RewritePattern in
  // <sconce/pass.h> describes matches and their legality; call it in a pass of yours to rewrite before a stage. Throws
  // c10::Error if the two texts do not form a pattern.
  PassPipeline& rewrite(Stage stage, const std::string& name, const std::string& pattern, const std::string& replacement,
                        const std::string& help = "");
  // Adds the passes of a plug-in library. Throws c10::Error, with both versions, if it was built for another sconce.
  PassPipeline& load_plugin(const std::string& path);

  // Removes a pass of yours. Throws c10::Error if there is none of that name.
  PassPipeline& remove(const std::string& name);
  // Skips a pass, sconce's or yours; `enable` undoes this. Throws c10::Error for an unknown name, and for a pass without
  // which graphs cannot run.
  PassPipeline& disable(const std::string& name);
  PassPipeline& enable(const std::string& name);

  const std::vector<CustomPass>& custom_passes() const { return custom_; }
  bool is_disabled(const std::string& name) const { return disabled_.count(name) != 0; }

  // Sets the folder for reproducers of failed passes, which `sconce replay` runs. The default is the system's folder for
  // temporary files. With an empty string none is written.
  PassPipeline& reproducer_folder(const std::string& folder);
  const std::string& reproducer_folder() const { return reproducer_folder_; }

 private:
  PassPipeline& add(CustomPass pass);
  void expect_known(const std::string& name) const;
  std::vector<CustomPass> custom_;
  std::set<std::string> disabled_;
  std::string reproducer_folder_;
};

const char* to_string(Stage stage);

}  // namespace sconce
