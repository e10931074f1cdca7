/* Hostile GGUF files: one fault each, with what must come of it. A refusal names file, field, value and limit. */
#include "engine/gguf/gguf.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/support/gguf_builder.h"
#include "tests/support/mutation.h"
#include "tests/support/patience.h"
#include "tests/support/suite.h"

#define MAX64 0xffffffffffffffffu
#define HALF64 0x8000000000000000u

/* The base: 18 keys, 21 tensors, as gguf_builder_tiny makes them, with an explicit alignment and a few extra keys. */
static struct gguf_builder *base_model(void)
{
    static const uint32_t numbers[] = {1, 2, 3};
    static const unsigned char flags[] = {0, 1, 1};
    struct gguf_builder *b = gguf_builder_tiny(&(struct tiny_model){.type = 8, .seed = 5});
    gguf_builder_alignment(b, 32);
    gguf_builder_array(b, "x.numbers", GGUF_U32, 3, numbers, sizeof numbers);
    gguf_builder_array(b, "x.flags", GGUF_BOOL, 3, flags, sizeof flags);
    gguf_builder_bool(b, "x.flag", true);
    gguf_builder_u64(b, "x.u64", 1);
    return b;
}

static const struct mutation mutations[] = {
    /* A14: magic and version */
    {"version", POKE, 4, 0, "*: version 0 is not supported (2 and 3 are)"},
    {"version", POKE, 4, 1, "*: version 1 is not supported (2 and 3 are)"},
    {"version", POKE, 4, 2, NULL},
    {"version", POKE, 4, 3, NULL},
    {"version", POKE, 4, 4, "*: version 4 is not supported (2 and 3 are)"},
    {"version", POKE, 4, 0xffffffff, "*: version 4294967295 is not supported (2 and 3 are)"},
    {"version", POKE, 4, 0x03000000, "*: version field 0x03000000: a big-endian file*"},
    {"version", POKE, 4, 0x02000000, "*: version field 0x02000000: a big-endian file*"},
    {"start", POKE, 4, 0x47475546, "*: is a byte-swapped (big-endian) GGUF file*"},
    {"start", POKE, 4, 0x66554747, "*: magic \"GGUf\" is not \"GGUF\""},
    {"start", POKE, 4, 0, "*: magic \"\\x00\\x00\\x00\\x00\" is not \"GGUF\""},
    {"start", POKE, 4, 0x04034b50, "*: is a zip archive*"},
    {"start", POKE, 2, 0x8b1f, "*: is a gzip file*"},

    /* A1: counts taken on trust */
    {"n_tensors", POKE, 8, MAX64, "*: tensor count 18446744073709551615 exceeds 1048576"},
    {"n_tensors", POKE, 8, HALF64, "*: tensor count 9223372036854775808 exceeds 1048576"},
    {"n_tensors", POKE, 8, HALF64 - 1, "*: tensor count 9223372036854775807 exceeds 1048576"},
    {"n_tensors", POKE, 8, 0x0400000000000000, "*: tensor count 288230376151711744 exceeds 1048576"},
    {"n_tensors", POKE, 8, 0x00b21642c8590b22, "*: tensor count 50127021939428130 exceeds 1048576"},
    {"n_tensors", POKE, 8, 1048576, "*: tensor count 1048576 needs at least 32 bytes each, ?????? bytes left"},
    {"n_tensors", POKE, 8, 100000, "*: tensor count 100000 needs at least 32 bytes each, ?????? bytes left"},
    {"n_tensors", POKE, 8, 22, "*: tensor number 21 of 22: name: length * is outside 1..63"},
    {"n_tensors", POKE, 8, 20, NULL}, /* the model then lacks a tensor; that is for the architecture to say */
    {"n_tensors", POKE, 8, 0, NULL},  /* reads as a vocabulary, with a note about the bytes behind it */
    {"n_keys", POKE, 8, MAX64, "*: key count 18446744073709551615 exceeds 4194304"},
    {"n_keys", POKE, 8, HALF64, "*: key count 9223372036854775808 exceeds 4194304"},
    {"n_keys", POKE, 8, HALF64 - 1, "*: key count 9223372036854775807 exceeds 4194304"},
    {"n_keys", POKE, 8, 0x0400000000000000, "*: key count 288230376151711744 exceeds 4194304"},
    {"n_keys", POKE, 8, 0x00b21642c8590b22, "*: key count 50127021939428130 exceeds 4194304"},
    {"n_keys", POKE, 8, 4194304, "*: key count 4194304 needs at least 13 bytes each, ?????? bytes left"},
    {"n_keys", POKE, 8, 24, "*: tensor number 0 of 21: name: length * at *left"},
    {"n_keys", POKE, 8, 22, "*: tensor \"x.u64\": dimension count 10 is outside 1..4"},
    {"n_keys", POKE, 8, 0, "*: tensor \"general.architecture\": dimension count 8 is outside 1..4"},

    /* A2: lengths and counts beyond the file */
    {"key[general.architecture].name", POKE, 8, MAX64,
     "*: key number 0 of 23: name: length 18446744073709551615 *left"},
    {"key[general.architecture].name", POKE, 8, HALF64,
     "*: key number 0 of 23: name: length 9223372036854775808 *left"},
    {"key[general.architecture].name", POKE_SIZE, 8, 0,
     "*: key number 0 of 23: name: length * exceeds the * bytes left"},
    {"key[general.architecture].name", POKE_LEFT, 8, 1,
     "*: key number 0 of 23: name: length * exceeds the * bytes left"},
    {"key[general.architecture].name", POKE_LEFT, 8, 0, "*: key number 0 of 23: name: length * is outside 1..65535"},
    {"key[general.architecture].name", POKE, 8, 65536, "*: key number 0 of 23: name: length 65536 is outside 1..65535"},
    {"key[general.architecture].name", POKE, 8, 0, "*: key number 0 of 23: name: length 0 is outside 1..65535"},
    {"key[x.u64].name", POKE, 8, 0, "*: key number 22 of 23: name: length 0 is outside 1..65535"},
    {"key[general.name].value", POKE, 8, MAX64,
     "*: key \"general.name\": string: length 18446744073709551615 at *left"},
    {"key[general.name].value", POKE, 8, HALF64,
     "*: key \"general.name\": string: length 9223372036854775808 at *left"},
    {"key[general.name].value", POKE_SIZE, 8, 0,
     "*: key \"general.name\": string: length * at * exceeds the * bytes left"},
    {"key[general.name].value", POKE_LEFT, 8, 1,
     "*: key \"general.name\": string: length * at * exceeds the * bytes left"},
    {"key[general.name].value", POKE_LEFT, 8, 0,
     "*: key number 2 of 23: name: needs 8 bytes at offset *, but only 0 are left"},
    {"key[tokenizer.ggml.tokens].count", POKE, 8, MAX64,
     "*: key \"tokenizer.ggml.tokens\": array length 18446744073709551615 needs at least 8 bytes an element, * left"},
    {"key[tokenizer.ggml.tokens].count", POKE, 8, HALF64,
     "*: key \"tokenizer.ggml.tokens\": array length 9223372036854775808 needs at least 8 bytes an element, * left"},
    {"key[tokenizer.ggml.tokens].count", POKE_LEFT, 8, 1,
     "*: key \"tokenizer.ggml.tokens\": array length * needs at least 8 bytes an element, * left"},
    {"key[tokenizer.ggml.tokens].count", POKE, 8, 10000,
     "*: key \"tokenizer.ggml.tokens\": element *: string: length * exceeds the * bytes left"},
    {"key[tokenizer.ggml.tokens].value", POKE, 8, MAX64,
     "*: key \"tokenizer.ggml.tokens\": element 0: string: length 18446744073709551615 at *left"},
    {"key[tokenizer.ggml.tokens].value", POKE, 8, HALF64,
     "*: key \"tokenizer.ggml.tokens\": element 0: string: length 9223372036854775808 at *left"},
    {"key[tokenizer.ggml.tokens].value", POKE_LEFT, 8, 1,
     "*: key \"tokenizer.ggml.tokens\": element 0: string: length *left"},
    {"key[tokenizer.ggml.tokens].value", POKE_LEFT, 8, 0,
     "*: key \"tokenizer.ggml.tokens\": element 1: string: needs 8 bytes at offset *, but only 0 are left"},
    {"key[tokenizer.ggml.scores].count", POKE, 8, MAX64,
     "*: key \"tokenizer.ggml.scores\": array length 18446744073709551615 of 4-byte elements exceeds the * "
     "bytes left at offset *"},
    {"key[tokenizer.ggml.scores].count", POKE, 8, HALF64,
     "*: key \"tokenizer.ggml.scores\": array length 9223372036854775808 of 4-byte elements exceeds *"},
    {"key[tokenizer.ggml.scores].count", POKE, 8, 0x4000000000000000,
     "*: key \"tokenizer.ggml.scores\": array length 4611686018427387904 of 4-byte elements exceeds *"},
    {"key[tokenizer.ggml.scores].count", POKE, 8, 0x4000000000000001,
     "*: key \"tokenizer.ggml.scores\": array length 4611686018427387905 of 4-byte elements exceeds *"},
    {"key[tokenizer.ggml.scores].count", POKE_SIZE, 8, 0,
     "*: key \"tokenizer.ggml.scores\": array length * of 4-byte elements exceeds *"},
    {"key[tokenizer.ggml.token_type].count", POKE, 8, MAX64,
     "*: key \"tokenizer.ggml.token_type\": array length 18446744073709551615 of 4-byte*"},
    {"key[x.numbers].count", POKE, 8, MAX64, "*: key \"x.numbers\": array length 18446744073709551615 of 4-byte*"},
    {"key[x.numbers].count", POKE, 8, 1u << 31, "*: key \"x.numbers\": array length 2147483648 of 4-byte*"},
    {"key[x.flags].count", POKE_LEFT, 8, 1, "*: key \"x.flags\": array length * of 1-byte elements exceeds *"},

    /* A2, A9: element and value types */
    {"key[x.numbers].element", POKE, 4, 9,
     "*: key \"x.numbers\": array element type 9: arrays of arrays are not supported"},
    {"key[x.numbers].element", POKE, 4, 13, "*: key \"x.numbers\": array element type 13 is unknown (0..12)"},
    {"key[x.numbers].element", POKE, 4, 0xffffffff,
     "*: key \"x.numbers\": array element type 4294967295 is unknown (0..12)"},
    {"key[x.numbers].element", POKE, 4, 0x80000000,
     "*: key \"x.numbers\": array element type 2147483648 is unknown (0..12)"},
    {"key[x.numbers].element", POKE, 4, 8, "*: key \"x.numbers\": element 0: string: length 8589934593 at *left"},
    {"key[x.numbers].element", POKE, 4, 7, "*: key number 20 of 23: *"},
    {"key[x.numbers].element", POKE, 4, 5, NULL}, /* as wide */
    {"key[x.numbers].element", POKE, 4, 6, NULL},
    {"key[tokenizer.ggml.tokens].element", POKE, 4, 9, "*: key \"tokenizer.ggml.tokens\": array element type 9: *"},
    {"key[tokenizer.ggml.tokens].element", POKE, 4, 13,
     "*: key \"tokenizer.ggml.tokens\": array element type 13 is unknown*"},
    {"key[tokenizer.ggml.tokens].type", POKE, 4, 8,
     "*: key \"tokenizer.ggml.tokens\": string: length * at offset * exceeds the * bytes left"},
    {"key[tokenizer.ggml.scores].element", POKE, 4, 5, NULL}, /* the tokenizer's to judge */
    {"key[tokenizer.ggml.scores].element", POKE, 4, 0, "*: key number 14 of 23: name: length *"},
    {"key[x.u64].type", POKE, 4, 13, "*: key \"x.u64\": value type 13 is unknown (0..12)"},
    {"key[x.u64].type", POKE, 4, 0xffffffff, "*: key \"x.u64\": value type 4294967295 is unknown (0..12)"},
    {"key[x.u64].type", POKE, 4, 9, "*: key \"x.u64\": *"},
    {"key[x.u64].type", POKE, 4, 11, NULL},
    {"key[x.u64].type", POKE, 4, 12, NULL},
    {"key[x.u64].type", POKE, 4, 4, "*: tensor number 0 of 21: name: length *"},
    {"key[x.flag].value", POKE, 1, 2, "*: key \"x.flag\": bool value 2 (element 0) is neither 0 nor 1"},
    {"key[x.flag].value", POKE, 1, 255, "*: key \"x.flag\": bool value 255 (element 0) is neither 0 nor 1"},
    {"key[x.flags].value", POKE, 2, 0x0301, "*: key \"x.flags\": bool value 3 (element 1) is neither 0 nor 1"},

    /* A6: alignment */
    {"key[general.alignment].value", POKE, 4, 0, "*: key \"general.alignment\": 0 is not a power of two"},
    {"key[general.alignment].value", POKE, 4, 3, "*: key \"general.alignment\": 3 is not a power of two"},
    {"key[general.alignment].value", POKE, 4, 24, "*: key \"general.alignment\": 24 is not a power of two"},
    {"key[general.alignment].value", POKE, 4, 48, "*: key \"general.alignment\": 48 is not a power of two"},
    {"key[general.alignment].value", POKE, 4, 0xffffffff,
     "*: key \"general.alignment\": 4294967295 is not a power of two"},
    {"key[general.alignment].value", POKE, 4, 0x80000000,
     "*: data section would begin at 2147483648, the file ends at ??????"},
    {"key[general.alignment].value", POKE, 4, 1 << 20,
     "*: data section would begin at 1048576, the file ends at ??????"},
    {"key[general.alignment].value", POKE, 4, 64,
     "*: tensor \"blk.0.*\": offset * is not a multiple of the alignment 64"},
    {"key[general.alignment].type", POKE, 4, 5, "*: key \"general.alignment\" has type i32, must be u32"},
    {"key[general.alignment].type", POKE, 4, 6, "*: key \"general.alignment\" has type f32, must be u32"},

    /* A3: dimensions */
    {"tensor[token_embd.weight].dim0", POKE, 8, 0,
     "*: tensor \"token_embd.weight\": dimension 0 is 0, outside 1..2^63-1"},
    {"tensor[token_embd.weight].dim1", POKE, 8, 0,
     "*: tensor \"token_embd.weight\": dimension 1 is 0, outside 1..2^63-1"},
    {"tensor[token_embd.weight].dim1", POKE, 8, HALF64,
     "*: tensor \"token_embd.weight\": dimension 1 is 9223372036854775808, outside 1..2^63-1"},
    {"tensor[token_embd.weight].dim1", POKE, 8, MAX64,
     "*: tensor \"token_embd.weight\": dimension 1 is 18446744073709551615, outside 1..2^63-1"},
    {"tensor[token_embd.weight].dim1", POKE, 8, HALF64 - 1,
     "*: tensor \"token_embd.weight\": dimensions 64 x 9223372036854775807 x 1 x 1 have more than 2^63-1 elements"},
    {"tensor[token_embd.weight].dim1", POKE, 8, 4398046511105,
     "*: tensor \"token_embd.weight\": data at * + offset 0 + 299067162755140 bytes exceeds the file size ??????"},
    {"tensor[token_embd.weight].dim0", POKE, 8, 0x0400000000000000,
     "*: tensor \"token_embd.weight\": dimensions 288230376151711744 x 355 x 1 x 1 have more than 2^63-1 elements"},
    {"tensor[token_embd.weight].dim1", POKE, 8, 0x01f0000000000000,
     "*: tensor \"token_embd.weight\": 8935141660703064064 elements of type Q8_0 take more than 2^63-1 bytes"},
    {"tensor[token_embd.weight].dim1", POKE, 8, 0x0200000000000000,
     "*: tensor \"token_embd.weight\": dimensions 64 x 144115188075855872 x 1 x 1 have more than 2^63-1 elements"},
    {"tensor[token_embd.weight].dim0", POKE, 8, 63,
     "*: tensor \"token_embd.weight\": row length 63 is not a multiple of the block size 32 of type Q8_0"},
    {"tensor[token_embd.weight].dim0", POKE, 8, 1,
     "*: tensor \"token_embd.weight\": row length 1 is not a multiple of the block size 32 of type Q8_0"},
    {"tensor[token_embd.weight].dim0", POKE, 8, 128,
     "*: tensor \"blk.0.attn_norm.weight\": offset * must be *, the end of the tensor before it"},
    {"tensor[token_embd.weight].dim0", POKE, 8, 32,
     "*: tensor \"blk.0.attn_norm.weight\": offset * must be *, the end of the tensor before it"},
    {"tensor[token_embd.weight].dim1", POKE, 8, 356,
     "*: tensor \"blk.0.attn_norm.weight\": offset * must be *, the end of the tensor before it"},
    {"tensor[blk.0.attn_norm.weight].dim0", POKE, 8, 0,
     "*: tensor \"blk.0.attn_norm.weight\": dimension 0 is 0, outside 1..2^63-1"},
    {"tensor[blk.0.attn_norm.weight].dim0", POKE, 8, 65, "*: tensor \"blk.0.attn_q.weight\": offset * must be *"},
    {"tensor[output.weight].dim1", POKE, 8, 400,
     "*: tensor \"output.weight\": data at * bytes exceeds the file size ??????"},
    {"tensor[output.weight].dim1", POKE, 8, 300, NULL}, /* fits; the architecture compares shapes */

    /* A4: dimension count and type */
    {"tensor[token_embd.weight].n_dims", POKE, 4, 0,
     "*: tensor \"token_embd.weight\": dimension count 0 is outside 1..4"},
    {"tensor[token_embd.weight].n_dims", POKE, 4, 5,
     "*: tensor \"token_embd.weight\": dimension count 5 is outside 1..4"},
    {"tensor[token_embd.weight].n_dims", POKE, 4, 9,
     "*: tensor \"token_embd.weight\": dimension count 9 is outside 1..4"},
    {"tensor[token_embd.weight].n_dims", POKE, 4, 0xffffffff,
     "*: tensor \"token_embd.weight\": dimension count 4294967295 is outside 1..4"},
    {"tensor[token_embd.weight].n_dims", POKE, 4, 0x80000002,
     "*: tensor \"token_embd.weight\": dimension count 2147483650 is outside 1..4"},
    {"tensor[token_embd.weight].n_dims", POKE, 4, 1, "*: tensor *"},
    {"tensor[token_embd.weight].n_dims", POKE, 4, 3, "*: tensor *"},
    {"tensor[output.weight].n_dims", POKE, 4, 4, "*: tensor \"output.weight\": *"},
    {"tensor[token_embd.weight].type", POKE, 4, 4, "*: tensor \"token_embd.weight\": type 4 (Q4_2) is not supported"},
    {"tensor[token_embd.weight].type", POKE, 4, 5, "*: tensor \"token_embd.weight\": type 5 (Q4_3) is not supported"},
    {"tensor[token_embd.weight].type", POKE, 4, 9, "*: tensor \"token_embd.weight\": type 9 (Q8_1) is not supported"},
    {"tensor[token_embd.weight].type", POKE, 4, 15, "*: tensor \"token_embd.weight\": type 15 (Q8_K) is not supported"},
    {"tensor[token_embd.weight].type", POKE, 4, 24, "*: tensor \"token_embd.weight\": type 24 (I8) is not supported"},
    {"tensor[token_embd.weight].type", POKE, 4, 25, "*: tensor \"token_embd.weight\": type 25 (I16) is not supported"},
    {"tensor[token_embd.weight].type", POKE, 4, 26, "*: tensor \"token_embd.weight\": type 26 (I32) is not supported"},
    {"tensor[token_embd.weight].type", POKE, 4, 27, "*: tensor \"token_embd.weight\": type 27 (I64) is not supported"},
    {"tensor[token_embd.weight].type", POKE, 4, 28, "*: tensor \"token_embd.weight\": type 28 (F64) is not supported"},
    {"tensor[token_embd.weight].type", POKE, 4, 31,
     "*: tensor \"token_embd.weight\": type 31 (Q4_0_4_4) is not supported"},
    {"tensor[token_embd.weight].type", POKE, 4, 32,
     "*: tensor \"token_embd.weight\": type 32 (Q4_0_4_8) is not supported"},
    {"tensor[token_embd.weight].type", POKE, 4, 33,
     "*: tensor \"token_embd.weight\": type 33 (Q4_0_8_8) is not supported"},
    {"tensor[token_embd.weight].type", POKE, 4, 36,
     "*: tensor \"token_embd.weight\": type 36 (IQ4_NL_4_4) is not supported"},
    {"tensor[token_embd.weight].type", POKE, 4, 37,
     "*: tensor \"token_embd.weight\": type 37 (IQ4_NL_4_8) is not supported"},
    {"tensor[token_embd.weight].type", POKE, 4, 38,
     "*: tensor \"token_embd.weight\": type 38 (IQ4_NL_8_8) is not supported"},
    {"tensor[token_embd.weight].type", POKE, 4, 43,
     "*: tensor \"token_embd.weight\": type 43 (unknown) is not supported"},
    {"tensor[token_embd.weight].type", POKE, 4, 0x7fffffff,
     "*: tensor \"token_embd.weight\": type 2147483647 (unknown) is not supported"},
    {"tensor[token_embd.weight].type", POKE, 4, 0x80000000,
     "*: tensor \"token_embd.weight\": type 2147483648 (unknown) is not supported"},
    {"tensor[token_embd.weight].type", POKE, 4, 0xffffffff,
     "*: tensor \"token_embd.weight\": type 4294967295 (unknown) is not supported"},
    {"tensor[token_embd.weight].type", POKE, 4, 0, "*: tensor \"blk.0.attn_norm.weight\": offset * must be *"},
    {"tensor[token_embd.weight].type", POKE, 4, 1, "*: tensor \"blk.0.attn_norm.weight\": offset * must be *"},
    {"tensor[token_embd.weight].type", POKE, 4, 2, "*: tensor \"blk.0.attn_norm.weight\": offset * must be *"},
    {"tensor[blk.0.attn_q.weight].type", POKE, 4, 30, "*: tensor \"blk.0.attn_k.weight\": offset * must be *"},

    /* tensor names */
    {"tensor[token_embd.weight].name", POKE, 8, 0, "*: tensor number 0 of 21: name: length 0 is outside 1..63"},
    {"tensor[token_embd.weight].name", POKE, 8, 64, "*: tensor number 0 of 21: name: length 64 is outside 1..63"},
    {"tensor[token_embd.weight].name", POKE, 8, MAX64,
     "*: tensor number 0 of 21: name: length 18446744073709551615 at *left"},
    {"tensor[token_embd.weight].name", POKE, 8, HALF64,
     "*: tensor number 0 of 21: name: length 9223372036854775808 at *left"},
    {"tensor[output.weight].name", POKE_LEFT, 8, 1, "*: tensor number 20 of 21: name: length * at *left"},
    {"tensor[output.weight].name", POKE_LEFT, 8, 0, "*: tensor number 20 of 21: name: length * is outside 1..63"},

    /* A5, A7: places of the data */
    {"tensor[token_embd.weight].offset", POKE, 8, 32,
     "*: tensor \"token_embd.weight\": offset 32 must be 0, the end of the tensor before it"},
    {"tensor[token_embd.weight].offset", POKE, 8, 1,
     "*: tensor \"token_embd.weight\": offset 1 is not a multiple of the alignment 32"},
    {"tensor[token_embd.weight].offset", POKE, 8, MAX64 - 31,
     "*: tensor \"token_embd.weight\": offset 18446744073709551584 must be 0*"},
    {"tensor[token_embd.weight].offset", POKE, 8, MAX64,
     "*: tensor \"token_embd.weight\": offset 18446744073709551615 is not a multiple*"},
    {"tensor[token_embd.weight].offset", POKE, 8, HALF64,
     "*: tensor \"token_embd.weight\": offset 9223372036854775808 must be 0*"},
    {"tensor[blk.0.attn_norm.weight].offset", POKE, 8, 0,
     "*: tensor \"blk.0.attn_norm.weight\": offset 0 must be 24160*"},
    {"tensor[blk.0.attn_norm.weight].offset", POKE, 8, 24161,
     "*: tensor \"blk.0.attn_norm.weight\": offset 24161 is not a multiple*"},
    {"tensor[blk.0.attn_norm.weight].offset", POKE, 8, 24192,
     "*: tensor \"blk.0.attn_norm.weight\": offset 24192 must be 24160*"},
    {"tensor[blk.0.attn_norm.weight].offset", POKE, 8, 24128,
     "*: tensor \"blk.0.attn_norm.weight\": offset 24128 must be 24160*"},
    {"tensor[blk.0.attn_norm.weight].offset", POKE, 8, MAX64 - 31,
     "*: tensor \"blk.0.attn_norm.weight\": offset 18446744073709551584 must be 24160*"},
    {"tensor[output.weight].offset", POKE, 8, HALF64,
     "*: tensor \"output.weight\": offset 9223372036854775808 must be *"},
    {"tensor[output.weight].offset", POKE, 8, MAX64 - 31,
     "*: tensor \"output.weight\": offset 18446744073709551584 must be *"},
    {"tensor[output.weight].offset", POKE, 8, 0, "*: tensor \"output.weight\": offset 0 must be *"},

    /* A5, A17: files cut short */
    {"end", CUT, 0, (uint64_t)-1, NULL}, /* the last byte is padding */
    {"end", CUT, 0, (uint64_t)-33, "*: tensor \"output.weight\": data at * exceeds the file size ??????"},
    {"end", CUT, 0, (uint64_t)-4096, "*: tensor \"output.weight\": data at * exceeds the file size ??????"},
    {"end", CUT, 0, (uint64_t)-65536, "*: tensor \"*\": data at * exceeds the file size ?????"},
    {"data", CUT, 0, 0, "*: tensor \"token_embd.weight\": data at * + offset 0 + 24140 bytes exceeds the file size *"},
    {"data", CUT, 0, 1, "*: tensor \"token_embd.weight\": data at * + offset 0 + 24140 bytes exceeds the file size *"},
    {"data", CUT, 0, 24139,
     "*: tensor \"token_embd.weight\": data at * + offset 0 + 24140 bytes exceeds the file size *"},
    {"data", CUT, 0, 24140,
     "*: tensor \"blk.0.attn_norm.weight\": data at * + offset 24160 + 256 bytes exceeds the file size *"},
    {"directory_end", CUT, 0, 0, "*: data section would begin at *, the file ends at *"},
    {"directory_end", CUT, 0, (uint64_t)-1,
     "*: tensor \"output.weight\": offset: needs 8 bytes at offset *, but only 7 are left"},
    {"tensor[output.weight].offset", CUT, 0, 0,
     "*: tensor \"output.weight\": offset: needs 8 bytes at offset *, but only 0 are left"},
    {"tensor[output.weight].type", CUT, 0, 3,
     "*: tensor \"output.weight\": type: needs 4 bytes at offset *, but only 3 are left"},
    {"tensor[output.weight].dim1", CUT, 0, 4,
     "*: tensor \"output.weight\": dimension: needs 8 bytes at offset *, but only 4 are left"},
    {"tensor[output.weight].dim0", CUT, 0, 7,
     "*: tensor \"output.weight\": dimension: needs 8 bytes at offset *, but only 7 are left"},
    {"tensor[output.weight].n_dims", CUT, 0, 2,
     "*: tensor \"output.weight\": dimension count: needs 4 bytes at offset *, but only 2 are left"},
    {"tensor[output.weight].name", CUT, 0, 12,
     "*: tensor number 20 of 21: name: length 13 at offset * exceeds the 4 bytes left"},
    {"tensor[output.weight].name", CUT, 0, 5,
     "*: tensor number 20 of 21: name: needs 8 bytes at offset *, but only 5 are left"},
    {"tensor[token_embd.weight].name", CUT, 0, 0,
     "*: tensor number 0 of 21: name: needs 8 bytes at offset *, but only 0 are left"},
    {"key[x.u64].value", CUT, 0, 7,
     "*: key \"x.u64\": value count 1 of 8-byte elements exceeds the 7 bytes left at offset *"},
    {"key[x.u64].type", CUT, 0, 3, "*: key \"x.u64\": value type: needs 4 bytes at offset *, but only 3 are left"},
    {"key[x.flags].element", CUT, 0, 2,
     "*: key \"x.flags\": array element type: needs 4 bytes at offset *, but only 2 are left"},
    {"key[x.flags].count", CUT, 0, 6,
     "*: key \"x.flags\": array length: needs 8 bytes at offset *, but only 6 are left"},
    {"key[x.flags].value", CUT, 0, 2,
     "*: key \"x.flags\": array length 3 of 1-byte elements exceeds the 2 bytes left at offset *"},
    {"key[general.name].value", CUT, 0, 10, "*: t* count 21 needs at least 32 bytes each, * bytes left"},
    {"key[general.architecture].name", CUT, 0, 0, "*: tensor count 21 needs at least 32 bytes each, 0 bytes left"},
    {"start", CUT, 0, 24, "*: tensor count 21 needs at least 32 bytes each, 0 bytes left"},
    {"start", CUT, 0, 23, "*: file too short for a header: 23 bytes, 24 needed"},
    {"start", CUT, 0, 8, "*: file too short for a header: 8 bytes, 24 needed"},
    {"start", CUT, 0, 4, "*: file too short for a header: 4 bytes, 24 needed"},
    {"start", CUT, 0, 3, "*: file too short for a header: 3 bytes, 24 needed"},
    {"start", CUT, 0, 0, "*: the file is empty"},
};
#define N_MUTATIONS (sizeof mutations / sizeof mutations[0])

/* Whole files that a poke cannot make. */
static struct gguf_builder *duplicate_key(void)
{
    struct gguf_builder *b = base_model();
    gguf_builder_raw(b, span_of("general.name"), GGUF_U8, "", 1, true);
    return b;
}

static struct gguf_builder *duplicate_tensor(void)
{
    struct gguf_builder *b = base_model();
    gguf_builder_rename_tensor(b, "output.weight", "token_embd.weight");
    return b;
}

static struct gguf_builder *alignment_of(uint32_t type, const void *value, size_t bytes)
{
    struct gguf_builder *b = base_model();
    gguf_builder_raw(b, span_of("general.alignment"), type, value, bytes, false);
    return b;
}

static struct gguf_builder *alignment_i32(void)
{
    return alignment_of(GGUF_I32, (int32_t[]){32}, 4);
}

static struct gguf_builder *alignment_u64(void)
{
    return alignment_of(GGUF_U64, (uint64_t[]){32}, 8);
}

static struct gguf_builder *alignment_string(void)
{
    return alignment_of(GGUF_STRING, "\2\0\0\0\0\0\0\0" "32", 10);
}

static struct gguf_builder *alignment_array(void)
{
    return alignment_of(GGUF_ARRAY, "\4\0\0\0\1\0\0\0\0\0\0\0\40\0\0\0", 16);
}

static struct gguf_builder *aligned_to(uint32_t bytes)
{
    struct gguf_builder *b = base_model();
    gguf_builder_alignment(b, bytes);
    return b;
}

static struct gguf_builder *aligned_to_1(void)
{
    return aligned_to(1);
}

static struct gguf_builder *aligned_to_2(void)
{
    return aligned_to(2);
}

static struct gguf_builder *aligned_to_64(void)
{
    return aligned_to(64);
}

static struct gguf_builder *aligned_to_65536(void)
{
    return aligned_to(65536);
}

static struct gguf_builder *with_tensor(uint32_t type, uint32_t n_dims, const uint64_t *dims, size_t bytes)
{
    struct gguf_builder *b = base_model();
    gguf_builder_tensor(b, "extra", type, n_dims, dims, NULL, bytes);
    return b;
}

static struct gguf_builder *two_refused_types(void)
{
    struct gguf_builder *b = with_tensor(31, 1, (uint64_t[]){32}, 18);
    gguf_builder_tensor(b, "more", 24, 1, (uint64_t[]){32}, NULL, 32);
    gguf_builder_tensor(b, "most", 31, 1, (uint64_t[]){32}, NULL, 18);
    gguf_builder_tensor(b, "last", 99, 1, (uint64_t[]){32}, NULL, 18);
    return b;
}

static struct gguf_builder *square_2_to_32(void)
{
    return with_tensor(0, 2, (uint64_t[]){1ull << 32, 1ull << 32}, 64);
}

static struct gguf_builder *four_wrapping_dims(void)
{
    return with_tensor(0, 4, (uint64_t[]){1 << 16, 1 << 16, 1 << 16, 1 << 16}, 64);
}

static struct gguf_builder *bytes_above_2_to_63(void)
{
    return with_tensor(0, 2, (uint64_t[]){1ull << 31, 1ull << 31}, 64);
}

static struct gguf_builder *four_dims(void)
{
    return with_tensor(0, 4, (uint64_t[]){2, 3, 1, 2}, 48);
}

static struct gguf_builder *row_of_33(void)
{
    return with_tensor(2, 2, (uint64_t[]){33, 2}, 64);
}

static struct gguf_builder *key_of_65535_bytes(void)
{
    struct gguf_builder *b = base_model();
    char *name = calloc(1, 65536);
    gguf_builder_raw(b, (struct span){name, 65535}, GGUF_U8, "", 1, true);
    free(name);
    return b;
}

static struct gguf_builder *key_of_65536_bytes(void)
{
    struct gguf_builder *b = base_model();
    char *name = calloc(1, 65536);
    gguf_builder_raw(b, (struct span){name, 65536}, GGUF_U8, "", 1, true);
    free(name);
    return b;
}

static struct gguf_builder *tensor_name_of(size_t size)
{
    char name[80] = {0};
    memset(name, 'n', size);
    struct gguf_builder *b = base_model();
    gguf_builder_rename_tensor(b, "output.weight", name);
    return b;
}

static struct gguf_builder *tensor_name_of_63(void)
{
    return tensor_name_of(63);
}

static struct gguf_builder *tensor_name_of_64(void)
{
    return tensor_name_of(64);
}

static struct gguf_builder *empty_arrays(void)
{
    struct gguf_builder *b = base_model();
    for (enum gguf_type t = GGUF_U8; t < GGUF_TYPE_COUNT; t++) {
        char name[16];
        snprintf(name, sizeof name, "empty.%d", t);
        if (t != GGUF_ARRAY)
            gguf_builder_array(b, name, t, 0, NULL, 0);
    }
    return b;
}

static struct gguf_builder *nothing_at_all(void)
{
    return gguf_builder_new();
}

static struct gguf_builder *one_array(enum gguf_type element, uint64_t count)
{
    struct gguf_builder *b = gguf_builder_new();
    gguf_builder_array(b, "a", element, count, NULL, 0);
    return b;
}

/* The 49-byte file: one key, an array of 2^63 elements, nothing behind it. */
static struct gguf_builder *tiny_u8_array(void)
{
    return one_array(GGUF_U8, HALF64);
}

static struct gguf_builder *tiny_string_array(void)
{
    return one_array(GGUF_STRING, HALF64);
}

static struct gguf_builder *tiny_nested_array(void)
{
    return one_array(GGUF_ARRAY, HALF64);
}

static struct gguf_builder *tiny_13_array(void)
{
    return one_array(GGUF_TYPE_COUNT, HALF64);
}

static struct gguf_builder *tiny_u64_array(void)
{
    return one_array(GGUF_U64, (1ull << 61) + 1);
}

static const struct {
    const char *what;
    struct gguf_builder *(*build)(void);
    const char *expected;
} files[] = {
    {"two keys of one name", duplicate_key,
     "*: key \"general.name\": duplicate name (numbers 1 and 23); names must be unique"},
    {"two tensors of one name", duplicate_tensor,
     "*: tensor \"token_embd.weight\": duplicate name (numbers 0 and 20); names must be unique"},
    {"alignment as i32", alignment_i32, "*: key \"general.alignment\" has type i32, must be u32"},
    {"alignment as u64", alignment_u64, "*: key \"general.alignment\" has type u64, must be u32"},
    {"alignment as string", alignment_string, "*: key \"general.alignment\" has type string, must be u32"},
    {"alignment as array", alignment_array, "*: key \"general.alignment\" has type array, must be u32"},
    {"alignment 1", aligned_to_1, NULL},
    {"alignment 2", aligned_to_2, NULL},
    {"alignment 64", aligned_to_64, NULL},
    {"alignment 65536", aligned_to_65536, NULL},
    {"unsupported types", two_refused_types,
     "*: tensor \"extra\": type 31 (Q4_0_4_4) is not supported; also 24 (I8), 99 (unknown)"},
    {"2^32 x 2^32", square_2_to_32,
     "*: tensor \"extra\": dimensions 4294967296 x 4294967296 x 1 x 1 have more than 2^63-1 elements"},
    {"2^16 four times", four_wrapping_dims,
     "*: tensor \"extra\": dimensions 65536 x 65536 x 65536 x 65536 have more than 2^63-1 elements"},
    {"2^64 bytes", bytes_above_2_to_63,
     "*: tensor \"extra\": 4611686018427387904 elements of type F32 take more than 2^63-1 bytes"},
    {"four dimensions", four_dims, NULL},
    {"a row of 33 in blocks of 32", row_of_33,
     "*: tensor \"extra\": row length 33 is not a multiple of the block size 32 of type Q4_0"},
    {"a key name of 65535 bytes", key_of_65535_bytes, NULL},
    {"a key name of 65536 bytes", key_of_65536_bytes, "*: key number 23 of 24: name: length 65536 is outside 1..65535"},
    {"a tensor name of 63 bytes", tensor_name_of_63, NULL},
    {"a tensor name of 64 bytes", tensor_name_of_64, "*: tensor number 20 of 21: name: length 64 is outside 1..63"},
    {"empty arrays", empty_arrays, NULL},
    {"no keys and no tensors", nothing_at_all, NULL},
    {"2^63 bytes in a 49-byte file", tiny_u8_array,
     "*: key \"a\": array length 9223372036854775808 of 1-byte elements exceeds the * bytes left at offset *"},
    {"2^63 strings in a 49-byte file", tiny_string_array,
     "*: key \"a\": array length 9223372036854775808 needs at least 8 bytes an element, * left"},
    {"2^63 arrays in a 49-byte file", tiny_nested_array,
     "*: key \"a\": array element type 9: arrays of arrays are not supported"},
    {"2^63 of nothing in a 49-byte file", tiny_13_array, "*: key \"a\": array element type 13 is unknown (0..12)"},
    {"2^61+1 u64 in a 49-byte file", tiny_u64_array,
     "*: key \"a\": array length 2305843009213693953 of 8-byte elements exceeds *"},
};
#define N_FILES (sizeof files / sizeof files[0])

/* Touches everything a loaded file hands out. */
static unsigned read_all(const struct gguf *g)
{
    unsigned sum = 0;
    for (size_t i = 0; i < gguf_key_count(g); i++) {
        const struct gguf_key *key = gguf_key_at(g, i);
        const void *cursor = NULL;
        if (key->type == GGUF_ARRAY && key->element == GGUF_STRING)
            for (uint64_t j = 0; j < key->count; j++) {
                struct span s = gguf_string_next(key, &cursor);
                sum += s.size ? (unsigned char)s.data[s.size - 1] : 0;
            }
        for (uint64_t j = 0; j < key->bytes; j++)
            sum += ((const unsigned char *)key->data)[j];
    }
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        for (uint64_t j = 0; j < t->bytes; j++)
            sum += ((const unsigned char *)t->data)[j];
    }
    return sum;
}

/* Opens; true if the outcome is the expected one, else prints it. */
static bool opens_as_expected(const char *path, const char *expected, const char *what, unsigned long long value)
{
    struct gguf *g;
    struct error err = {0};
    double start = thread_cpu_ms();
    enum status s = gguf_open(path, NULL, &g, &err);
    double took = thread_cpu_ms() - start;
    if (s == STATUS_OK)
        read_all(g);
    gguf_close(g);
    bool right = mutation_is_as_expected(expected, s == STATUS_OK ? NULL : err.text) &&
                 (s == STATUS_OK || strstr(err.text, "m.gguf")) && in_time(took, 1000);
    if (!right)
        printf("note: %s %llu: %s, expected %s\n", what, value, s == STATUS_OK ? "loads" : err.text,
               expected ? expected : "to load");
    return right;
}

TEST(every_mutation_ends_as_expected)
{
    struct gguf_builder *b = base_model();
    struct buffer image = {0};
    char path[4096];
    size_t right = 0, n = 0;
    gguf_builder_image(b, &image);
    gguf_builder_free(b);
    snprintf(path, sizeof path, "%s/m.gguf", suite_tmp());
    for (size_t i = 0; i < N_MUTATIONS; i++, n++) {
        if (!mutation_write(&mutations[i], buffer_span(&image), path))
            ck_abort_msg("no field %s", mutations[i].field);
        right += opens_as_expected(path, mutations[i].expected, mutations[i].field, mutations[i].value);
    }
    for (size_t i = 0; i < N_FILES; i++, n++) {
        b = files[i].build();
        gguf_builder_write(b, path);
        gguf_builder_free(b);
        right += opens_as_expected(path, files[i].expected, files[i].what, i);
    }
    buffer_clear(&image);
    printf("note: %zu of %zu mutations as expected\n", right, n);
    fflush(stdout);
    ck_assert_uint_eq(right, n);
    ck_assert_uint_ge(n, 200);
}
END

static void put_byte(int fd, size_t at, char byte)
{
    if (pwrite(fd, &byte, 1, (off_t)at) != 1)
        abort();
}

/* Any single byte of the metadata, spoiled in any of a few ways: no crash, and what loads can be read. */
TEST(every_spoiled_byte_opens_or_is_refused)
{
    static const unsigned char flips[] = {0x01, 0x80, 0xff};
    struct gguf_builder *b = base_model();
    struct buffer image = {0};
    char path[4096];
    size_t opened = 0, refused = 0;
    gguf_builder_image(b, &image);
    gguf_builder_free(b);
    snprintf(path, sizeof path, "%s/m.gguf", suite_tmp());
    gguf_image_write(image.data, image.size, path);
    size_t end = gguf_image_field(image.data, image.size, "data"), step = suite_sanitized() ? 3 : 1;
    int fd = open(path, O_WRONLY);
    for (size_t i = 0; i < end; i += step) {
        for (size_t j = 0; j < sizeof flips; j++) {
            struct gguf *g;
            struct error err;
            put_byte(fd, i, (char)(image.data[i] ^ flips[j]));
            if (gguf_open(path, NULL, &g, &err) == STATUS_OK) {
                opened++;
                read_all(g);
            } else {
                refused++;
            }
            gguf_close(g);
        }
        put_byte(fd, i, image.data[i]);
    }
    close(fd);
    buffer_clear(&image);
    printf("note: %zu opened, %zu refused\n", opened, refused);
    fflush(stdout);
    ck_assert_uint_gt(opened, 0);
    ck_assert_uint_gt(refused, 0);
}
END

SUITE(gguf_mutations, T(every_mutation_ends_as_expected), T(every_spoiled_byte_opens_or_is_refused))
