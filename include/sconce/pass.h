// Everything a pass needs: the graph, its text form, and the analyses.
#pragma once

#include <sconce/pass_pipeline.h>

#include "analysis/effects.h"
#include "analysis/memory/alias_sets.h"
#include "analysis/memory/escapes.h"
#include "analysis/memory/memory_writes.h"
#include "ir/graph.h"
#include "ir/schema_match.h"
#include "ir/text/parse.h"
#include "ir/text/print.h"
#include "ir/verify/verify.h"
#include "pipeline/partition_for_backend.h"
#include "pipeline/rewrite_pattern.h"
