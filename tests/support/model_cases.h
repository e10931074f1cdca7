/* Small random models that exercise one feature of the graph each: what the fixtures of the reference cover and what
 * they do not. Their logits are checked in as hashes (tests/unit/test_models.c), made once with the reference, and can
 * be compared with it again bit for bit (make test-peer). */
#ifndef GGUFD_TESTS_MODEL_CASES_H
#define GGUFD_TESTS_MODEL_CASES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/support/gguf_builder.h"

struct model_case {
    const char *name, *architecture;
    const char *format, *format2; /* of matrices; format2: of every other one, NULL: all alike */
    uint32_t n_layers, n_embd, n_heads, n_heads_kv, head_size, n_ff, n_experts, n_used;
    uint32_t n_tokens; /* evaluated */
    bool tied, biases, output_bias, rope_freqs;
    const char *scaling; /* NULL: key absent; so are numbers that are 0 below */
    float factor, scale_linear, base, attn_factor, beta_fast, beta_slow, log_multiplier, temperature;
    uint32_t original_context;
    uint64_t hash; /* FNV-1a over the logits of all tokens as the reference computes them; 0: only made on demand */
};

/* All cases; a NULL name ends them. */
extern const struct model_case model_cases[];

/* The same bytes for the same case, on every machine. */
struct gguf_builder *model_case_build(const struct model_case *c);

/* n_tokens ids, the same for the same case. MODEL_CASE_VOCAB: length of the vocabulary of every case. */
enum { MODEL_CASE_VOCAB = 355 };
void model_case_tokens(const struct model_case *c, int32_t *tokens);

#endif
