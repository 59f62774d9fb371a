#include "tools/sconce/train/loop.h"

#include "report/number_format.h"
#include "tools/sconce/report/errors.h"
#include "tools/sconce/train/loss_curve.h"
#include "tools/sconce/ui/interruption.h"
#include "tools/sconce/values/write_file.h"

#include <chrono>
#include <iostream>
#include <sstream>

namespace sconce::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kSecondsBetweenFiles = 1;  // an epoch may be much shorter

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

void TrainFolder::prepare(const std::string& resumed, bool overwrite) const {
  std::error_code error;
  std::filesystem::create_directories(path_, error);
  if (error) {
    throw UserError(path_.string() + ": cannot be created: " + error.message());
  }
  expect_writable(checkpoint());
  std::error_code ignored;
  const bool is_resumed = !resumed.empty() && std::filesystem::equivalent(checkpoint(), resumed, ignored);
  if (std::filesystem::exists(checkpoint()) && !is_resumed && !overwrite) {
    throw UserError(checkpoint() + ": exists; go on with --resume " + checkpoint() +
                    ", name another folder with --output, or start again with --overwrite");
  }
}

TrainLoop::TrainLoop(Training& training, const std::optional<TrainData>& validation, TrainFolder folder, LoopOptions options,
                     TrainRun run)
    : training_(training),
      validation_(validation),
      folder_(std::move(folder)),
      options_(std::move(options)),
      run_(std::move(run)) {
  run_.first_step = training.steps_done();
  run_.files = {
      {"checkpoint", folder_.checkpoint()}, {"losses", folder_.csv()}, {"curve", folder_.svg()}, {"report", folder_.page()}};
}

bool TrainLoop::shall_stop() const {
  return interrupted() || (options_.max_steps > 0 && training_.steps_done() - run_.first_step >= options_.max_steps);
}

bool TrainLoop::is_checkpoint_due() const {
  return options_.checkpoint_every > 0 && training_.steps_done() % options_.checkpoint_every == 0;
}

void TrainLoop::run() {
  auto last_files = Clock::now();
  while (!is_complete() && !shall_stop()) {
    run_steps_of_epoch();
    if (training_.is_at_end_of_epoch()) {
      end_epoch();
    }
    if (is_checkpoint_due() || seconds_since(last_files) > kSecondsBetweenFiles) {
      write_checkpoint(training_.checkpoint(), folder_.checkpoint());
      write_reports();
      last_files = Clock::now();
    }
  }
}

void TrainLoop::run_steps_of_epoch() {
  const size_t epoch = training_.steps_done() / training_.steps_per_epoch();
  const size_t left = training_.steps_per_epoch() - training_.steps_done() % training_.steps_per_epoch();
  ui::ProgressBar bar("epoch " + std::to_string(epoch + 1) + "/" + std::to_string(training_.settings().epochs), left,
                      options_.progress);
  do {
    const auto start = Clock::now();
    const double loss = training_.step();
    run_.seconds += seconds_since(start);
    bar.advance("loss " + format_number(loss));
    if (is_checkpoint_due() && !training_.is_at_end_of_epoch()) {
      write_checkpoint(training_.checkpoint(), folder_.checkpoint());
    }
  } while (!training_.is_at_end_of_epoch() && !shall_stop());
}

void TrainLoop::end_epoch() {
  if (validation_) {
    training_.validate(*validation_);
  }
  if (options_.prints_epochs) {
    std::cout << epoch_line(training_) << std::endl;
  }
}

void TrainLoop::finish(bool trains) {
  write_checkpoint(training_.checkpoint(), folder_.checkpoint());
  if (is_complete()) {
    Module module = training_.module();
    module.train(trains);
    std::ostringstream bytes;
    module.script_module().save(bytes);
    write_file(folder_.model(), bytes.view());
    run_.files.emplace(run_.files.begin(), "model", folder_.model());
  }
  write_reports();
}

void TrainLoop::write_reports() const {
  write_file(folder_.csv(), loss_csv(training_));
  write_file(folder_.svg(), loss_svg(training_));
  write_file(folder_.page(), to_page(run_, training_));
}

}  // namespace sconce::cli
