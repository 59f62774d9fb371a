// Acceleration in place: sconce runs the calls of a torch::jit::Module, whatever program makes them. libsconce_ops has these
// functions, and registers them as operators (`torch.ops.sconce.accelerate`). Any process with LibTorch may load it.
#pragma once

#include <sconce/explanation.h>
#include <sconce/options.h>

#include <string>
#include <vector>

namespace torch::jit {
struct Function;
struct Module;
}  // namespace torch::jit

namespace sconce {

// From now on, calls of the module's methods, and of its submodules', run on sconce, from whatever language they come. The
// module stays what it was in everything else: its code, its graphs, what it saves, its hooks. A method is compiled in its
// first call; LibTorch runs those that sconce refuses, and `explain_in_place` says why.
//
// Methods belong to classes. A copy of the module, and each other module of its class, is accelerated with it, and runs on
// its own parameters. Another call with other options replaces the first.
//
// Throws c10::Error for options that do not fit a module that others change: Options::frozen, Options::device. No method of
// the classes may run meanwhile in another thread; the same holds for `restore`.
void accelerate_in_place(const torch::jit::Module& module, const Options& options = {});
// The same for a scripted or traced function.
void accelerate_in_place(torch::jit::Function& function, const Options& options = {});

// Accelerates each module in its first call from now on: also those that a library in the process loads, clones or freezes
// and hands to nobody. A first call by C++ code (torch::jit::Module::forward, Method::operator()) runs on sconce already;
// one by Python does not, and no other thread may call that module meanwhile. Options that do not fit throw as above.
// `libsconce_ops` does it when it is loaded, if the environment variable SCONCE_ACCELERATE is set: to 1, or to options as
// JSON.
void accelerate_all(const Options& options = {});
// Accelerates no further modules. Returns whether there was something to end.
bool stop_accelerating_all();

// Lets LibTorch run the methods again. Returns whether any was accelerated.
bool restore(const torch::jit::Module& module);
bool restore(torch::jit::Function& function);

// Returns whether calls of the module's own methods run on sconce.
bool is_accelerated(const torch::jit::Module& module);
bool is_accelerated(torch::jit::Function& function);

// Explains the methods of the module itself that have run: how they ran, and which LibTorch runs, with the reason among
// the refusals. Throws c10::Error if the module is not accelerated.
std::vector<Explanation> explain_in_place(const torch::jit::Module& module);
std::vector<Explanation> explain_in_place(torch::jit::Function& function);

// Waits until no compile of the module's methods, and of its submodules', is left.
void wait_for_compiles_in_place(const torch::jit::Module& module);
void wait_for_compiles_in_place(torch::jit::Function& function);

}  // namespace sconce
