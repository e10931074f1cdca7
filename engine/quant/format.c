/* The table of formats: look-up by id and name, names of what files may contain but cannot be a weight, and the choice
 * of a kernel. Knows no format by itself. */
#include "engine/quant/quant.h"

#include <string.h>
#include <strings.h>

#define FORMAT(id) extern const struct format format_##id;
#include "engine/quant/formats.def"
#undef FORMAT

static const struct format *const formats[] = {
#define FORMAT(id) &format_##id,
#include "engine/quant/formats.def"
#undef FORMAT
};
#define N_FORMATS (sizeof formats / sizeof formats[0])

/* Removed from the file format, or encodings of activations, or integers no weight uses. */
static const struct {
    uint32_t id;
    const char *name;
} refused[] = {
    {4, "Q4_2"},      {5, "Q4_3"},      {9, "Q8_1"},      {15, "Q8_K"},       {24, "I8"},
    {25, "I16"},      {26, "I32"},      {27, "I64"},      {28, "F64"},        {31, "Q4_0_4_4"},
    {32, "Q4_0_4_8"}, {33, "Q4_0_8_8"}, {36, "IQ4_NL_4_4"}, {37, "IQ4_NL_4_8"}, {38, "IQ4_NL_8_8"},
};

const struct format *format_find(uint32_t id)
{
    for (size_t i = 0; i < N_FORMATS; i++)
        if (formats[i]->id == id)
            return formats[i];
    return NULL;
}

const struct format *format_by_name(const char *name)
{
    for (size_t i = 0; i < N_FORMATS; i++)
        if (strcasecmp(formats[i]->name, name) == 0)
            return formats[i];
    return NULL;
}

const struct format *const *format_all(size_t *count)
{
    *count = N_FORMATS;
    return formats;
}

const char *format_refused_name(uint32_t id)
{
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (refused[i].id == id)
            return refused[i].name;
    return NULL;
}

const struct kernel *format_kernel(const struct format *f, enum cpu_tier tier, size_t n_tokens)
{
    const struct kernel *kernels = n_tokens > 1 ? f->prefill : f->decode;
    while (tier != TIER_SCALAR && !kernels[tier].run)
        tier = cpu_tier_below(tier);
    return &kernels[tier];
}
