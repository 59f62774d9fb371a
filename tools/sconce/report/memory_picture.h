// A picture of a plan's memory: time from left to right, the bytes of the arena from bottom to top.
#pragma once

#include <sconce/explanation.h>

#include <string>

namespace sconce::cli {

// Returns an SVG image with one rectangle per slot of the arena. A rectangle's title names the node and its source line; its
// attributes data-first, data-last, data-offset and data-bytes have the numbers. Requires: the memory has a layout.
std::string draw_memory(const MemoryExplanation& memory, const std::string& title);

}  // namespace sconce::cli
