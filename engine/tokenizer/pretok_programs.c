/* The word splitters, one after another: what the reference's expressions match, written over its own categories
 * (docs/tokenizer.md, "Words"). Alternatives are tried in order. Names that use a program: pretok.def. */
#include "engine/tokenizer/pretok_program.h"

#define SET(atoms) {ATOM_##atoms, 0}
#define LETTER {ATOM_L, 0}
#define LETTER_MARK {ATOM_L | ATOM_M, 0}
#define NUMBER {ATOM_N, 0}
#define BLANK {ATOM_WS, 0}
#define SPACE {ATOM_SP, 0}
#define OTHER {ATOM_ALL, ATOM_WS | ATOM_L | ATOM_N}
#define NOT_LETTER_NUMBER {ATOM_ALL, ATOM_CR | ATOM_NL | ATOM_L | ATOM_N}
#define NOT_LETTER_SYMBOL {ATOM_ALL, ATOM_CR | ATOM_NL | ATOM_L | ATOM_P | ATOM_S}
#define NEWLINE {ATOM_CR | ATOM_NL, 0}
#define NEWLINE_SLASH {ATOM_CR | ATOM_NL | ATOM_SLASH, 0}

#define RULE(code, ...) {.op = RULE_##code, __VA_ARGS__}
#define RUN(...) RULE(RUN, .body = __VA_ARGS__)
#define CONTRACTION_LOWER RULE(CONTRACTION, .either_case = false)
#define CONTRACTION RULE(CONTRACTION, .either_case = true)
#define WORD RUN(LETTER, .lead = NOT_LETTER_NUMBER)
#define WORD_MARKS RUN(LETTER_MARK, .lead = NOT_LETTER_NUMBER, .contraction = true)
#define CASED(upper, lower, may_contract) \
    RULE(CASE, .body = upper, .low = lower, .lead = NOT_LETTER_NUMBER, .contraction = may_contract)
#define DIGIT RUN(NUMBER, .max = 1)
#define DIGITS_3 RUN(NUMBER, .max = 3)
#define SYMBOLS RUN(OTHER, .lead = SPACE)
#define SYMBOLS_NEWLINE RUN(OTHER, .lead = SPACE, .tail = NEWLINE)
#define SYMBOLS_SLASH RUN(OTHER, .lead = SPACE, .tail = NEWLINE_SLASH)
#define TO_NEWLINE {.op = RULE_TO_NEWLINE}
#define BUT_LAST {.op = RULE_BUT_LAST}
#define BLANKS TO_NEWLINE, BUT_LAST, RUN(BLANK)

#define PASS_OF(name) {PASS_RULES, sizeof name / sizeof name[0], name}
#define PROGRAM(name, ...)                                             \
    static const struct pass name##_passes[] = {__VA_ARGS__};          \
    _Static_assert(sizeof name##_passes / sizeof name##_passes[0] <= PROGRAM_PASSES_MAX, "passes fit"); \
    const struct pretok_program pretok_program_##name = {sizeof name##_passes / sizeof name##_passes[0], name##_passes};

#define RULES(name, ...)                                  \
    static const struct rule name[] = {__VA_ARGS__};      \
    _Static_assert(sizeof name / sizeof name[0] <= PASS_RULES_MAX, "rules fit");

/* Parts that several programs share. */
RULES(gpt2_words, CONTRACTION_LOWER, RUN(LETTER, .lead = SPACE), RUN(NUMBER, .lead = SPACE), SYMBOLS, BUT_LAST,
      RUN(BLANK))
RULES(qwen2_words, CONTRACTION, WORD, DIGIT, SYMBOLS_NEWLINE, BLANKS)
RULES(each_digit, DIGIT)
RULES(each_3_digits, DIGITS_3)
RULES(numbers, RUN(NUMBER))
RULES(ascii_3_digits, RUN(SET(AD), .min = 3, .max = 3))
RULES(each_newline, RUN(NEWLINE, .max = 1))
RULES(lines, RUN({ATOM_ALL, ATOM_NL}), RUN(SET(NL)))
RULES(cjk_kana, RUN(SET(CJK_KANA)))
RULES(cjk_wide, RUN(SET(CJK_WIDE)))
#define ASCII_WORD RUN({ATOM_AU | ATOM_AL, 0}, .lead = SET(AP), .needs_lead = true)
#define WORD_NO_SYMBOL RUN(LETTER_MARK, .lead = NOT_LETTER_SYMBOL)
RULES(deepseek_words, ASCII_WORD, WORD_NO_SYMBOL, RUN({ATOM_P | ATOM_S, 0}, .lead = SPACE, .tail = NEWLINE), BLANKS)
RULES(bloom_words, RUN({ATOM_ALL, ATOM_WS | ATOM_BLOOM_P}, .lead = SPACE))

PROGRAM(gpt2, PASS_OF(gpt2_words))

RULES(llama3_words, CONTRACTION, WORD, DIGITS_3, SYMBOLS_NEWLINE, BLANKS)
PROGRAM(llama3, PASS_OF(llama3_words))

PROGRAM(qwen2, PASS_OF(qwen2_words))

RULES(ufakzeka_words, WORD, DIGIT, SYMBOLS_NEWLINE, BLANKS)
PROGRAM(ufakzeka, PASS_OF(ufakzeka_words))

RULES(qwen35_words, CONTRACTION, RUN(LETTER_MARK, .lead = NOT_LETTER_NUMBER), DIGIT,
      RUN({ATOM_ALL, ATOM_WS | ATOM_L | ATOM_M | ATOM_N}, .lead = SPACE, .tail = NEWLINE), BLANKS)
PROGRAM(qwen35, PASS_OF(qwen35_words))

RULES(jais2_words, CONTRACTION, WORD, DIGITS_3, SYMBOLS_NEWLINE, TO_NEWLINE, {.op = RULE_POWER_OF_2})
PROGRAM(jais2, PASS_OF(jais2_words))

RULES(seed_coder_words, CONTRACTION, WORD, DIGIT, SYMBOLS, BLANKS)
PROGRAM(seed_coder, PASS_OF(seed_coder_words))

RULES(exaone_moe_words, CONTRACTION, RULE(PHRASE, .lead = NOT_LETTER_NUMBER, .body = LETTER, .tail = LETTER_MARK), DIGIT,
      RUN(OTHER, .lead = SPACE, .tail = NEWLINE_SLASH, .tail_max = 1), BLANKS)
PROGRAM(exaone_moe, PASS_OF(exaone_moe_words))

RULES(minicpm5_words, CONTRACTION, WORD, RUN(NUMBER), SYMBOLS_NEWLINE, BLANKS)
PROGRAM(minicpm5, PASS_OF(each_3_digits), PASS_OF(minicpm5_words))

PROGRAM(laguna, PASS_OF(lines), PASS_OF(qwen2_words))

PROGRAM(newlines, PASS_OF(lines))

PROGRAM(starcoder, PASS_OF(each_digit), PASS_OF(gpt2_words))

RULES(falcon_symbols, RUN({ATOM_P | ATOM_AP, 0}))
PROGRAM(falcon, PASS_OF(falcon_symbols), PASS_OF(gpt2_words), PASS_OF(ascii_3_digits))

RULES(default_symbols, RUN({ATOM_P | ATOM_AP, ATOM_BT}))
PROGRAM(default, PASS_OF(default_symbols), PASS_OF(gpt2_words), PASS_OF(numbers), PASS_OF(ascii_3_digits))

PROGRAM(bloom, PASS_OF(bloom_words))

PROGRAM(viking, PASS_OF(bloom_words), PASS_OF(each_digit))

#define UPPER {ATOM_L, ATOM_AL}
#define LOWER {ATOM_L, ATOM_AU}
#define UPPER_MARK {ATOM_L | ATOM_M, ATOM_AL}
#define LOWER_MARK {ATOM_L | ATOM_M, ATOM_AU}
RULES(tekken_words, CASED(UPPER, LOWER, false), DIGIT, SYMBOLS_SLASH, BLANKS)
PROGRAM(tekken, PASS_OF(tekken_words))

RULES(gpt4o_words, CASED(UPPER, LOWER, true), DIGITS_3, SYMBOLS_SLASH, BLANKS)
PROGRAM(gpt4o, PASS_OF(gpt4o_words))

RULES(granite_words, CASED(UPPER_MARK, LOWER_MARK, true), DIGITS_3, SYMBOLS_SLASH, BLANKS)
PROGRAM(granite_emb_multi, PASS_OF(granite_words))

RULES(tiny_aya_words, WORD_MARKS, DIGITS_3, SYMBOLS_SLASH, BLANKS)
PROGRAM(tiny_aya, {.kind = PASS_DIGITS_GLUED}, PASS_OF(tiny_aya_words))

RULES(youtu_scripts, RUN(SET(Y_HANGUL)), RUN(SET(Y_PUNCT)), RUN(SET(Y_BOPO)), RUN(SET(CJK_KANA)))
RULES(youtu_words, WORD_MARKS, DIGIT, SYMBOLS_SLASH, BLANKS)
PROGRAM(youtu, PASS_OF(youtu_scripts), PASS_OF(youtu_words))

RULES(kimi_k2_words, RUN(SET(HAN)), RUN({ATOM_L, ATOM_HAN}, .lead = NOT_LETTER_NUMBER, .contraction = true), DIGITS_3,
      SYMBOLS_NEWLINE, BLANKS)
PROGRAM(kimi_k2, PASS_OF(kimi_k2_words))

PROGRAM(superbpe, PASS_OF(numbers), {.kind = PASS_DIGITS_FROM_END})

RULES(afmoe_scripts, RUN(SET(AF_ASIA)))
PROGRAM(afmoe, {.kind = PASS_DIGITS_GLUED}, PASS_OF(afmoe_scripts), PASS_OF(deepseek_words))

PROGRAM(deepseek_v3, PASS_OF(each_3_digits), PASS_OF(cjk_kana), PASS_OF(deepseek_words))

RULES(spark2_5_words, ASCII_WORD, WORD_NO_SYMBOL, RUN({ATOM_P | ATOM_S, 0}, .lead = SPACE), RUN(NEWLINE, .max = 1),
      BUT_LAST, RUN(BLANK))
PROGRAM(spark2_5, PASS_OF(each_3_digits), PASS_OF(cjk_kana), PASS_OF(spark2_5_words), PASS_OF(each_digit))

RULES(deepseek_llm_letters, RUN(SET(DS_LETTER), .lead = BLANK))
RULES(deepseek_llm_symbols, RUN(SET(DS_PUNCT), .lead = BLANK))
RULES(deepseek_llm_end, {.op = RULE_TO_END})
PROGRAM(deepseek_llm, PASS_OF(each_newline), PASS_OF(deepseek_llm_letters), PASS_OF(deepseek_llm_symbols),
        PASS_OF(deepseek_llm_end), PASS_OF(cjk_wide), PASS_OF(numbers))

RULES(deepseek_coder_letters, RUN(LETTER, .lead = BLANK))
RULES(deepseek_coder_symbols, RUN(SET(P), .lead = BLANK))
PROGRAM(deepseek_coder, PASS_OF(each_newline), PASS_OF(deepseek_coder_letters), PASS_OF(deepseek_coder_symbols),
        PASS_OF(cjk_wide), PASS_OF(each_digit))

RULES(chameleon_sentinels, RULE(FRAMED, .literals = {"<sentinel:", "0123456789", ">"}))
RULES(chameleon_images, RULE(FRAMED, .max = 4, .literals = {"IMGIMG", "ABCDEFGHI", "Z"}))
RULES(chameleon_blanks, RULE(LITERAL, .literals = {"\t", "\n", "    ", "  "}))
RULES(chameleon_symbols, RUN({ATOM_P | ATOM_AP, 0}, .max = 1))
PROGRAM(chameleon, PASS_OF(chameleon_sentinels), PASS_OF(chameleon_images), PASS_OF(chameleon_blanks),
        PASS_OF(each_digit), PASS_OF(chameleon_symbols), PASS_OF(gpt2_words))

RULES(whitespace_words, RUN({ATOM_ALL, ATOM_WS}))
PROGRAM(whitespace, PASS_OF(whitespace_words))
