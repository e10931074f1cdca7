/* What engine.c and session.c share. */
#ifndef GGUFD_ENGINE_STATE_H
#define GGUFD_ENGINE_STATE_H

#include "engine/engine.h"
#include "engine/exec/graph.h"
#include "engine/gguf/gguf.h"
#include "engine/models/model.h"
#include "engine/tokenizer/tokenizer.h"

struct engine {
    struct gguf *gguf;
    struct tokenizer *tokenizer;
    struct model model;     /* zeroed for a vocabulary */
    struct graph graph;
    enum cpu_tier tier;
    struct cpu_cores cores;
    struct engine_info info;
    struct log_sink log;
};

#endif
