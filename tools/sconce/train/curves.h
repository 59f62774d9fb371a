// The curves of a training, as pictures and as a table for programs.
#pragma once

#include "tools/sconce/train/history.h"

#include <string>
#include <utility>
#include <vector>

namespace sconce::cli {

// Returns an SVG image, light or dark as the reader's system is: the loss of steps (means of neighbors if there are many),
// of epochs, and of the validation. The axis of losses is logarithmic if they differ much.
std::string loss_svg(const TrainHistory& history);

// Returns such an image of each metric, after its name.
std::vector<std::pair<std::string, std::string>> metric_svgs(const TrainHistory& history);

// Returns lines "epoch,step,loss,validation_loss,accuracy", one for each epoch that ended, with a column for each series;
// `step` is the last one of the epoch. Both are counted from 1. An entry is empty where the number was not measured.
std::string epochs_csv(const TrainHistory& history);

}  // namespace sconce::cli
