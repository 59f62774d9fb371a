// What training explains, as JSON for programs.
#pragma once

#include "report/json.h"

#include <sconce/compiled_backward.h>
#include <sconce/train_step.h>

namespace sconce {

Json json_of(const BackwardExplanation& explanation);
Json json_of(const OptimizerExplanation& explanation);
Json json_of(const TrainExplanation& explanation);

}  // namespace sconce
