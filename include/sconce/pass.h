// What passes are written with: the graph, its text, and what is known about it.
#pragma once

#include <sconce/pass_pipeline.h>

#include "ir/alias_sets.h"
#include "ir/effects.h"
#include "ir/escapes.h"
#include "ir/graph.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/schema_match.h"
#include "ir/verify.h"
#include "ir/write_order.h"
#include "passes/claim_subgraphs.h"
#include "passes/rewrite_pattern.h"
