// The loss of a training, as a table for programs and as a picture.
#pragma once

#include "tools/sconce/train/training.h"

#include <string>

namespace sconce::cli {

// Returns lines "step,epoch,learning_rate,loss,validation_loss", both counted from 1. The validation's loss is in the last
// step of its epoch.
std::string loss_csv(const Training& training);

// Returns an SVG image, light or dark as the reader's system is: the loss of steps (means of neighbors if there are many),
// of epochs, and of the validation. The axis of losses is logarithmic if they differ much.
std::string loss_svg(const Training& training);

// Returns the mean loss of the steps of an epoch, those that are done.
double loss_of_epoch(const Training& training, size_t epoch);
// Returns that of each epoch that has begun.
std::vector<double> losses_of_epochs(const Training& training);

}  // namespace sconce::cli
