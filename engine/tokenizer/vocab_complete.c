/* What the reference adds to a vocabulary by the texts it finds there: special ids, the end-of-generation set, the list
 * of tokens that are looked for in texts, strip flags. docs/tokenizer.md sections 4 to 7. */
#include <ctype.h>

#include "engine/tokenizer/text_order.h"
#include "engine/tokenizer/vocab.h"

/* Texts that name a special id when no key did. */
static const struct detected {
    size_t field;
    const char *texts[12];
} detected[] = {
#define ID(field) offsetof(struct tokenizer_special, field)
    {ID(eot), {"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<EOT>",
               "_<EOT>", "[EOT]", "<\xef\xbd\x9c" "end\xe2\x96\x81" "of\xe2\x96\x81" "sentence\xef\xbd\x9c>",
               "<end_of_utterance>"}},
    {ID(eom), {"<|eom_id|>"}},
    {ID(fim_pre), {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>",
                   "<\xef\xbd\x9c" "fim\xe2\x96\x81" "begin\xef\xbd\x9c>", "<PRE>", "\xe2\x96\x81<PRE>",
                   "<|code_prefix|>", "<|prefix|>"}},
    {ID(fim_suf), {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>",
                   "<\xef\xbd\x9c" "fim\xe2\x96\x81" "hole\xef\xbd\x9c>", "<SUF>", "\xe2\x96\x81<SUF>",
                   "<|code_suffix|>", "<|suffix|>"}},
    {ID(fim_mid), {"<|fim_middle|>", "<fim-middle>", "<fim_middle>",
                   "<\xef\xbd\x9c" "fim\xe2\x96\x81" "end\xef\xbd\x9c>", "<MID>", "\xe2\x96\x81<MID>",
                   "<|code_middle|>", "<|middle|>"}},
    {ID(fim_pad), {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"}},
    {ID(fim_rep), {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"}},
    {ID(fim_sep), {"<|file_sep|>"}},
#undef ID
};

static const char *const end_texts[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
    "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>",
    "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
    "<\xef\xbd\x9c" "end\xe2\x96\x81" "of\xe2\x96\x81" "sentence\xef\xbd\x9c>", "[e~["};

static const char *const channel_texts[] = {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"};

#define COUNT(a) (sizeof(a) / sizeof(a)[0])
enum { LISTED = TOKEN_CONTROL | TOKEN_USER_DEFINED | TOKEN_UNKNOWN };

static enum status no_memory(size_t size, struct error *err)
{
    return error_no_memory(err, size, "the vocabulary");
}

static uint32_t find(const struct vocab *v, const char *text)
{
    return vocab_find(v, span_of(text));
}

static enum status detect_id(struct vocab *v, const struct detected *d, struct error *err)
{
    int32_t *id = (int32_t *)((char *)&v->special + d->field);
    uint32_t candidates[COUNT(d->texts)], first;
    size_t n = 0;
    if (*id != TOKEN_NONE)
        return STATUS_OK;
    for (size_t i = 0; i < COUNT(d->texts) && d->texts[i]; i++)
        if ((first = find(v, d->texts[i])) != TEXT_NONE)
            candidates[n++] = first;
    if (n == 0)
        return STATUS_OK;
    first = candidates[0];
    if (n > 1 && !text_order_first_hashed(v->text, v->n, candidates, n, &first))
        return no_memory(v->n * 16, err);
    *id = (int32_t)first;
    v->attribute[first] |= TOKEN_CONTROL;
    return STATUS_OK;
}

static void mark_unused(struct vocab *v)
{
    for (size_t i = 0; i < v->n; i++)
        if (v->attribute[i] & TOKEN_CONTROL && memmem(v->text[i].data, v->text[i].size, "unused", 6))
            v->attribute[i] |= TOKEN_UNUSED;
}

static void end_with(struct vocab *v, int32_t id)
{
    if (id != TOKEN_NONE)
        v->is_eog[id] = true;
}

static bool ends(const struct vocab *v, const char *text)
{
    uint32_t id = find(v, text);
    return id != TEXT_NONE && v->is_eog[id];
}

static void end_no_more(struct vocab *v, const char *text, uint16_t attribute)
{
    uint32_t id = find(v, text);
    v->is_eog[id] = false;
    v->attribute[id] = attribute;
}

static void find_ends(struct vocab *v)
{
    end_with(v, v->special.fim_pad);
    end_with(v, v->special.fim_rep);
    end_with(v, v->special.fim_sep);
    for (size_t i = 0; i < COUNT(end_texts); i++) {
        uint32_t id = find(v, end_texts[i]);
        if (id == TEXT_NONE)
            continue;
        v->is_eog[id] = true;
        v->attribute[id] |= TOKEN_CONTROL;
    }
    for (size_t i = 0; i < COUNT(channel_texts); i++) {
        uint32_t id = find(v, channel_texts[i]);
        if (id != TEXT_NONE)
            v->attribute[id] = TOKEN_USER_DEFINED;
    }
    end_with(v, v->special.eos);
    end_with(v, v->special.eot);
    end_with(v, v->special.eom);
    if (ends(v, "<|end|>") && (ends(v, "<|call|>") || ends(v, "<|calls|>")) &&
        (ends(v, "<|return|>") || ends(v, "<|flush|>")))
        end_no_more(v, "<|end|>", TOKEN_USER_DEFINED);
    if (ends(v, "<|tool_response>") && ends(v, "</s>"))
        end_no_more(v, "</s>", TOKEN_NORMAL);
}

static enum status list_tokens(struct vocab *v, struct error *err)
{
    for (size_t i = 0; i < v->n; i++)
        v->n_listed += (v->attribute[i] & LISTED) != 0;
    v->listed = arena_array(&v->arena, v->n_listed, sizeof *v->listed);
    if (!v->listed)
        return no_memory(v->n_listed * sizeof *v->listed, err);
    for (size_t i = 0, at = 0; i < v->n; i++)
        if (v->attribute[i] & LISTED)
            v->listed[at++] = (uint32_t)i;
    text_order_by_length(v->listed, v->n_listed, v->text);
    return STATUS_OK;
}

static bool contains(struct span s, const char *part)
{
    return s.size && memmem(s.data, s.size, part, strlen(part));
}

/* `part` is in lower case. */
static bool contains_any_case(struct span s, const char *part)
{
    size_t n = strlen(part);
    for (size_t at = 0; at + n <= s.size; at++) {
        size_t i = 0;
        while (i < n && tolower((unsigned char)s.data[at + i]) == part[i])
            i++;
        if (i == n)
            return true;
    }
    return false;
}

static void strip_before(struct vocab *v, const char *text)
{
    uint32_t id = find(v, text);
    if (id != TEXT_NONE)
        v->attribute[id] |= TOKEN_LSTRIP;
}

static enum status strip_after_all(struct vocab *v, struct error *err)
{
    static const struct {
        const char *text;
        bool strips;
    } named[] = {{"</s>", true}, {"<unk>", false}, {"<s>", false}, {"<|endoftext|>", false}};
    for (size_t i = 0; i < v->n_listed; i++)
        v->attribute[v->listed[i]] |= TOKEN_RSTRIP;
    for (size_t i = 0; i < COUNT(named); i++) {
        uint32_t id = find(v, named[i].text);
        if (id == TEXT_NONE)
            return error_set(err, STATUS_INVALID, "general.name says phi-3, but the vocabulary has no token \"%s\"",
                             named[i].text);
        if (named[i].strips)
            v->attribute[id] |= TOKEN_RSTRIP;
        else
            v->attribute[id] &= (uint16_t)~TOKEN_RSTRIP;
    }
    return STATUS_OK;
}

static enum status set_strip_flags(struct vocab *v, struct error *err)
{
    if (contains(v->pre_name, "jina-v2-de") || contains(v->pre_name, "jina-v2-es") ||
        contains(v->pre_name, "jina-v2-code") || contains(v->architecture, "nomic-bert-moe") ||
        contains(v->architecture, "jina-bert-v3"))
        strip_before(v, "<mask>");
    else if (contains_any_case(v->general_name, "phi-3") || contains_any_case(v->general_name, "phi3"))
        return strip_after_all(v, err);
    else if (contains_any_case(v->general_name, "modern-bert"))
        strip_before(v, "[MASK]");
    return STATUS_OK;
}

enum status vocab_complete(struct vocab *v, struct error *err)
{
    for (size_t i = 0; i < COUNT(detected); i++) {
        enum status s = detect_id(v, &detected[i], err);
        if (s != STATUS_OK)
            return s;
    }
    mark_unused(v);
    find_ends(v);
    enum status s = list_tokens(v, err);
    if (s == STATUS_OK)
        s = vocab_pieces(v, err);
    return s == STATUS_OK ? set_strip_flags(v, err) : s;
}
