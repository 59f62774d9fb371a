// Sweeps: SPECs with ranges of sizes.
#pragma once

#include <string>
#include <vector>

namespace sconce::cli {

// Expands ranges of tensor sizes, as in float32[1..64:x2,3,224,224]:
//
//   RANGE = FROM..TO:xFACTOR   FROM, FROM * FACTOR, … as long as they are at most TO
//         | FROM..TO:+STEP     FROM, FROM + STEP, … likewise
//         | FROM..TO           all of them
//
// Ranges advance together and must have equally many sizes. Returns the SPECs of each call: one list of them, as they are,
// if there is no range. What else is wrong with a SPEC is left to `parse_spec`. Throws UserError, which names the place.
std::vector<std::vector<std::string>> expand_sweep(const std::vector<std::string>& specs);

}  // namespace sconce::cli
