// The example, built in the tree.
#include "examples/custom_pass/custom_pass.cpp"
