// sconce runs TorchScript models in C++. This header includes the whole public interface but <sconce/pass.h>.
//
//   #include <sconce/sconce.h>
//   sconce::Module model = sconce::load("model.pt");
//   c10::IValue y = model.forward({at::ones({1, 3, 224, 224})});
#pragma once

#include <sconce/captured_optimizer.h>
#include <sconce/compiled_backward.h>
#include <sconce/data_parallel.h>
#include <sconce/explanation.h>
#include <sconce/graph_executor.h>
#include <sconce/log.h>
#include <sconce/module.h>
#include <sconce/options.h>
#include <sconce/pass_pipeline.h>
#include <sconce/script_error.h>
#include <sconce/status.h>
#include <sconce/step_trace.h>
#include <sconce/trace.h>
#include <sconce/train_step.h>
