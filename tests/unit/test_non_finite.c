/* Values that are not finite, in each weight format and in each tensor of each architecture: a logit that takes one up
 * ends the run as such, and none is ever handed out. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/quant/quant.h"
#include "tests/support/evaluate.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/suite.h"

enum { EMBD = 256, N_TOKENS = 3 };
static const int32_t tokens[N_TOKENS] = {1, 5, 9};

/* Logits of all positions. Handing out what is not finite fails the test. */
static enum status run(struct gguf_builder *b, const char *tier, const char *what)
{
    char path[200];
    struct error err;
    snprintf(path, sizeof path, "%s/m.gguf", suite_tmp());
    gguf_builder_write(b, path);
    struct evaluation e = evaluation_open(path, tier, 0, 0, 1);
    size_t n = N_TOKENS * (size_t)engine_info(e.engine)->n_vocab;
    float *rows = calloc(n, sizeof *rows);
    ck_assert_ptr_nonnull(rows);
    enum status status = evaluation_logits(&e, tokens, N_TOKENS, 0, 0, rows, &err);
    for (size_t i = 0; i < n; i++)
        if (!isfinite(rows[i]))
            ck_abort_msg("%s: logit %zu is handed out as %g", what, i, (double)rows[i]);
    if (status != STATUS_OK && status != STATUS_NON_FINITE)
        ck_abort_msg("%s: %s", what, err.text);
    if (status == STATUS_NON_FINITE && !strstr(err.text, "position"))
        ck_abort_msg("%s: no position in: %s", what, err.text);
    free(rows);
    evaluation_close(&e);
    return status;
}

/* Fills a block so that it holds what is not finite: a scale of all ones in most formats. False: no byte does that. */
static bool poison(const struct format *f, char *block)
{
    float values[EMBD];
    for (int byte = 0xff; byte > 0; byte--) {
        memset(block, byte, f->block_bytes);
        f->dequantize(block, values, f->block_elements);
        for (uint32_t i = 0; i < f->block_elements; i++)
            if (!isfinite(values[i]))
                return true;
    }
    memset(block, 0, f->block_bytes);
    return false;
}

/* A model with one tensor of the format, otherwise zero; `spoilt`: row 7 begins with a block that is not finite. */
static struct gguf_builder *model_of(const struct format *f, const char *tensor, bool spoilt, bool *possible)
{
    struct gguf_builder *b =
        gguf_builder_tiny(&(struct tiny_model){.type = 8, .n_layers = 1, .n_embd = EMBD, .n_ff = EMBD, .seed = 8});
    size_t bytes;
    gguf_builder_tensor_data(b, tensor, &bytes);
    uint64_t rows = bytes / (EMBD / 32 * 34), dims[2] = {EMBD, rows};
    ck_assert(gguf_builder_remove_tensor(b, tensor));
    gguf_builder_tensor(b, tensor, f->id, 2, dims, NULL, 0);
    if (spoilt)
        *possible = poison(f, gguf_builder_tensor_data(b, tensor, NULL) + 7 * format_row_bytes(f, EMBD));
    return b;
}

TEST(a_block_of_each_format_that_is_not_finite_ends_the_run)
{
    static const char *const tensors[] = {"output.weight", "blk.0.ffn_down.weight"};
    static const char *const tiers[] = {"scalar", "auto"};
    size_t n_formats, n_never = 0;
    const struct format *const *formats = format_all(&n_formats);
    for (size_t i = 0; i < n_formats; i++)
        for (size_t t = 0; t < (suite_sanitized() ? 2 : 4); t++) {
            char what[100];
            bool possible = false;
            snprintf(what, sizeof what, "%s %s %s", formats[i]->name, tensors[t % 2], tiers[t / 2]);
            struct gguf_builder *sound = model_of(formats[i], tensors[t % 2], false, NULL);
            struct gguf_builder *spoilt = model_of(formats[i], tensors[t % 2], true, &possible);
            if (run(sound, tiers[t / 2], what) != STATUS_OK)
                ck_abort_msg("%s: a sound model is refused", what);
            if (run(spoilt, tiers[t / 2], what) != (possible ? STATUS_NON_FINITE : STATUS_OK))
                ck_abort_msg("%s: possible %d, and not so ended", what, possible);
            n_never += t == 0 && !possible;
            gguf_builder_free(sound);
            gguf_builder_free(spoilt);
        }
    printf("note: %zu formats, %zu of them have no such block\n", n_formats, n_never);
    ck_assert_uint_lt(n_never, n_formats / 4);
}
END

static const char *const kinds[] = {
    "token_embd.weight", "output_norm.weight", "output.weight", "blk.0.attn_norm.weight", "blk.0.attn_q.weight",
    "blk.0.attn_k.weight", "blk.0.attn_v.weight", "blk.0.attn_q.bias", "blk.0.attn_k.bias", "blk.0.attn_v.bias",
    "blk.0.attn_q_norm.weight", "blk.0.attn_k_norm.weight", "blk.1.attn_output.weight", "blk.1.ffn_norm.weight",
    "blk.1.ffn_gate.weight", "blk.1.ffn_up.weight", "blk.1.ffn_down.weight",
};

TEST(each_tensor_of_each_architecture_may_hold_what_is_not_finite)
{
    static const char *const architectures[] = {"llama", "qwen2", "qwen3", "mistral3"};
    static const float values[] = {NAN, -NAN, INFINITY, -INFINITY};
    size_t n = 0, ended = 0;
    for (size_t a = 0; a < 4; a++)
        for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
            for (size_t v = 0; v < (suite_sanitized() ? 1 : 4); v++) {
                char what[100];
                size_t bytes;
                struct tiny_model tiny = {.architecture = architectures[a], .bpe = a == 1 || a == 2, .seed = 8};
                struct gguf_builder *b = gguf_builder_tiny(&tiny);
                char *data = gguf_builder_tensor_data(b, kinds[k], &bytes);
                size_t row = strcmp(kinds[k], "token_embd.weight") == 0 ? 5 : 0;
                snprintf(what, sizeof what, "%s %s %g", architectures[a], kinds[k], (double)values[v]);
                if (data) {
                    memcpy(data + row * 64 * sizeof(float), &values[v], sizeof values[v]);
                    bool non_finite = run(b, v % 2 ? "auto" : "scalar", what) == STATUS_NON_FINITE;
                    if (v < 2 && !non_finite) /* an infinite score may lose the softmax, no NaN does */
                        ck_abort_msg("%s: not noticed", what);
                    n++;
                    ended += non_finite;
                }
                gguf_builder_free(b);
            }
    printf("note: %zu models, %zu ended so, the others kept their logits finite\n", n, ended);
    ck_assert_uint_gt(ended, n / 2);
}
END

SUITE(non_finite, T(a_block_of_each_format_that_is_not_finite_ends_the_run),
      T(each_tensor_of_each_architecture_may_hold_what_is_not_finite))
