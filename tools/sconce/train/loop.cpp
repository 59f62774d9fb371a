#include "tools/sconce/train/loop.h"

#include "base/exception_message.h"
#include "report/number_format.h"
#include "tools/sconce/report/errors.h"
#include "tools/sconce/train/curves.h"
#include "tools/sconce/ui/interruption.h"
#include "tools/sconce/values/write_file.h"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <iostream>

namespace sconce::cli {
namespace {

constexpr double kSecondsBetweenFiles = 1;  // an epoch may be much shorter

// Returns whether a run was interrupted in the validation after an epoch.
bool lacks_validation(const Training& training, const DataSource* validation) {
  if (validation == nullptr || training.progress().step == 0 || !training.is_at_end_of_epoch()) {
    return false;
  }
  const Series* losses = training.history().find(TrainHistory::kValidationLoss);
  return losses == nullptr || std::isnan(losses->values.back());
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

TrainLoop::TrainLoop(Training& training, const DataSource& data, const DataSource* validation, const TrainFolder& folder,
                     LoopOptions options, TrainRun run)
    : training_(training),
      data_(data),
      validation_(validation),
      folder_(folder),
      options_(std::move(options)),
      run_(std::move(run)),
      checkpointer_(folder, options_.checkpoint_every),
      is_validation_due_(lacks_validation(training, validation)),
      log_(folder.loss_csv(), (std::filesystem::path(options_.resumed).parent_path() / "loss.csv").string(),
           training.progress().step - (is_validation_due_ ? 1 : 0)) {
  run_.first_step = training.progress().step;
  run_.files = {{"checkpoint", folder_.checkpoint()},
                {"losses", folder_.loss_csv()},
                {"epochs", folder_.epochs_csv()},
                {"curve", folder_.svg()},
                {"report", folder_.page()}};
  if (options_.tensorboard && training.is_first()) {
    if (options_.overwrite) {
      EventFile::remove_all(folder_.path());
    }
    events_.emplace(folder_.path(), training.progress().step - (is_validation_due_ ? 1 : 0));
    run_.files.emplace_back("events", events_->path());
  }
}

bool TrainLoop::shall_stop() const {
  return stops_ || (training_.ranks().is_alone() && interrupted()) ||
         (options_.max_steps > 0 && training_.progress().step - run_.first_step >= options_.max_steps);
}

void TrainLoop::run() {
  if (options_.overwrite) {
    keep_state();  // a run that ends early must not leave the checkpoint of another training
  }
  try {
    if (is_validation_due_) {
      end_epoch();
      log_step();
    }
    run_epochs();
  } catch (const Interrupted&) {
    return;
  } catch (const std::exception&) {
    // The other processes of a sharded optimizer have a part of the state.
    const bool has_all = training_.ranks().is_alone() || !training_.settings().shard_optimizer;
    if (training_.is_between_steps() && has_all) {
      keep_state();
    } else if (training_.is_first()) {
      write_logs();  // they show how it came to that
    }
    write_reports();
    throw;
  }
}

void TrainLoop::run_epochs() {
  last_files_ = Clock::now();
  while (!training_.is_complete() && !shall_stop()) {
    run_steps_of_epoch();
    if (training_.is_at_end_of_epoch()) {
      end_epoch();
    }
    log_step();
    const bool is_time = training_.ranks().is_alone() ? seconds_since(last_files_) > kSecondsBetweenFiles : writes_files_;
    if (checkpointer_.is_due(training_) || is_time) {
      keep_state();
      write_reports();
      last_files_ = Clock::now();
    }
  }
}

void TrainLoop::run_steps_of_epoch() {
  ui::ProgressBar bar(
      "epoch " + std::to_string(training_.progress().epoch + 1) + "/" + std::to_string(training_.settings().epochs),
      training_.steps_left_in_epoch(), training_.is_first() ? options_.progress : ui::ProgressMode::kNever);
  for (;;) {
    const auto start = Clock::now();
    const Training::StepEnd end = training_.step([this] {
      return Training::Wishes{.stop = interrupted(), .write_files = seconds_since(last_files_) > kSecondsBetweenFiles};
    });
    stops_ = end.stop;
    writes_files_ = end.write_files;
    run_.seconds += seconds_since(start);
    bar.advance("loss " + format_number(end.loss));
    if (training_.is_at_end_of_epoch() || shall_stop()) {
      return;
    }
    log_step();
    if (checkpointer_.is_due(training_)) {
      keep_state();
    }
  }
}

void TrainLoop::end_epoch() {
  if (validation_ != nullptr) {
    is_validation_due_ = true;
    training_.keep(training_.evaluate(*validation_));
    is_validation_due_ = false;
    if (training_.is_first() && training_.is_best_epoch()) {
      checkpointer_.keep_best(training_, options_.trains);
    }
  }
  if (training_.is_first() && options_.prints_epochs) {
    std::cout << epoch_line(training_) << std::endl;
  }
}

void TrainLoop::log_step() {
  if (!training_.is_first()) {
    return;
  }
  log_.add(training_);
  if (events_) {
    events_->add(training_);
  }
}

void TrainLoop::attempt(const std::function<void()>& write) {
  try {
    write();
  } catch (const UserError& failure) {
    failure_ = failure_.empty() ? failure.what() : failure_;
  }
}

void TrainLoop::write_logs() {
  attempt([&] { log_.flush(); });
  if (events_) {
    attempt([&] { events_->flush(); });
  }
}

void TrainLoop::write_state() {
  write_logs();
  attempt([&] { checkpointer_.write_best(); });
  attempt([&] { checkpointer_.write_checkpoint(training_); });
}

void TrainLoop::keep_state() {
  training_.gather_state();
  if (!training_.is_first()) {
    return;
  }
  const bool is_warned_of = !failure_.empty();
  write_state();
  if (!is_warned_of && !failure_.empty()) {
    std::cerr << "sconce: warning: " << failure_ << "; the training goes on, and the last file stays" << std::endl;
  }
}

void TrainLoop::write_reports() {
  if (training_.is_first() && training_.progress().step > 0) {
    attempt([&] { write_file(folder_.epochs_csv(), epochs_csv(training_.history())); });
    attempt([&] { write_file(folder_.svg(), loss_svg(training_.history())); });
    attempt([&] { write_file(folder_.page(), to_page(run_, training_)); });
  }
}

// The training is good without them: a loss may take whole batches only.
void TrainLoop::take_samples() {
  const DataSource& data = validation_ != nullptr ? *validation_ : data_;
  try {
    run_.samples = training_.samples(data);
  } catch (const std::exception& failure) {
    run_.samples = Samples{.why_none = one_line_message(failure)};
  }
  run_.samples->are_of_validation = validation_ != nullptr;
}

void TrainLoop::finish() {
  training_.gather_state();
  if (!training_.is_first()) {
    return;
  }
  run_.is_complete = is_complete();
  failure_.clear();
  write_state();
  const bool has_best = best_epoch(training_.history().find(training_.settings().monitor)).is_known();
  if (has_best && std::filesystem::exists(folder_.best())) {
    run_.files.emplace(run_.files.begin(), "best model", folder_.best());
  }
  if (run_.is_complete) {
    attempt([&] { checkpointer_.write_model(training_, options_.trains); });
    run_.files.emplace(run_.files.begin(), "model", folder_.model());
    take_samples();
  }
  write_reports();
  if (!failure_.empty()) {
    throw UserError(failure_);
  }
}

}  // namespace sconce::cli
