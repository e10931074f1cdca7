/* How word splitters are written down: passes of alternatives over sets of characters. Rows: pretok_programs.c. */
#ifndef GGUFD_TOKENIZER_PRETOK_PROGRAM_H
#define GGUFD_TOKENIZER_PRETOK_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/tokenizer/unicode.h"

/* In any of the atoms of `any` and in none of `none`. */
struct char_set {
    uint32_t any, none;
};

enum rule_op {
    RULE_CONTRACTION, /* 's 't 'm 'd 're 've 'll */
    RULE_RUN,         /* lead? body{min,max} tail{0,tail_max} contraction? */
    RULE_CASE,        /* lead? then upper-case letters then lower-case ones: see rule_case */
    RULE_TO_NEWLINE,  /* white space up to its last CR or LF: \s*[\r\n]+ */
    RULE_BUT_LAST,    /* white space, without its last character where something follows: \s+(?!\S) */
    RULE_TO_END,      /* white space that reaches the end: \s+$ */
    RULE_POWER_OF_2,  /* as RULE_BUT_LAST, cut to a power of two up to 512, at least one character */
    RULE_PHRASE,      /* lead? letters and marks, and single spaces before letters */
    RULE_LITERAL,     /* one of `literals`, in order */
    RULE_FRAMED       /* literals[0], 1 to max of the bytes in literals[1], literals[2] */
};

struct rule {
    enum rule_op op;
    struct char_set lead, body, tail, low; /* RULE_CASE: body is the upper case */
    uint32_t min, max, tail_max; /* 0: min 1, max and tail_max as many as there are */
    bool needs_lead;
    bool contraction;  /* one may follow, in either case */
    bool either_case;  /* RULE_CONTRACTION */
    const char *literals[5];
};

/* A pass is a list of alternatives, or one of two ways of cutting digits into groups of three. */
enum pass_kind {
    PASS_RULES,
    PASS_DIGITS_GLUED, /* runs of numbers: what stands before a run stays with its first group */
    PASS_DIGITS_FROM_END /* runs of ASCII digits: cut before each multiple of three from the run's end */
};

enum { PASS_RULES_MAX = 8, PROGRAM_PASSES_MAX = 6 };

struct pass {
    enum pass_kind kind;
    uint32_t n_rules;
    const struct rule *rules; /* [n_rules <= PASS_RULES_MAX] */
};

struct pretok_program {
    uint32_t n_passes;
    const struct pass *passes; /* [n_passes <= PROGRAM_PASSES_MAX] */
};

#define PRE(name, program, flags) extern const struct pretok_program pretok_program_##program;
#include "engine/tokenizer/pretok.def"
#undef PRE

#endif
