/* Activation layouts of the 256-weight formats on AVX2. */
#include "engine/quant/superblock_avx2.h"

#if defined(__x86_64__)
#include "engine/quant/encode_avx2.h"

/* ---- one token ---- */

static size_t decode_bytes(size_t n_cols, size_t n_tokens)
{
    return n_tokens * (n_cols / 256) * sizeof(struct superblock_avx2_act);
}

AVX2 static void decode_encode(const float *x, size_t x_stride, size_t n_cols, size_t token_begin, size_t token_end,
                               size_t n_tokens, void *out)
{
    (void)x_stride, (void)n_tokens;
    if (token_begin == token_end)
        return;
    struct superblock_avx2_act *a = out;
    for (size_t b = 0; b < n_cols / 256; b++) {
        struct act_q8_k block;
        avx2_encode256(x + 256 * b, &block);
        for (size_t g = 0; g < 8; g++) {
            __m256i q = avx2_by_lanes(avx2_load(block.q + 32 * g));
            _mm256_store_si256((void *)a[b].q[g], q);
            _mm256_store_si256((void *)a[b].pairs[g], _mm256_maddubs_epi16(_mm256_set1_epi8(1), q));
            a[b].sums32[g] = act_q8_k_sum32(&block, g);
        }
        memcpy(a[b].sums, block.sums, sizeof block.sums);
        a[b].d = block.d;
    }
}

const struct activation_layout layout_avx2_decode_q8_k = {"AVX2 decode q8_k", ACT_Q8_K, 1, decode_bytes, decode_encode};

/* ---- panels of 4 tokens ---- */

static size_t panels_bytes(size_t n_cols, size_t n_tokens)
{
    return round_up(n_tokens, AVX2_TOKENS) / AVX2_TOKENS * (n_cols / 256) * sizeof(struct superblock_avx2_panel);
}

AVX2 static void panel_block(const struct act_q8_k *block, size_t token, struct superblock_avx2_panel *panel)
{
    for (size_t g = 0; g < 8; g += 2) {
        __m256i q[2];
        for (size_t i = 0; i < 2; i++)
            q[i] = _mm256_xor_si256(avx2_by_lanes(avx2_load(block->q + 32 * (g + i))), _mm256_set1_epi8(-128));
        avx2_pair_groups(q);
        for (size_t i = 0; i < 2; i++) {
            _mm256_store_si256((void *)panel->q[g + i][token], q[i]);
            panel->sums32[token][g + i] = act_q8_k_sum32(block, g + i);
        }
    }
    memcpy(panel->sums[token], block->sums, sizeof block->sums);
    panel->d[token] = block->d;
}

AVX2 static void panels_encode(const float *x, size_t x_stride, size_t n_cols, size_t token_begin, size_t token_end,
                               size_t n_tokens, void *out)
{
    (void)n_tokens;
    size_t n_blocks = n_cols / 256;
    for (size_t t = token_begin; t < round_up(token_end, AVX2_TOKENS); t++) {
        struct superblock_avx2_panel *panel = (struct superblock_avx2_panel *)out + t / AVX2_TOKENS * n_blocks;
        struct act_q8_k block = {.d = 0};
        for (size_t b = 0; b < n_blocks; b++) {
            if (t < token_end)
                avx2_encode256(x + t * x_stride + 256 * b, &block);
            panel_block(&block, t % AVX2_TOKENS, panel + b);
        }
    }
}

const struct activation_layout layout_avx2_panels_q8_k = {"AVX2 panels q8_k", ACT_Q8_K, AVX2_TOKENS, panels_bytes,
                                                          panels_encode};

#endif
