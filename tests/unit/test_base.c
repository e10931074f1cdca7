/* engine/base: encodings over all inputs where that is cheap, errors, buffers, UTF-8. */
#include "engine/base/buffer.h"
#include "engine/base/error.h"
#include "engine/base/f16.h"
#include "engine/base/utf8.h"
#include "engine/cpu/cpu.h"
#include "tests/support/suite.h"

#include <math.h>
#include <stdlib.h>

TEST(every_f16_survives_a_round_trip)
{
    for (uint32_t h = 0; h < 0x10000; h++) {
        float f = f16_to_float((uint16_t)h);
        if (f16_from_float(f) != (isnan(f) ? (h & 0x8000) | 0x7e00 : h))
            ck_abort_msg("%04x", h);
    }
}
END

/* Nearest by exhaustive definition: the result is the representable value with the least distance, ties to even. */
TEST(f16_rounds_to_nearest_even)
{
    for (uint32_t h = 0; h < 0x7bff; h++) {
        float low = f16_to_float((uint16_t)h), high = f16_to_float((uint16_t)(h + 1));
        float middle = low + (high - low) / 2;
        if (f16_from_float(middle) != (h & 1 ? h + 1 : h) || f16_from_float(nextafterf(middle, 0)) != h ||
            f16_from_float(-nextafterf(middle, INFINITY)) != (0x8000 | (h + 1)))
            ck_abort_msg("around %04x", h);
    }
    ck_assert_uint_eq(f16_from_float(65520.0f), 0x7c00);
    ck_assert_uint_eq(f16_from_float(65519.996f), 0x7bff);
}
END

TEST(bf16_rounds_to_nearest_even)
{
    ck_assert_uint_eq(bf16_from_float(bits_float(0x3f808000)), 0x3f80);
    ck_assert_uint_eq(bf16_from_float(bits_float(0x3f818000)), 0x3f82);
    ck_assert_uint_eq(bf16_from_float(bits_float(0x7f7fffff)), 0x7f80);
    ck_assert_uint_eq(bf16_from_float(bits_float(0x7f800001)), 0x7fc0);
    ck_assert_uint_eq(bf16_from_float(bits_float(0x00018000)), 0x0002);
}
END

TEST(an_error_carries_context_and_never_raw_bytes)
{
    struct error err;
    char quoted[ERROR_QUOTE_BYTES];
    enum status s = error_set(&err, STATUS_INVALID, "key %s", error_quote("a\033[1m\n", 6, quoted));
    ck_assert_int_eq(s, STATUS_INVALID);
    ck_assert_str_eq(err.text, "key a\\x1b[1m\\x0a");
    ck_assert_int_eq(error_context(&err, "model %d", 7), STATUS_INVALID);
    ck_assert_str_eq(err.text, "model 7: key a\\x1b[1m\\x0a");
    char long_text[200];
    memset(long_text, 'x', sizeof long_text);
    ck_assert_uint_eq(strlen(error_quote(long_text, sizeof long_text, quoted)), ERROR_QUOTE_MAX + 3);
}
END

TEST(a_buffer_grows_and_formats)
{
    struct buffer b;
    buffer_init(&b);
    for (int i = 0; i < 1000; i++)
        buffer_printf(&b, "%d,", i);
    buffer_byte(&b, 0);
    ck_assert(!b.failed);
    ck_assert_uint_eq(b.size, 10 * 2 + 90 * 3 + 900 * 4 + 1);
    ck_assert_str_eq(b.data + b.size - 5, "999,");
    ck_assert(!buffer_reserve(&b, SIZE_MAX));
    ck_assert(b.failed);
    buffer_clear(&b);
}
END

TEST(utf8_refuses_overlong_surrogates_and_beyond_unicode)
{
    static const struct {
        const char *bytes;
        size_t size, length;
        uint32_t code;
    } cases[] = {
        {"\xc0\xaf", 2, 1, UTF8_INVALID},         {"\xed\xa0\x80", 3, 1, UTF8_INVALID},
        {"\xf4\x90\x80\x80", 4, 1, UTF8_INVALID}, {"\xe0\x80\x80", 3, 1, UTF8_INVALID},
        {"\xe6\xad", 2, 2, UTF8_INCOMPLETE},      {"\xe6\xad\x41", 3, 2, UTF8_INVALID},
        {"\xf0\x9f\x98\x80", 4, 4, 0x1f600},      {"\xff", 1, 1, UTF8_INVALID},
        {"A", 1, 1, 'A'},                         {"\xf4\x8f\xbf\xbf", 4, 4, 0x10ffff},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t c;
        ck_assert_uint_eq(utf8_decode(cases[i].bytes, cases[i].size, &c), cases[i].length);
        ck_assert_uint_eq(c, cases[i].code);
    }
}
END

TEST(every_scalar_value_encodes_and_decodes)
{
    for (uint32_t c = 0; c < 0x110000; c++) {
        if (c >= 0xd800 && c < 0xe000)
            continue;
        char bytes[4];
        size_t n = utf8_encode(c, bytes);
        uint32_t back;
        if (utf8_decode(bytes, n, &back) != n || back != c)
            ck_abort_msg("U+%04X", c);
    }
}
END

TEST(a_tier_is_chosen_or_refused_by_name)
{
    struct error err;
    enum cpu_tier tier;
    ck_assert_int_eq(cpu_tier_parse("scalar", &tier, &err), STATUS_OK);
    ck_assert_int_eq(tier, TIER_SCALAR);
    ck_assert_int_eq(cpu_tier_parse("auto", &tier, &err), STATUS_OK);
    ck_assert_int_eq(tier, cpu_tier_best());
    ck_assert_int_eq(cpu_tier_parse("sse9", &tier, &err), STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "scalar"));
    for (int t = 0; t < TIER_COUNT; t++)
        if (!cpu_tier_available((enum cpu_tier)t))
            ck_assert_int_eq(cpu_tier_parse(cpu_tier_name((enum cpu_tier)t), &tier, &err), STATUS_UNSUPPORTED);
}
END

TEST(usable_cores_say_why)
{
    struct cpu_cores cores;
    cpu_cores_find(&cores);
    ck_assert_uint_ge(cores.usable, 1);
    ck_assert_uint_le(cores.usable, cores.affinity);
    ck_assert_ptr_nonnull(strstr(cores.reason, "affinity"));
}
END

SUITE(base, T(every_f16_survives_a_round_trip), T(f16_rounds_to_nearest_even), T(bf16_rounds_to_nearest_even),
      T(an_error_carries_context_and_never_raw_bytes), T(a_buffer_grows_and_formats),
      T(utf8_refuses_overlong_surrogates_and_beyond_unicode), T(every_scalar_value_encodes_and_decodes),
      T(a_tier_is_chosen_or_refused_by_name), T(usable_cores_say_why))
